"""scaseg explain."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaseg.cli.options import add_device, add_max_pixels, add_model, find, load, print_notes
from scaseg.cli.parser import Parser, add_option, positive
from scaseg.errors import UserError, as_options, located
from scaseg.io.model_folder import model_notes
from scaseg.io.ownership import check_result

if TYPE_CHECKING:
    from scaseg.data.datasets.base import SegmentationDataset
    from scaseg.data.sample import Sample
    from scaseg.models.segmenter import Segmenter

MOST_ANSWERS = 24
# why maps of the paper's predictor are alike; documentation does not come with a wheel
STATIC = (
    "with one pair channel every neuron ranks the others alike, unlike pair_channels > 1 or dot"
)
FORMATS = ("png", "pdf", "svg", "npz")


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "explain",
        help="what the neurons of an image depend on, as a figure",
        description="Show what a model predicts and which regions of an image the neurons at some "
        "points depend on; or where one of two models is wrong and the other right, both ways, and "
        "what the second depends on there. Points are pixels of the upright image, origin top "
        "left.",
        epilog="example: scaseg explain photo.jpg --model runs/first --point 120,80 --point 40,200 "
        "--out why.png; two models: scaseg explain photo.jpg --label photo.png --compare runs/none "
        "runs/sca --out why.png, or --data DIR for a page of the images where they differ most",
    )
    parser.add_argument("image", nargs="?", metavar="IMAGE", help="an image")
    add_model(parser)
    option = partial(add_option, parser)
    about = "the figure to write (.png .pdf .svg), or its numbers (.npz)"
    option("--out FILE", about, required=True, type=Path)
    option("--format", "of the file (by its suffix)", choices=FORMATS)
    option("--overwrite", "replace a file that is there")
    option = partial(add_option, parser.add_argument_group("which neurons"))
    option("--point X,Y", "a pixel; as many as you like", action="append", type=_point)
    option("--grid RxC", "R rows of C points, evenly spread, such as 3x4", type=_grid)
    option("--classes", "the mean over the neurons of each class")
    option = partial(add_option, group := parser.add_argument_group("two models"))
    models: dict[str, Any] = {"nargs": 2, "metavar": ("MODEL_A", "MODEL_B")}
    group.add_argument("--compare", **models, help="where only B is right, and where only A is")
    option("--label FILE", "the label map of IMAGE")
    option("--data DIR", "search a dataset instead of IMAGE (default: the one B was trained on)")
    option("--split NAME", "train, val, test or all (test, else val)")
    option("--top N", "images of each kind (3)")
    add_device(parser)
    add_max_pixels(parser)
    add_option(parser, "--quiet", "no progress bar, no summary")
    parser.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> None:
    kind = _check_out(options)
    _check_combination(options)
    notes = _compare(options, kind) if options.compare else _explain_image(options, kind)
    print_notes([*notes, f"wrote {options.out}"], quiet=options.quiet)


def _explain_image(options: argparse.Namespace, kind: str) -> list[str]:
    folder = find("--model", options.model)  # before torch is imported

    from scaseg.config.model import read_config
    from scaseg.data.decode.bands import read_pixels
    from scaseg.explanation.maps import explain

    with located("--model"):
        config = read_config(folder)
    kind_of = (config.bands, config.dtype)
    image = read_pixels(options.image, *kind_of, max_pixels=options.max_pixels)
    model = load("--model", folder, options.device)
    which = {"points": options.point, "grid": options.grid, "classes": options.classes}
    with as_options():
        maps = explain(model, image, **which)
        maps.save(options.out, format=kind)
    notes = model_notes(options.model, folder)
    if maps.answers:
        pairs = zip(maps.names, maps.answers, strict=True)
        answers = [f"{number} {name}" for number, name in pairs]
        more = ", ..." if len(answers) > MOST_ANSWERS else ""
        notes.append(f"predicted there: {', '.join(answers[:MOST_ANSWERS])}{more}")
    if kind != "npz" and (note := maps.similarity_note()):
        options_of = model.config.context_options
        is_static = model.config.context == "sca" and options_of.get("pair_channels", 1) == 1
        notes.append(f"note: {note}" + (f" ({STATIC})" if is_static else ""))
    return notes


def _compare(options: argparse.Namespace, kind: str) -> list[str]:
    folders = [find("--compare", folder) for folder in options.compare]  # before torch: quick

    from scaseg.explanation.disagreement import largest_disagreements, read_sample
    from scaseg.explanation.page import disagreement_page, model_names
    from scaseg.plots.figures import save_figure
    from scaseg.progress import progress_bar

    first, second = (load("--compare", folder, options.device) for folder in folders)
    samples: Sequence[Sample] | SegmentationDataset
    if options.image is None:
        samples = _dataset(options, second)
    else:
        limit = options.max_pixels
        samples = [read_sample(options.image, options.label, second, max_pixels=limit)]
    folders_named = tuple(Path(folder).resolve().name for folder in options.compare)
    names = model_names(first, second, folders_named)
    with progress_bar("comparing", shown=not options.quiet) as progress, located("--compare"):
        how: dict[str, Any] = {"top": options.top or 3, "progress": progress}
        found = largest_disagreements(first, second, samples, **how)
        page = disagreement_page(found, second, names=names)
    save_figure(page, options.out, format=kind)
    return [found.summary(*names)]


def _dataset(options: argparse.Namespace, model: Segmenter) -> SegmentationDataset:
    """Open the split to search, its labels read as in the model's training."""
    from dataclasses import replace  # not above: `scaseg --help` would wait for it

    from scaseg.data.splits import evaluation_split
    from scaseg.models.labels import check_classes, data_config, reading_note, trained_on

    config = data_config(model, options.data)
    if options.max_pixels is not None:
        config = replace(config, max_pixels=options.max_pixels)
    dataset, description = evaluation_split(config, options.split, trained_on=trained_on(model))
    check_classes(model, dataset)
    notes = [f"{len(dataset)} photographs: {description}"]
    if (note := reading_note(model, config)) is not None:
        notes.append(f"note: {note}")
    print_notes(notes, quiet=options.quiet)
    return dataset


def _check_out(options: argparse.Namespace) -> str:
    """Return the format of the file; UserError where it is unknown or a file would be lost."""
    out, suffix = options.out, options.out.suffix.lower().lstrip(".")
    if not options.format and suffix not in FORMATS:
        raise UserError("--out", f"{out} ends in none of .png .pdf .svg .npz", "give --format")
    kind: str = options.format or suffix
    if kind == "npz" and options.compare:
        raise UserError("--format", "npz, but --compare draws a page", "give png, pdf or svg")
    check_result("--out", out, overwrite=options.overwrite)
    return kind


def _check_combination(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, and too few of them."""

    def refuse(names: Sequence[str], why: str) -> None:
        for name in names:
            if getattr(options, name):
                raise UserError(f"--{name}", why, "leave it out")

    ways = ("point", "grid", "classes")
    if options.compare:
        refuse((*ways, "model"), "--compare finds its own place, of its two models")
        if options.image is None:
            refuse(["label"], "goes with IMAGE, not with --data")
        else:
            refuse(("data", "top", "split"), "goes without IMAGE")
            if options.label is None:
                raise UserError("--label", "none", "give the label map of IMAGE, or --data DIR")
        return
    refuse(("label", "data", "top", "split"), "goes with --compare MODEL_A MODEL_B")
    if options.image is None:
        raise UserError("IMAGE", "none", "give an image")
    given = [f"--{name}" for name in ways if getattr(options, name)]
    if len(given) != 1:
        came = " and ".join(given) or "none"
        raise UserError("--point", came, "give --point X,Y, --grid RxC or --classes")


def _point(text: str) -> tuple[float, float]:
    try:
        x, y = map(float, text.split(","))
    except ValueError:
        remedy = "give two numbers X,Y: pixels from the left and from the top"
        raise UserError("", repr(text), remedy) from None
    return x, y


def _grid(text: str) -> tuple[int, int]:
    try:
        rows, columns = map(positive, text.lower().split("x"))
    except ValueError:
        raise UserError("", repr(text), "give rows and columns, such as 3x4") from None
    return rows, columns
