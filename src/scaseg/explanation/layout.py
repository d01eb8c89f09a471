"""One large panel and many small ones on a page, with little left empty."""

from __future__ import annotations

from math import log
from typing import NamedTuple


class Layout(NamedTuple):
    """A page of rows x columns cells; the large panel takes span x span, at the top left."""

    rows: int
    columns: int
    span: int

    def cells(self, count: int) -> list[tuple[int, int]]:
        """The places (row, column) of the small panels, row by row around the large one."""
        free = [
            (row, column)
            for row in range(self.rows)
            for column in range(self.columns)
            if row >= self.span or column >= self.span
        ]
        return free[:count]


def choose_layout(count: int, shape: float, *, page: float = 1.6) -> Layout:
    """Arrange `count` small panels and a large one, all of width / height `shape`.

    Looked for: a page near `page` in shape, no empty cells, a large panel that takes a third of the
    width, and few columns. What each is worth was chosen by looking at pages of 1 to 12.
    """

    def badness(layout: Layout) -> float:
        ratio = layout.columns * shape / layout.rows / page
        cells = layout.rows * layout.columns
        empty = (cells - layout.span**2 - count) / cells
        narrow = max(0.0, 0.35 - layout.span / layout.columns)
        tall = max(0.0, -log(ratio * page))  # screens are wide
        return abs(log(ratio)) + tall + 6 * empty + 3 * narrow + 0.06 * layout.columns

    found = []
    for span in (1, 2, 3):
        for columns in range(1, count + 2 * span):
            rows = max(span, -(-(count + span**2) // columns))
            if columns >= span and rows * columns >= count + span**2:
                found.append(Layout(rows, columns, span))
    return min(found, key=badness)
