"""Whose files are: results of ours may be replaced; photographs, label maps and models never."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scaseg.errors import UserError, located
from scaseg.io.model_folder import RECIPE
from scaseg.io.paths import check_file, open_regular

MARK = "made by scaseg"  # in the metadata of every result that a command may replace
# how confusion.csv and per_class.csv begin: a table has no metadata
CONFUSION = "truth \\ prediction"
PER_CLASS = ("class", "pixels", "accuracy", "IoU")
SEARCHED = 1 << 16  # bytes at either end of a file: PNG and JPEG say it first, PDF and zip last
RECORD = ".scaseg.json"  # of `predict`, in the folder of its results
RUN_PARTS = ("environment.json", "checkpoints", "runs")  # beside a recipe: of a run, a comparison


def is_ours(path: Path) -> bool:
    """Whether a file is a result of ours: it says so itself, at its beginning or its end."""
    with open_regular(path) as file:
        ends = file.read(SEARCHED)
        file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
        ends += file.read()
    return any(mark.encode() in ends for mark in (MARK, CONFUSION, ",".join(PER_CLASS)))


def check_replaceable(path: Path) -> None:
    """Refuse to replace a file that no command of ours made."""
    if os.path.lexists(path) and not (os.path.isfile(path) and is_ours(path)):
        remedy = "only results are replaced: give another place"
        raise UserError(path, "was not made by scaseg", remedy)


def check_result(option: str, path: Path, *, overwrite: bool) -> None:
    """Refuse a file for results that is there (with overwrite: not ours), or cannot be written."""
    check_file(option, path, overwrite=overwrite)
    with located(option):
        check_replaceable(path)


def is_run(names: Iterable[str]) -> bool:
    """Whether the names in a folder are those of a run or a comparison, begun at least.

    A recipe alone is not: users keep theirs where they like.
    """
    there = set(names)
    return RECIPE in there and not there.isdisjoint(RUN_PARTS)
