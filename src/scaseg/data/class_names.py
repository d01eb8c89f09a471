"""Names of classes: lists of them, which mean unlabelled, which of two datasets are the same."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from pathlib import Path

from scaseg.errors import UserError
from scaseg.io.paths import read_lines, shown

UNLABELLED = {"unlabelled", "unlabeled", "notlabelled", "notlabeled", "nolabel", "unannotated"}
UNLABELLED |= {"void", "unclassified", "unknown", "undefined", "ignore", "ignored", "nodata"}
PERHAPS = UNLABELLED | {"background", "bg", "other", "others", "rest"}  # often classes, too
VOID = {"void", "unlabelled", "unlabeled", "ignore", "ignored", "unknown"}  # of annotations: never
MOST = 255  # classes, since that value means unlabelled
_NUMBERED = re.compile(r"(\d{1,4})\s*[\s:;,.)=-]\s*\S.*")


def read_class_names(path: Path) -> list[str]:
    """Read a file of class names, one a line; UserError where lines hold more than names."""
    return plain_names(read_lines(path), shown(path))


def plain_names(lines: list[str], place: str) -> list[str]:
    """Return lines that are names; UserError where commas, a comment or numbers are there too."""
    if len(lines) == 1 and "," in lines[0]:
        raise UserError(place, "one line with commas", "write one name a line")
    marked = sum(line.startswith("#") for line in lines)
    if 0 < marked < len(lines) and lines[0].startswith("#"):  # every name would be off by one
        remedy = "write the names alone, one a line"
        raise UserError(place, "begins with a comment", remedy, repr(lines[0]))
    matches = [_NUMBERED.fullmatch(line) for line in lines]
    numbers = [int(match[1]) for match in matches if match]
    if len(lines) > 1 and numbers in (list(range(len(lines))), list(range(1, len(lines) + 1))):
        # the first line is 0: numbers from 1 on would put every name off by one
        first = ", and 'unlabelled' before them where 0 is no class" if numbers[0] else ""
        remedy = f"write the names alone, one a line{first}"
        raise UserError(place, "numbers stand before the names", remedy, repr(lines[0]))
    return lines


def means_unlabelled(name: str, *, perhaps: bool = False) -> bool:
    """Whether a name says that its pixels have no class; perhaps: or may say so.

    >>> means_unlabelled("Not labelled"), means_unlabelled("background")
    (True, False)
    """
    return _plain(name) in (PERHAPS if perhaps else UNLABELLED)


def is_void(name: str) -> bool:
    """Whether what has this name is unlabelled, in formats that name what is.

    >>> is_void("_Ignore_"), is_void("background")
    (True, False)
    """
    return name.strip("_ ").lower() in VOID


def require_fewer(names: Sized, place: str) -> None:
    """Raise a UserError if there are more classes than labels of 8 bits can tell apart."""
    if len(names) > MOST:
        raise UserError(place, f"{len(names)} classes", f"{MOST} are the most")


def match_classes(theirs: Sequence[str], own: Sequence[str]) -> list[int | None]:
    """For each of their classes, the index of ours of the same name; None where there is none.

    Equal names come first; then case, spaces, hyphens and a plural make no difference, where that
    fits one class alone.

    >>> match_classes(["Trees", "traffic_light", "bus"], ["traffic light", "tree", "buses"])
    [1, 0, 2]
    """
    exact = {name: index for index, name in enumerate(own)}
    near: dict[str, list[int]] = {}
    for index, name in enumerate(own):
        near.setdefault(_singular(_plain(name)), []).append(index)
    found = [(exact.get(name), near.get(_singular(_plain(name)), [])) for name in theirs]
    return [
        index if index is not None else alike[0] if len(alike) == 1 else None
        for index, alike in found
    ]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _singular(word: str) -> str:
    if re.search("(s|x|z|ch|sh)es$", word):
        return word[:-2]
    return word[:-1] if re.search("[^sui]s$", word) else word
