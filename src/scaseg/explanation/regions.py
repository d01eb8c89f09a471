"""Connected regions of a picture, without another library: the largest, and its inmost pixel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


def largest_region(mask: Mask) -> Mask:
    """Keep the largest connected part of a mask (H, W); pixels touch by their sides.

    By runs: stretches of a row without a gap, joined where they touch one of the row above.
    """
    height = len(mask)
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)  # exclusive, in the same order
    parent = list(range(len(rows)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    first = np.searchsorted(rows, np.arange(height + 1)).tolist()  # the first run of each row
    begin, end = starts.tolist(), ends.tolist()
    for row in range(1, height):
        above, run = first[row - 1], first[row]
        while above < first[row] and run < first[row + 1]:
            if begin[above] < end[run] and begin[run] < end[above]:
                parent[root(run)] = root(above)
            if end[above] < end[run]:
                above += 1
            else:
                run += 1
    found = np.zeros(mask.shape, bool)
    if not parent:
        return found
    roots = np.array([root(run) for run in range(len(parent))])
    sizes = np.bincount(roots, weights=ends - starts)
    for run in np.nonzero(roots == sizes.argmax())[0]:
        found[rows[run], begin[run] : end[run]] = True
    return found


def inmost_pixel(region: Mask) -> tuple[int, int]:
    """The pixel (x, y) of a region that is farthest from all that is not in it.

    By peeling, in turn from four sides and from eight, which is round enough; the picture's edge
    counts as outside. Of several, the one nearest to their middle.
    """
    rows, columns = np.nonzero(region)
    if not len(rows):
        raise ValueError("region: empty; give one with a pixel at least")
    top, left = rows.min(), columns.min()
    left_over = np.pad(region[top : rows.max() + 1, left : columns.max() + 1], 1)
    eight = False
    while True:
        peeled = left_over.copy()
        peeled[1:] &= left_over[:-1]
        peeled[:-1] &= left_over[1:]
        across = peeled.copy() if eight else left_over
        kept = peeled.copy()
        kept[:, 1:] &= across[:, :-1]
        kept[:, :-1] &= across[:, 1:]
        if not kept.any():
            break
        left_over, eight = kept, not eight
    places = np.argwhere(left_over)
    row, column = places[np.abs(places - places.mean(0)).sum(1).argmin()]
    return int(column - 1 + left), int(row - 1 + top)
