"""scaseg explain."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.limits import add_max_pixels
from scaseg.cli.loading import add_model, find, load, say_builtin
from scaseg.cli.parser import Parser, positive
from scaseg.cli.places import check_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg", "npz")


def add_explain(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "explain",
        help="what the neurons of a photograph depend on, as a figure",
        description="Show which regions of a photograph the neurons at some points depend on, or "
        "where one model is wrong and another right, and what that one looked at. Points are "
        "pixels of the upright photograph, origin top left.",
        epilog="example: scaseg explain photo.jpg --model runs/first --point 120,80 --point 40,200 "
        "--out why.png; without --model the built-in one is asked; two models: scaseg explain "
        "photo.jpg --label photo.png --compare runs/none runs/sca --out why.png, or --data DIR for "
        "a page of the most telling images",
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
        help="look through a data set instead of IMAGE (default: the one B was trained on)",
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
    try:
        kind = _format(options)
        _check_combination(options)
        if options.compare is None:
            figure, notes = _maps(options, kind, find("--model", options.model))
        else:
            for folder in options.compare:  # before torch: it is quick to refuse
                find("--compare", folder)
            from scaseg.cli.explain_compare import comparison_page

            figure, notes = comparison_page(options), []
    except ValueError as fault:
        parser.error(str(fault))
    except (MemoryError, RuntimeError) as fault:  # torch's own word for too little memory
        said = " ".join(str(fault).split())[:200] or type(fault).__name__
        what = options.image or options.data or "the data"
        parser.fail(1, f"{what}: could not be explained ({said}); try a smaller one")
    if figure is not None:
        from scaseg.explanation.saving import save_figure

        save_figure(figure, options.out, format=kind)
    if not options.quiet:  # not before: what fails is told in one line
        if options.compare is None:
            say_builtin(options.model, quiet=False)
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"wrote {options.out}", file=sys.stderr)


def _format(options: argparse.Namespace) -> str:
    """The kind of file to write; ValueError where none is meant or one would be lost."""
    out = Path(options.out)
    kind: str = options.format or out.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(f"--out: {out} ends in none of .png .pdf .svg .npz; say --format")
    if kind == "npz" and options.compare is not None:
        raise ValueError("--format: npz, but --compare draws a page; give png, pdf or svg")
    if os.path.isdir(out):  # not Path's own, which raises where a name is too long
        raise ValueError(f"--out: {out} is a folder; give a file")
    if os.path.exists(out) and not options.overwrite:
        raise ValueError(f"--out: {out} is there already; use --overwrite, or another name")
    if not out.parent.is_dir():
        raise ValueError(f"--out: {out.parent} is no folder; make it first")
    check_file("--out", out)
    return kind


def _check_combination(options: argparse.Namespace) -> None:
    """Refuse options that do not go together; ValueError names the first."""
    ways = {"--point": options.point, "--grid": options.grid, "--classes": options.classes}
    given = [name for name, value in ways.items() if value]
    if options.compare is None:
        needless = {"--label": options.label, "--data": options.data, "--top": options.top}
        needless["--split"] = options.split
        for name, value in needless.items():
            if value is not None:
                raise ValueError(f"{name}: goes with --compare MODEL_A MODEL_B; leave it out")
        if options.image is None:
            raise ValueError("IMAGE: none; give a photograph")
        if len(given) != 1:
            came = " and ".join(given) or "none"
            raise ValueError(f"--point: {came}; give --point X,Y, --grid RxC or --classes")
        return
    if given or options.model is not None:
        name = given[0] if given else "--model"
        raise ValueError(f"{name}: --compare finds its own place, of its two models; leave it out")
    if options.image is not None and options.data is not None:
        raise ValueError("--data: both it and IMAGE; give one of them with --compare")
    if options.image is not None and options.label is None:
        raise ValueError("--label: none; --compare needs the truth, or --data DIR")
    for name, value in (("--label", options.label),):
        if options.image is None and value is not None:
            raise ValueError(f"{name}: goes with IMAGE, not with --data; leave it out")
    for name, value in (("--top", options.top), ("--split", options.split)):
        if options.image is not None and value is not None:
            raise ValueError(f"{name}: goes with --data, not with IMAGE; leave it out")


def _maps(options: argparse.Namespace, kind: str, folder: Path) -> tuple[Figure | None, list[str]]:
    """The figure, or None where the numbers are written; and what is to be said of it."""
    from scaseg.data.decode.image import read_image
    from scaseg.explanation.figure import MOST, draw_dependency_maps
    from scaseg.explanation.maps import check_point, class_maps, dependency_maps, grid_points
    from scaseg.explanation.saving import save_maps
    from scaseg.explanation.similarity import likeness

    # before the model: it is quick to refuse
    image = read_image(options.image, max_pixels=options.max_pixels)
    if options.grid and (options.grid[0] > image.shape[0] or options.grid[1] > image.shape[1]):
        rows, columns = options.grid
        raise ValueError(
            f"--grid: {rows}x{columns} of a photograph with {image.shape[0]} rows of "
            f"{image.shape[1]} pixels; give no more points than that"
        )
    points = grid_points(image, *options.grid) if options.grid else options.point or []
    if len(points) > MOST and kind != "npz":
        name = "--grid" if options.grid else "--point"
        raise ValueError(f"{name}: {len(points)} points; a figure has room for {MOST} at most")
    for point in points:
        try:
            check_point(point, image.shape[:2])
        except ValueError as fault:
            raise ValueError(f"--{fault}") from fault
    model = load("--model", folder, options.device)
    maps = class_maps(model, image) if options.classes else dependency_maps(model, image, points)
    notes: list[str] = []
    if kind == "npz":
        save_maps(maps, options.out)
        return None, notes
    if len(maps) > MOST:  # of classes: nobody can ask for fewer
        notes.append(f"{len(maps)} classes, of which the {MOST} largest are drawn; npz has all")
        maps = maps.first(MOST)
    if alike := likeness(maps):
        notes.append(f"{alike} (docs/single_channel.md says why)")
    return draw_dependency_maps(maps), notes


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
