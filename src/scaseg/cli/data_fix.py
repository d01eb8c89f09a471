"""scaseg data fix."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scaseg.cli.data_options import add_dataset, print_text, read_dataset
from scaseg.cli.parser import Parser, add_option
from scaseg.errors import UserError, plural

REPAIRS = {
    "resize_labels": "enlarge or shrink label maps to their photographs, by nearest neighbour",
    "turn_labels": "turn label maps as EXIF turns their photographs",
    "drop_duplicates": "keep photographs that are in two splits, pixel for pixel, in one: test, "
    "else val (copies that were saved anew, cut or resized are not found)",
    "drop_broken": "leave out what cannot be read, does not fit, or is missing",
}


def add_command(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "fix",
        help="write a repaired copy of a dataset",
        description="Write a repaired copy of a dataset as plain folders, with a manifest.csv that "
        "names everything that was done; DIR is never changed. The first four repairs below are "
        "all made, or those of them that are named.",
        epilog="example: scaseg data fix photos data/photos --merge vehicle=car,truck "
        "--ignore void",
    )
    add_dataset(parser)
    about = "the folder to write, new or empty"
    parser.add_argument("destination", type=Path, metavar="DST", help=about)
    option = partial(add_option, parser)
    for name, about in REPAIRS.items():
        option(f"--{name.replace('_', '-')}", about)
    about = "turn them also where EXIF changes no size (upside down, or square), so that none can "
    about += "tell but a person: `scaseg data look` shows them"
    option("--turn-all-labels", about)
    about = "make one class of several; may be given more than once"
    option("--merge NEW=A,B", about, action="append", default=[])
    option("--ignore A,B", "classes that become unlabelled")
    option("--workers N", "files read at once (number of cores)")
    option("--quiet", "print nothing, no progress")
    parser.set_defaults(run=_fix)


def _fix(options: argparse.Namespace) -> None:
    from scaseg.data.fix import MANIFEST, Repairs, fix
    from scaseg.progress import progress_bar

    merge = {}
    for text in options.merge:
        new, sign, old = text.partition("=")
        if not (sign and new.strip() and old.strip(" ,")):
            raise UserError("--merge", text, "give NEW=A,B")
        merge[new.strip()] = _names(old)
    chosen = {name: getattr(options, name) for name in REPAIRS}
    if not any(chosen.values()):
        chosen = dict.fromkeys(REPAIRS, True)
    chosen["turn_all_labels"] = options.turn_all_labels
    repairs = Repairs(**chosen, merge=merge, ignore=_names(options.ignore or ""))
    dataset, settings = read_dataset(options)
    with progress_bar("fixing", shown=not options.quiet) as progress:
        fixed = fix(
            dataset,
            options.folder,
            options.destination,
            repairs,
            workers=options.workers,
            progress=progress,
            **settings,
        )
    if not options.quiet:
        counts = ", ".join(f"{split} {count}" for split, count in fixed.written.splits.items())
        kinds = [row["action"] for row in fixed.manifest]
        done = ", ".join(
            plural(kinds.count(kind), kind) if kind == "class" else f"{kinds.count(kind)} {kind}"
            for kind in dict.fromkeys(kinds)
        )
        manifest = options.destination / MANIFEST
        print_text(f"{options.destination}: {counts}; {done or 'nothing to mend'}; see {manifest}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name.strip())  # a class may end in a blank
