"""scaseg predict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from scaseg.cli.options import add_max_pixels, add_model, add_windows, read_crf
from scaseg.cli.parser import Parser, positive, whole
from scaseg.errors import UserError, one_line
from scaseg.progress import progress_bar
from scaseg.system import DEVICES, PRECISIONS

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
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="images, folders of them (with all below; of a dataset its images/ alone), patterns "
        "such as 'a/*/*.jpg', lists (.txt, one a line), Parquet or tar files of images, addresses "
        "such as s3://bucket/folder",
    )
    add_model(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("predictions"),
        help="where results go (%(default)s)",
    )
    flag: dict[str, Any] = {"action": "store_true"}
    group = parser.add_argument_group("what is written beside the label map")
    overlay = "NAME.overlay.jpg: the classes over the image, with a legend"
    group.add_argument("--overlay", **flag, help=overlay)
    scores = "NAME.npz: scores (H, W, classes), probabilities in float16, and the classes"
    group.add_argument("--scores", **flag, help=scores)
    confidence = "NAME.confidence.png: how sure each pixel is, in gray; 255 is certain"
    group.add_argument("--confidence", **flag, help=confidence)
    group.add_argument("--json", **flag, help="NAME.json: the share of the area of each class")
    parser.add_argument(
        "--min-confidence",
        type=float,
        metavar="P",
        help="pixels that are less sure, from 0 to 1, get the label 255: no class",
    )
    parts = "png: a file an image; parquet, webdataset: the same files packed (%(default)s)"
    group.add_argument("--format", dest="file_format", choices=FORMATS, default="png", help=parts)
    per_part = "images of a Parquet or tar file (%(default)s)"
    group.add_argument("--per-part", type=positive, metavar="N", default=1000, help=per_part)
    group = parser.add_argument_group("test-time augmentation, sliding windows, a CRF")
    group.add_argument("--tta", **flag, help="at scales 0.75, 1, 1.25 and flipped, averaged")
    add_windows(group)
    group = parser.add_argument_group("many files")
    skip = "do what is not done yet; results of another model are refused, not mixed in"
    group.add_argument("--skip-existing", **flag, help=skip)
    group.add_argument("--overwrite", **flag, help="replace results that are there")
    skip = "name and count what cannot be read, do the rest"
    group.add_argument("--skip-bad", **flag, help=skip)
    add_max_pixels(group)
    group.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="the I-th of N shares: machines divide the work without talking to each other",
    )
    engine = "ray: all machines of a Ray cluster (RAY_ADDRESS; extra ray) (%(default)s)"
    group.add_argument("--engine", choices=("local", "ray"), default="local", help=engine)
    group.add_argument("--quiet", **flag, help="no progress bar, no summary")
    group = parser.add_argument_group("machine")
    group.add_argument("--device", choices=DEVICES, default="auto", help="(%(default)s)")
    precision = "of activations (%(default)s)"
    group.add_argument("--precision", choices=PRECISIONS, default="32", help=precision)
    group.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="images of similar size at once (1 on a CPU, 32 on a GPU), or windows (1, 8)",
    )
    group.add_argument(
        "--workers", type=positive, metavar="N", help="threads that read images (4 at most)"
    )
    parser.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> None:
    from scaseg.inference.predict_folder import predict_folder  # numpy, and later torch

    arguments = vars(options).copy()
    quiet = arguments.pop("quiet")
    for name in ("run", "config_keys", "with_context", "crf_settings"):
        arguments.pop(name, None)
    arguments["crf"] = read_crf(options)
    # whatever Ray says of its nodes is no result
    with redirect_stdout(sys.stderr), progress_bar("predicting", shown=not quiet) as progress:
        tally = predict_folder(
            **arguments,
            on_note=lambda note: None if quiet else print(note, file=sys.stderr),
            on_bad=lambda error: print(f"skipped: {one_line(str(error))}", file=sys.stderr),
            on_done=lambda tally, total: progress(tally.predicted, total, tally.rate),
        )
    if quiet:
        return
    count = f"{tally.predicted} image{'' if tally.predicted == 1 else 's'}"
    parts = [f"{count} segmented in {tally.seconds:.1f} s"]
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
