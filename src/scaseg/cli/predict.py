"""scaseg predict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from scaseg.cli.options import add_device, add_max_pixels, add_model, add_windows, read_crf
from scaseg.cli.parser import Parser, add_option, positive, whole
from scaseg.errors import UserError, one_line, plural
from scaseg.progress import progress_bar
from scaseg.system import PRECISIONS

FORMATS = ("png", "parquet", "webdataset")  # as in inference/parts.py, whose import takes a second


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "predict",
        help="label maps of images: files, whole folders, of any size",
        description="Segment images. Each gets DIR/NAME.png: a palette PNG of the image's exact "
        "size (upright, as its EXIF says) whose values are the classes, in the model's order. "
        "Sub-folders of a folder are kept. Files appear whole or not at all, the PNG last; nothing "
        "is overwritten unless you say so.",
        epilog="example: scaseg predict photos --model runs/first --out labels --overlay; in the "
        "simplest case scaseg predict photo.jpg, by the built-in model, into predictions/; after "
        "an interruption add --skip-existing",
    )
    about = "images, folders of them (with all below; of a dataset its images/ alone), patterns "
    about += "such as 'a/*/*.jpg', lists (.txt, one a line), Parquet or tar files of images, "
    about += "addresses such as s3://bucket/folder"
    parser.add_argument("images", nargs="+", metavar="IMAGES", help=about)
    add_model(parser)
    out = Path("predictions")
    add_option(parser, "--out DIR", "where results go (%(default)s)", type=Path, default=out)
    about = "pixels that are less sure, from 0 to 1, get the label 255: no class"
    add_option(parser, "--min-confidence P", about, type=float)
    option = partial(add_option, parser.add_argument_group("what is written beside the label map"))
    option("--overlay", "NAME.overlay.jpg: the classes over the image, with a legend")
    option(
        "--scores", "NAME.npz: scores (H, W, classes), probabilities in float16, and the classes"
    )
    option("--confidence", "NAME.confidence.png: how sure each pixel is, in gray; 255 is certain")
    option("--json", "NAME.json: the share of the area of each class")
    about = "png: a file an image; parquet, webdataset: the same files packed (%(default)s)"
    option("--format", about, dest="file_format", choices=FORMATS, default="png")
    option("--per-part N", "images of a Parquet or tar file (%(default)s)", default=1000)
    group = parser.add_argument_group("test-time augmentation, sliding windows, a CRF")
    add_option(group, "--tta", "at scales 0.75, 1, 1.25 and flipped, averaged")
    add_windows(group)
    option = partial(add_option, group := parser.add_argument_group("many files"))
    about = "do what is not done yet; results of another model are refused, not mixed in"
    option("--skip-existing", about)
    option("--overwrite", "replace results that are there")
    option("--skip-bad", "name and count what cannot be read, do the rest")
    add_max_pixels(group)
    about = "the I-th of N shares: machines divide the work without talking to each other"
    option("--shard I/N", about, type=_shard)
    about = "onnx: ONNX Runtime, on the CPU (extra export); ray: all machines of a Ray "
    about += "cluster (RAY_ADDRESS; extra ray) (%(default)s)"
    option("--engine", about, choices=("local", "onnx", "ray"), default="local")
    option("--quiet", "no progress bar, no summary")
    option = partial(add_option, group := parser.add_argument_group("machine"))
    add_device(group)
    option("--precision", "of activations (%(default)s)", choices=PRECISIONS, default="32")
    about = "images of similar size at once (1 on a CPU, 32 on a GPU), or windows (1, 8)"
    option("--batch-size N", about)
    option("--workers N", "threads that read images (8 at most; of many, beside a GPU, more)")
    parser.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> None:
    from scaseg.inference.predict_folder import predict_folder  # numpy, and later torch

    arguments = vars(options).copy()
    quiet = arguments.pop("quiet")
    for name in ("run", "config_keys", "with_context", "crf_settings"):
        arguments.pop(name, None)
    arguments["crf"] = read_crf(options)
    on_note = lambda note: None if quiet else print(note, file=sys.stderr)  # noqa: E731
    if options.engine == "onnx":
        from scaseg.export.cached import cached_onnx

        arguments |= {"engine": "local", "onnx": partial(cached_onnx, options.model, on_note)}
    # whatever Ray says of its nodes is no result
    with redirect_stdout(sys.stderr), progress_bar("predicting", shown=not quiet) as progress:
        tally = predict_folder(
            **arguments,
            on_note=on_note,
            on_bad=lambda error: print(f"skipped: {one_line(str(error))}", file=sys.stderr),
            on_done=lambda tally, total: progress(tally.predicted, total, tally.rate),
        )
    if quiet:
        return
    parts = [f"{plural(tally.predicted, 'image')} segmented in {tally.seconds:.1f} s"]
    if tally.predicted:
        parts[0] += f", {tally.rate()}"
    if tally.existing:
        parts.append(f"{tally.existing} existed already")
    if tally.bad:
        parts.append(f"{tally.bad} bad ones skipped")
    print(f"{'; '.join(parts)}: {options.out}")


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    try:
        return whole(1, positive(count))(index), positive(count)
    except UserError as error:
        raise UserError("", repr(text), "give I/N with I from 1 to N, such as 2/8") from error
