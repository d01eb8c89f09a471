"""scaseg data list, check and prepare."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli import data_fix, data_look
from scaseg.cli.data_options import (
    KEYS,
    add_dataset,
    add_labels,
    as_typed,
    format_options,
    print_text,
    read_dataset,
    read_labels,
)
from scaseg.cli.parser import Parser, add_option, format_command
from scaseg.errors import UserError, WorkError, located
from scaseg.io.lock import folder_lock
from scaseg.io.paths import check_folder, not_writable
from scaseg.registry import DATASETS, GENERATED_DATASETS

SHOWN = 5  # problems of a kind that `prepare` lists
AUTO = "auto"  # the format is recognized


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the commands."""
    parser = add(
        "data",
        help="list supported datasets, check one, or convert one to plain folders",
        description="Check and convert photographs and label maps before training on them.",
        epilog="example: scaseg data check path/to/folder",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_list(commands.add_parser)
    _add_check(commands.add_parser)
    _add_prepare(commands.add_parser)
    data_look.add_command(commands.add_parser)
    data_fix.add_command(commands.add_parser)


def _add_list(add: Callable[..., Parser]) -> None:
    parser = add(
        "list",
        help="name the supported datasets and the form in which each is expected",
        description="Name the supported datasets, each with the files that it is expected to be.",
        epilog="example: scaseg data list",
    )
    add_option(parser, "--json", "print JSON and nothing else")
    parser.set_defaults(run=_list)


def _add_check(add: Callable[..., Parser]) -> None:
    parser = add(
        "check",
        help="read every file of a dataset and report all that is wrong with it",
        description="Read every photograph and label map once and report all problems together, "
        "with class frequencies and the class weights that training would use. Exit code 0: none "
        "or warnings only; 1: errors, with which training would fail or be wrong.",
        epilog="example: scaseg data check masks --label-map '{255: 1}'",
    )
    add_dataset(parser)
    option = partial(add_option, parser)
    about = "the recipe that you will train with, whose class weights are shown (own_folder)"
    option("--recipe RECIPE", about)
    option("--workers N", "files read at once (number of cores)")
    option("--json", "print JSON and nothing else")
    option("--quiet", "print problems and nothing else, no progress")
    parser.set_defaults(run=_check)


def _add_prepare(add: Callable[..., Parser]) -> None:
    parser = add(
        "prepare",
        help="convert a dataset of any supported format to plain folders",
        description="Write a dataset as a folder of images/, labels/, classes.txt and lists: one "
        "form for every tool. Photographs are copied as they are; SRC is never changed.",
        epilog="example: scaseg data prepare auto downloads/VOC2012 data/voc; generated "
        "scenes need no source: scaseg data prepare context_scenes_global data/scenes",
    )
    about = "as `scaseg data list` names it; auto: it is recognized"
    parser.add_argument("name", metavar="FORMAT", help=about)
    about = "SRC DST: the folder of the dataset, and the one to write; DST alone for generated "
    about += "scenes"
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=about)
    option = partial(add_option, parser)
    option("--workers N", "files written at once (4)", default=4)
    option("--shards N", "write tar files of N pairs each instead")
    option("--quiet", "print nothing, no progress")
    add_labels(parser)
    parser.set_defaults(run=_prepare, reads_keys=tuple(KEYS.values())[1:])


def _list(options: argparse.Namespace) -> None:
    forms = {name: dataset.__doc__.split("\n")[0] for name, dataset in DATASETS.items()}
    if options.json:
        print_text(json.dumps(forms, indent=2))
        return
    indent = max(map(len, forms)) + 2
    width = shutil.get_terminal_size().columns
    for name, form in forms.items():
        lines = textwrap.wrap(form.rstrip("."), max(width - indent, 20))
        print_text(f"{name:{indent}}" + f"\n{'':{indent}}".join(lines))


def _check(options: argparse.Namespace) -> None:
    from scaseg.config.recipe import USUAL, load_recipe
    from scaseg.data.validation.check import check_data
    from scaseg.data.validation.report import Weighting, render
    from scaseg.progress import progress_bar

    with located("--recipe"):
        recipe = options.recipe or USUAL
        training = load_recipe(recipe).training
    clamp = training.class_weight_range
    dataset, settings = read_dataset(options)
    with progress_bar("reading", shown=not options.quiet and not options.json) as progress:
        report = check_data(
            dataset,
            options.folder,
            weighting=Weighting(training.class_weights, clamp, recipe),
            workers=options.workers,
            progress=progress,
            **settings,
        )
    if options.json:
        found = [one._asdict() | {"root": str(one.root)} for one in options.recognized]
        print_text(json.dumps(report.to_dict() | {"recognized": found}, indent=2))
    else:
        width = shutil.get_terminal_size().columns
        encoding = sys.stdout.encoding or "ascii"
        print_text(render(report, width=width, encoding=encoding, findings_only=options.quiet))
        for one in options.recognized:
            # of several formats the errors may be those of reading it in none of them
            is_stopped = report.errors and len(options.recognized) == 1
            then = "Correct the errors before you convert it." if is_stopped else "To train on it:"
            lines = textwrap.wrap(f"Recognized as {one.name}: {one.found}. {then}", width)
            command = f"{one.command} {as_typed(options)}".rstrip()
            lines += [] if is_stopped else [format_command(command, width)]
            print_text("\n".join(["", *lines]))
    if report.errors:
        sys.exit(1)


def _prepare(options: argparse.Namespace) -> None:
    from scaseg.data.datasets.recognition import require_one
    from scaseg.data.prepare import IncompleteError, open_splits, prepare
    from scaseg.data.shard_writer import write_shards
    from scaseg.data.validation.report import by_kind
    from scaseg.progress import progress_bar

    if options.name not in (AUTO, *DATASETS):
        raise UserError.choice("FORMAT", options.name, [AUTO, *DATASETS])
    generated = options.name in GENERATED_DATASETS
    if len(options.folders) != (1 if generated else 2):
        fits = f"DST alone, {options.name} is generated" if generated else "SRC and DST"
        raise UserError("FOLDER", " ".join(map(str, options.folders)), f"give {fits}")
    *source, destination = options.folders
    check_folder("DST", destination)
    if options.name == AUTO:
        recognized = require_one(source[0])
        options.name, source = recognized.name, [recognized.root]
        if not options.quiet:
            print_text(f"{recognized.root}: {recognized.name}, it has {recognized.found}")
    settings = read_labels(options)
    if generated and settings:
        option = f"--{next(iter(settings)).replace('_', '-')}"
        raise UserError(option, f"given, but {options.name} is generated", "leave it out")
    dataset = DATASETS[options.name].configured(**format_options(options))
    try:
        with progress_bar("writing", shown=not options.quiet) as progress:
            if options.shards:
                root = source[0] if source else None
                parts = open_splits(dataset, root, destination, **settings)
                with folder_lock(destination, "DST"):
                    sizes = write_shards(parts, destination, options.shards, progress=progress)
                words = ", ".join(f"{split} {count}" for split, count in sizes.items())
                if not options.quiet:
                    print_text(f"{destination}: {words}; train on it with --data.name shards")
                return
            written = prepare(
                dataset,
                source[0] if source else None,
                destination,
                workers=options.workers,
                progress=progress,
                **settings,
            )
    except IncompleteError as error:
        for alike in by_kind(error.problems):
            rest = len(alike) - SHOWN
            more = [f"and {rest} more like these"] if rest > 0 else []
            print_text("\n".join([*map(str, alike[:SHOWN]), *more]))
        raise
    except OSError as error:  # a full disk, a folder that may not be written to
        if not destination.exists():
            raise not_writable(destination, error).within("DST") from error
        raise WorkError(destination, str(error), "what is written is kept") from error
    if not options.quiet:
        counts = ", ".join(f"{split} {count}" for split, count in written.splits.items())
        done = f"{written.copied} pairs written, {written.skipped} were there"
        print_text("\n".join([f"{destination}: {counts}; {done}", *written.notes]))
