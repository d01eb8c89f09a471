"""Draw the shapes of annotations: polygons, ellipses, lines and run-length codes become pixels.

A pixel of row r and column c covers [c, c + 1) x [r, r + 1), and is inside a shape if its centre,
(c + 0.5, r + 0.5), is: neighbours that share an edge share no pixel and leave none out. What an
outline encloses twice is outside (even-odd). Parts beyond the photograph are cut off. UserErrors
of this module have no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scaseg.data.decode.files import MAX_PIXELS, require_pixels
from scaseg.errors import UserError

Points = NDArray[np.float64]  # (n, 2): x and y

FARTHEST = 1e7  # of a coordinate: what lies beyond is damage
# Work that a file may ask for: a drawn outline crosses a row a few times, and shapes overlap by the
# dozen at most
MAX_CROSSINGS = 1 << 26
MAX_LAYERS = 1000
CHUNK = 1 << 20  # crossings that are held at a time


class Region(NamedTuple):
    """The pixels of a shape: `mask` lies at row `top` and column `left` of the photograph."""

    top: int
    left: int
    mask: NDArray[np.bool_]

    @property
    def area(self) -> int:
        """The number of pixels."""
        return int(self.mask.sum())


class Canvas:
    """A label map to paint on: `values` (H, W), all `fill` at first.

    limit: of pixels, as in read_image (None: MAX_PIXELS).
    """

    def __init__(self, height: int, width: int, fill: int, limit: int | None = None) -> None:
        if width < 1 or height < 1:
            raise UserError("", f"{width} x {height} pixels", "give the photograph's size")
        require_pixels(width, height, MAX_PIXELS if limit is None else limit)
        self.values = np.full((height, width), fill, np.int32)
        self.budget = MAX_LAYERS * self.values.size + CHUNK
        self._depths: NDArray[np.float64] | None = None  # of what lies on top of each pixel

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.values.shape
        return height, width

    def paint(self, region: Region, value: int, depth: float | None = None) -> None:
        """Give the pixels of a region this value.

        depth: only those where nothing less deep lies; None: all of them. So shapes need not be
        held to be sorted.
        """
        rows, columns = _overlap(region, self.size)
        self.budget -= region.mask.size
        if self.budget < 0:
            raise UserError("", f"shapes cover it more than {MAX_LAYERS} times", "leave some out")
        inside = region.mask[
            rows.start - region.top : rows.stop - region.top,
            columns.start - region.left : columns.stop - region.left,
        ]
        if depth is not None:
            if self._depths is None:
                self._depths = np.full(self.size, np.inf)
            depths = self._depths[rows, columns]
            inside = inside & (depth <= depths)
            depths[inside] = depth
        self.values[rows, columns][inside] = value


def to_points(values: Any, *, flat: bool = False) -> Points:
    """Turn [[x, y], ...], or flat [x, y, x, y, ...], into points; UserError if they are not."""
    try:
        points = np.asarray(values)
        points = points.reshape(-1, 2) if flat and points.ndim == 1 else points
    except ValueError:  # an odd number of values, lists of several lengths
        points = np.empty(0)
    if points.dtype.kind not in "iuf" or points.ndim != 2 or points.shape[1] != 2:
        raise UserError("", "not a list of points", "give pairs of numbers, x and y")
    points = points.astype(np.float64)
    if not (np.abs(points) <= FARTHEST).all():  # also what is not a number
        raise UserError("", "a point far out", f"coordinates are {FARTHEST:.0f} at most")
    return points


def polygon(points: Points, size: tuple[int, int]) -> Region:
    """Fill an outline, closed from its last point to its first. size: of the photograph, (H, W)."""
    top, left, bottom, right = _bounds(points, size)
    if top >= bottom or left >= right:
        return EMPTY
    starts, ends = points, np.roll(points, -1, axis=0)
    low, high = np.minimum(starts[:, 1], ends[:, 1]), np.maximum(starts[:, 1], ends[:, 1])
    # the rows whose centres an edge passes, its upper end included and its lower one not
    first = np.ceil(low - 0.5).clip(top, bottom).astype(np.int64)
    rows = np.ceil(high - 0.5).clip(top, bottom).astype(np.int64) - first
    total = np.cumsum(rows)
    if total[-1] > MAX_CROSSINGS:
        what = f"an outline that crosses rows {total[-1]} times"
        raise UserError("", what, f"at most {MAX_CROSSINGS} are taken, draw it with fewer points")
    width = right - left
    crossings = np.zeros((bottom - top, width + 1), np.uint8)
    for part in np.split(np.arange(len(rows)), _cuts(total)):
        edge = np.repeat(part, rows[part])
        row = np.arange(len(edge)) - np.repeat(np.cumsum(rows[part]) - rows[part], rows[part])
        row += first[edge]
        (x, y), (to_x, to_y) = starts[edge].T, ends[edge].T
        at = x + (row + 0.5 - y) * (to_x - x) / (to_y - y)
        column = (np.ceil(at - 0.5) - left).clip(0, width).astype(np.int64)
        np.add.at(crossings, (row - top, column), 1)  # 256 wraps to 0, which is as even
    inside = np.cumsum(crossings[:, :width], axis=1, dtype=np.uint8) & 1
    return Region(top, left, inside.astype(bool))


def box(corners: Points, size: tuple[int, int], rotation: float = 0.0) -> Region:
    """Fill the rectangle between two opposite corners, turned clockwise by degrees."""
    (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
    outline = np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    middle = corners.mean(axis=0)
    return polygon((outline - middle) @ _turn(rotation) + middle if rotation else outline, size)


def ellipse(
    center: Points, radii: tuple[float, float], size: tuple[int, int], rotation: float = 0.0
) -> Region:
    """Fill an ellipse with these radii along x and y, turned clockwise by degrees."""
    reach = max(radii)
    corners = np.array([center - reach, center + reach])
    top, left, bottom, right = _bounds(corners, size)
    if top >= bottom or left >= right or min(radii) <= 0:
        return EMPTY
    x, y = np.arange(left, right) + 0.5 - center[0], np.arange(top, bottom) + 0.5 - center[1]
    turn = _turn(rotation)
    along = x[None] * turn[0, 0] + y[:, None] * turn[0, 1]
    across = x[None] * turn[1, 0] + y[:, None] * turn[1, 1]
    return Region(top, left, (along / radii[0]) ** 2 + (across / radii[1]) ** 2 <= 1)


def stroke(points: Points, width: float, size: tuple[int, int]) -> Region:
    """Fill all that lies within half a width of a line through the points."""
    half, parts = width / 2, []
    for start, end in pairwise(points):
        along = end - start
        length = math.hypot(*along)
        if length:
            side = np.array([-along[1], along[0]]) * (half / length)
            corners = np.array([start + side, end + side, end - side, start - side])
            parts.append(polygon(corners, size))
    parts += [ellipse(point, (half, half), size) for point in points]
    return union(parts)


def runs(
    counts: Sequence[int] | NDArray[np.int64],
    height: int,
    width: int,
    order: Literal["rows", "columns"],
) -> Region:
    """Decode run lengths, of pixels outside and inside by turns, row by row or by columns."""
    try:
        lengths = np.asarray(counts)
        if lengths.size and (lengths.ndim != 1 or lengths.dtype.kind not in "iu"):
            raise ValueError
    except ValueError:
        raise UserError("", "run lengths that are no numbers", "give whole numbers") from None
    if (lengths < 0).any() or (lengths > height * width).any():
        raise UserError("", "a run length out of range", f"it has {height} x {width} pixels")
    total = int(lengths.sum(dtype=np.int64))
    if total != height * width:
        what = f"run lengths of {total} pixels"
        raise UserError("", what, f"{height} x {width} have {height * width}")
    inside = np.arange(len(lengths)) % 2 == 1
    flat = np.repeat(inside, lengths)
    mask = flat.reshape(width, height).T if order == "columns" else flat.reshape(height, width)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return EMPTY
    top, left = int(rows[0]), int(columns[0])
    return Region(top, left, mask[top : rows[-1] + 1, left : columns[-1] + 1])


def coco_counts(text: str) -> list[int]:
    """Decode COCO's compressed run lengths.

    Five bits a character from "0" on, the lowest first; the sixth says that more follow, and the
    fifth of the last is the sign. From the fourth number on, each is the difference to the number
    two before it.

    >>> coco_counts("52203")
    [5, 2, 2, 2, 5]
    """
    counts: list[int] = []
    value = shift = 0
    for sign in text:
        bits = ord(sign) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise UserError("", "damaged run lengths", "they are COCO's compressed form")
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            if bits & 16:
                value -= 1 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
            value = shift = 0
    if shift:
        raise UserError("", "run lengths that end too early", "they are COCO's compressed form")
    return counts


def union(regions: Sequence[Region]) -> Region:
    """Return the pixels of all regions as one."""
    regions = [region for region in regions if region.mask.size]
    if len(regions) < 2:
        return regions[0] if regions else EMPTY
    top, left = min(one.top for one in regions), min(one.left for one in regions)
    bottom = max(one.top + one.mask.shape[0] for one in regions)
    right = max(one.left + one.mask.shape[1] for one in regions)
    mask = np.zeros((bottom - top, right - left), bool)
    for one in regions:
        height, width = one.mask.shape
        part = mask[one.top - top :, one.left - left :][:height, :width]
        part |= one.mask
    return Region(top, left, mask)


def without(region: Region, hole: Region) -> Region:
    """Return the pixels of a region that are not in the hole."""
    rows, columns = _overlap(hole, region.mask.shape, region.top, region.left)
    mask = region.mask.copy()
    cut = hole.mask[
        rows.start + region.top - hole.top : rows.stop + region.top - hole.top,
        columns.start + region.left - hole.left : columns.stop + region.left - hole.left,
    ]
    mask[rows, columns] &= ~cut
    return region._replace(mask=mask)


EMPTY = Region(0, 0, np.zeros((0, 0), bool))


def _bounds(points: Points, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the first and the last row and column that points reach, within the photograph."""
    if not len(points):
        return 0, 0, 0, 0
    (left, top), (right, bottom) = np.floor(points.min(axis=0)), np.ceil(points.max(axis=0))
    height, width = size
    return max(int(top), 0), max(int(left), 0), min(int(bottom), height), min(int(right), width)


def _cuts(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where to split edges so that each part has about CHUNK crossings."""
    return np.unique(np.searchsorted(total, np.arange(CHUNK, total[-1], CHUNK), side="right"))


def _turn(degrees: float) -> Points:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, sin], [-sin, cos]])


def _overlap(
    region: Region, size: tuple[int, ...], top: int = 0, left: int = 0
) -> tuple[slice, slice]:
    """Return the rows and columns that a region covers of an array (H, W) at top, left."""
    rows, columns = (
        slice(min(max(at - start, 0), whole), min(max(at - start + length, 0), whole))
        for at, start, length, whole in zip(
            (region.top, region.left), (top, left), region.mask.shape, size, strict=True
        )
    )
    return rows, columns
