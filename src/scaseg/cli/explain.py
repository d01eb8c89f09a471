"""scaseg explain."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.options import add_max_pixels, add_model, find, load, print_notes
from scaseg.cli.parser import Parser, positive
from scaseg.errors import UserError, located
from scaseg.io.destination import check_file
from scaseg.io.model_folder import find_model, model_notes

if TYPE_CHECKING:
    from scaseg.data.datasets.base import SegmentationDataset
    from scaseg.data.sample import Sample
    from scaseg.models.segmenter import Segmenter

FORMATS = ("png", "pdf", "svg", "npz")


def add_explain(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "explain",
        help="what the neurons of a photograph depend on, as a figure",
        description="Show which regions of a photograph the neurons at some points depend on, or "
        "where one model is wrong and another right, and what that one depended on there. Points "
        "are pixels of the upright photograph, origin top left.",
        epilog="example: scaseg explain photo.jpg --model runs/first --point 120,80 --point 40,200 "
        "--out why.png; without --model the built-in one is used; two models: scaseg explain "
        "photo.jpg --label photo.png --compare runs/none runs/sca --out why.png, or --data DIR for "
        "a page of the images with the largest differences",
    )
    parser.add_argument("image", nargs="?", metavar="IMAGE", help="a photograph")
    add_model(parser)
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="where the figure goes (.png .pdf .svg .npz)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="of the file (by its suffix); npz: the numbers"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    which = parser.add_argument_group("which neurons")
    which.add_argument(
        "--point", action="append", type=_point, metavar="X,Y", help="a pixel; as many as you like"
    )
    which.add_argument(
        "--grid", type=_grid, metavar="RxC", help="R rows of C points, evenly spread, such as 3x4"
    )
    which.add_argument(
        "--classes", action="store_true", help="the mean over all neurons of each predicted class"
    )
    two = parser.add_argument_group("two models")
    two.add_argument(
        "--compare", nargs=2, metavar=("MODEL_A", "MODEL_B"), help="where A is wrong and B right"
    )
    two.add_argument("--label", metavar="FILE", help="the label map of IMAGE")
    two.add_argument(
        "--data",
        metavar="DIR",
        help="search a data set instead of IMAGE (default: the one B was trained on)",
    )
    two.add_argument(
        "--split", metavar="NAME", help="of the data: train, val, test or all (test, else val)"
    )
    two.add_argument("--top", type=positive, metavar="N", help="images on the page (5)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="what to compute on (auto)",
    )
    add_max_pixels(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary")
    parser.set_defaults(run=_explain)


def _explain(options: argparse.Namespace, parser: Parser) -> None:
    _check_combination(options)
    kind = _check_out(options)
    notes = _compare(options, kind) if options.compare else _explain_image(options, kind)
    if not options.quiet:  # not before: what fails is told in one line
        if not options.compare:
            print_notes(model_notes(options.model, find_model(options.model)), quiet=False)
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"wrote {options.out}", file=sys.stderr)


def _explain_image(options: argparse.Namespace, kind: str) -> list[str]:
    """Write the maps of some neurons; return what is to be said of them."""
    folder = find("--model", options.model)  # before torch: it is quick to refuse

    from scaseg.data.decode.image import read_image
    from scaseg.explanation.maps import explain

    image = read_image(options.image, max_pixels=options.max_pixels)
    model = load("--model", folder, options.device)
    maps = explain(model, image, points=options.point, grid=options.grid, classes=options.classes)
    maps.save(options.out, format=kind)
    return [] if kind == "npz" else maps.notes()


def _compare(options: argparse.Namespace, kind: str) -> list[str]:
    """Write a page of where one model is wrong and another right."""
    for folder in options.compare:  # before torch: it is quick to refuse
        find("--compare", folder)

    from scaseg.explanation.disagreement import read_sample
    from scaseg.explanation.page import disagreement_page
    from scaseg.plots.figures import save_figure
    from scaseg.progress import progress_bar

    first, second = (load("--compare", folder, options.device) for folder in options.compare)
    samples: Sequence[Sample] | SegmentationDataset
    if options.image is None:
        samples = _dataset(options, second)
    else:
        limit = options.max_pixels
        samples = [read_sample(options.image, options.label, second, max_pixels=limit)]
    one, other = (Path(folder).resolve().name for folder in options.compare)
    with (
        progress_bar("comparing", len(samples), shown=not options.quiet) as progress,
        located("--compare"),
    ):
        page = disagreement_page(
            *(first, second, samples),
            top=options.top or 5,
            names=(one, other) if one != other else ("A", "B"),
            progress=progress,
        )
    save_figure(page, options.out, format=kind)
    return []


def _dataset(options: argparse.Namespace, model: Segmenter) -> SegmentationDataset:
    """Open the split to search, its labels read as in the model's training."""
    from scaseg.training.data import evaluation_split  # Lightning: seconds
    from scaseg.training.evaluation import check_data, data_config, trained_on

    config = data_config(model, options.data)
    if options.max_pixels is not None:
        config = replace(config, max_pixels=options.max_pixels)
    dataset, said = evaluation_split(config, options.split, trained_on=trained_on(model))
    check_data(model, dataset, "none")
    if not options.quiet:
        print(f"{len(dataset)} photographs: {said}", file=sys.stderr)
    return dataset


def _check_out(options: argparse.Namespace) -> str:
    """Return the format of the file; UserError where it is unknown or a file would be lost."""
    out = Path(options.out)
    kind: str = options.format or out.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        endings = " ".join(f".{name}" for name in FORMATS)
        raise UserError("--out", f"{out} ends in none of {endings}", "give --format")
    if kind == "npz" and options.compare is not None:
        raise UserError("--format", "npz, but --compare draws a page", "give png, pdf or svg")
    if os.path.isdir(out):  # not Path's own, which raises where a name is too long
        raise UserError("--out", f"{out} is a folder", "give a file")
    if os.path.exists(out) and not options.overwrite:
        raise UserError("--out", f"{out} is there already", "use --overwrite, or another name")
    if not out.parent.is_dir():
        raise UserError("--out", f"{out.parent} is no folder", "make it first")
    check_file("--out", out)
    return kind


def _check_combination(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    ways = {"--point": options.point, "--grid": options.grid, "--classes": options.classes}
    given = [name for name, value in ways.items() if value]
    label, data = {"--label": options.label}, {"--data": options.data, "--top": options.top}
    data["--split"] = options.split
    if options.compare is None:
        needless, why = label | data, "goes with --compare MODEL_A MODEL_B"
    elif options.image is None:
        needless, why = label, "goes with IMAGE, not with --data"
    else:
        needless, why = data, "goes without IMAGE"
    for name, value in needless.items():
        if value is not None:
            raise UserError(name, why, "leave it out")
    if options.compare is not None and (given or options.model is not None):
        name = given[0] if given else "--model"
        raise UserError(name, "--compare finds its own place, of its two models", "leave it out")
    if options.compare is None and options.image is None:
        raise UserError("IMAGE", "none", "give a photograph")
    if options.compare is None and len(given) != 1:
        came = " and ".join(given) or "none"
        raise UserError("--point", came, "give --point X,Y, --grid RxC or --classes")
    if options.compare and options.image is not None and options.label is None:
        raise UserError("--label", "none", "--compare needs the label map of IMAGE, or --data DIR")


def _point(text: str) -> tuple[float, float]:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}; give two numbers X,Y: pixels from the left and from the top"
        ) from None
    return x, y


def _grid(text: str) -> tuple[int, int]:
    try:
        rows, columns = (positive(part) for part in text.lower().split("x"))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r}; give rows and columns, such as 3x4") from None
    return rows, columns
