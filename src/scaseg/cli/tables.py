"""Markdown as a terminal shows it: columns side by side, as many as fit."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby, zip_longest

from rich.cells import cell_len

Table = list[list[str]]


class _Names(textwrap.TextWrapper):
    """Breaks lines between words, and between the options of a variant."""

    wordsep_re = re.compile(r"(\s+)|(?<=:)")

    def __init__(self, width: int) -> None:
        super().__init__(width, break_long_words=False)


def print_markdown(text: str) -> None:
    """Print Markdown for a person at a terminal; into a file or a pipe, as it is."""
    if sys.stdout.isatty():
        text = fit_terminal(text, shutil.get_terminal_size().columns)
    sys.stdout.write(text)


def fit_terminal(text: str, width: int) -> str:
    r"""Align the tables of a Markdown text, and break its paragraphs, at a width.

    A table that is too wide goes on below, its first column repeated.

    >>> text = "| context | mIoU | runs |\n|---|---|---|\n| none | 48.3 | 3 |\n\nOf seeds.\n"
    >>> print(fit_terminal(text, 16), end="")
    context  mIoU
    none     48.3
    <BLANKLINE>
    context  runs
    none     3
    <BLANKLINE>
    Of seeds.
    """
    parts = []
    for is_table, lines in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if is_table:
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            table = [row for row in rows if set("".join(row)) != {"-"}]
            parts.append("\n\n".join(map(_aligned, _stretches(table, width))))
        else:
            parts.append("\n".join(textwrap.fill(line, width) for line in lines))
    return "\n".join([*parts, ""])


def _stretches(table: Table, width: int) -> list[Table]:
    """Cut a table into tables that fit, at least one column beside the first in each."""
    if _width_of(zip(*table, strict=True)) > width:
        table = _broken(table, max(16, width // 3))
    first, *others = zip(*table, strict=True)
    cut: list[list[Sequence[str]]] = [] if others else [[]]
    for column in others:
        if not cut or _width_of([first, *cut[-1], column]) > width:
            cut.append([])
        cut[-1].append(column)
    return [list(map(list, zip(first, *columns, strict=True))) for columns in cut]


def _broken(table: Table, most: int) -> Table:
    """Break names into lines: of columns, to the width of what is below; of rows, to `most`."""
    first, *others = (max(12, _width(cells)) for _, *cells in zip(*table, strict=True))
    sizes = [min(first, most), *others]
    lines = [[_Names(size).wrap(name) for name, size in zip(table[0], sizes, strict=True)]]
    lines += [[_Names(most).wrap(name), *([one] for one in cells)] for name, *cells in table[1:]]
    return [list(line) for row in lines for line in zip_longest(*row, fillvalue="")]


def _aligned(table: Table) -> str:
    widths = list(map(_width, zip(*table, strict=True)))
    lines = ("  ".join(map(_padded, row, widths)).rstrip() for row in table)
    return "\n".join(filter(None, lines))


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))


def _width_of(columns: Iterable[Sequence[str]]) -> int:
    return sum(_width(column) + 2 for column in columns) - 2


def _width(column: Sequence[str]) -> int:
    return max(map(cell_len, column), default=0)  # in columns of the terminal
