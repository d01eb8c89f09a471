"""Whether maps of several neurons are nearly one and the same, as a single channel makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scaseg.explanation.maps import DependencyMaps

Row = NDArray[np.float64]

# Of context that would have to move from one source to another: on photographs, maps that are 0.07
# apart cannot be told apart by eye, on scenes such as are 0.3 apart can.
NEARLY = 0.1
# Of how far the maps are from even: a figure's scale shows that much, however little it is, so
# that even maps with a pattern each look different.
OF_PATTERN = 0.25
ROUNDING = 1e-4


def nearly_the_same(maps: NDArray[np.floating], own: Sequence[int]) -> bool:
    """Whether some maps (P, n) hardly differ; `own` (P) are the entries left out, -1: none."""
    rows = [row.astype(np.float64) for row in maps]
    pattern = max(
        _apart(row, np.ones_like(row), (place,)) for row, place in zip(rows, own, strict=True)
    )
    most = max(ROUNDING, min(NEARLY, OF_PATTERN * pattern))
    return all(
        _apart(rows[a], rows[b], (own[a], own[b])) <= most
        for a in range(len(rows))
        for b in range(a)
    )


def likeness(maps: DependencyMaps) -> str:
    """Say in a few words where maps show one thing only; else nothing."""
    if len(maps) == 1:
        return "all neurons here have nearly this map" if maps.is_everybodys else ""
    columns = maps.maps.shape[2]
    own = [row * columns + column if row >= 0 else -1 for row, column in maps.neurons.tolist()]
    alike = nearly_the_same(maps.maps.reshape(len(maps), -1), own)
    return "these maps are nearly one and the same" if alike else ""


def _apart(one: Row, other: Row, left_out: Sequence[int]) -> float:
    """Half the sum of |differences| of two maps, each of sum 1 over the entries that count."""
    counts = np.ones(one.shape, bool)
    counts[[place for place in left_out if place >= 0]] = False
    first, second = (row[counts] / (np.abs(row[counts]).sum() or 1) for row in (one, other))
    return float(np.abs(first - second).sum() / 2)
