"""Marked places in pages: what stands between the marks is made, what stands around is written.

<!-- begin NAME ARGUMENT ARGUMENT -->
<!-- end NAME -->
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from making.studies import Study
from scaseg.errors import UserError

PLACE = re.compile(
    r"<!-- begin (?P<name>[\w-]+)(?P<words>[^\n]*?) -->\n(?P<inside>.*?)<!-- end (?P=name) -->",
    re.S,
)
MARK = re.compile(r"<!-- (?:begin|end) ")
NOT_YET = "*Not measured yet.*"


@dataclass(frozen=True)
class Page:
    """Where a text will stand, and all that it can be made of."""

    path: Path
    root: Path  # of the repository
    studies: Mapping[str, Study]

    def link(self, target: Path) -> str:
        """The way to a file from this page."""
        return Path(os.path.relpath(target, self.path.parent)).as_posix()


Make = Callable[..., str]
MAKERS: dict[str, Make] = {}


def maker(name: str) -> Callable[[Make], Make]:
    """Register what makes the text of a mark: a function of the page and the mark's arguments."""

    def register(make: Make) -> Make:
        MAKERS[name] = make
        return make

    return register


def of_study(make: Make) -> Make:
    """Let a function take the study that a mark names first; without it nothing was measured."""

    def find(page: Page, study: str, *words: str) -> str:
        return make(page, page.studies[study], *words) if study in page.studies else NOT_YET

    return find


def filled(text: str, page: Page) -> str:
    """Fill the marked places of a page; UserError names a mark that nobody can fill."""
    where = page.path.relative_to(page.root)

    def fill(found: re.Match[str]) -> str:
        name, words = found["name"], found["words"]
        if name not in MAKERS:
            raise UserError(where, f"the mark {name!r}", f"give one of {', '.join(MAKERS)}")
        try:
            inside = MAKERS[name](page, *words.split()).strip()
        except TypeError as error:  # too few or too many arguments
            raise UserError(where, f"the mark {(name + words)!r}", "fix it", str(error)) from error
        return f"<!-- begin {name}{words} -->\n\n{inside}\n\n<!-- end {name} -->"

    if MARK.search(PLACE.sub("", text)):
        raise UserError(where, "a mark without its other end", "give begin and end of one name")
    return PLACE.sub(fill, text)
