"""Shapes become the pixels whose centres they hold; run lengths are those of pycocotools."""

import json
from pathlib import Path

import numpy as np
import pytest

from scaseg.data.decode import shapes
from scaseg.data.decode.shapes import Canvas, Region

PYCOCOTOOLS = json.loads((Path(__file__).parent / "pycocotools.json").read_text())


def drawn(region, height, width):
    canvas = Canvas(height, width, 0)
    canvas.paint(region, 1)
    return canvas.values.tolist()


def pixels(packed, height, width):
    """A mask row by row, eight pixels a byte."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8))
    return bits[: height * width].reshape(height, width)


def is_inside(points, x, y):
    """Even-odd by definition: count the edges to the left, one after the other."""
    inside = False
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if min(y0, y1) <= y < max(y0, y1) and x >= x0 + (y - y0) * (x1 - x0) / (y1 - y0):
            inside = not inside
    return inside


@pytest.mark.parametrize("seed", range(8))
def test_a_polygon_is_the_pixels_whose_centres_are_inside(seed, monkeypatch):
    """Also where it leaves the photograph, crosses itself, and has more edges than a chunk."""
    random = np.random.default_rng(seed)
    points = random.uniform(-4, 16, (random.integers(3, 12), 2)).round(seed % 3)
    monkeypatch.setattr(shapes, "CHUNK", 7)
    expected = [[int(is_inside(points, c + 0.5, r + 0.5)) for c in range(11)] for r in range(9)]
    assert drawn(shapes.polygon(points, (9, 11)), 9, 11) == expected


def test_neighbours_share_their_edge_and_no_pixel():
    """On centres too, where rounding decides: each pixel belongs to one of the two."""
    size, total = (8, 8), np.zeros((8, 8), int)
    for left, right in ((0, 3.5), (3.5, 8)):
        for top, bottom in ((0, 2.5), (2.5, 8)):
            corners = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
            total += np.array(drawn(shapes.polygon(corners, size), *size))
    assert (total == 1).all()


@pytest.mark.parametrize("case", PYCOCOTOOLS["masks"], ids=lambda case: str(case["size"]))
def test_run_lengths_are_those_of_pycocotools(case):
    height, width = case["size"]
    counts = shapes.coco_counts(case["compressed"])
    assert counts == case["counts"]
    region = shapes.runs(counts, height, width, "columns")
    assert drawn(region, height, width) == pixels(case["rows"], height, width).tolist()


@pytest.mark.parametrize("number", range(len(PYCOCOTOOLS["polygons"])))
def test_polygons_are_those_of_pycocotools_but_for_pixels_on_the_outline(number):
    """It draws outlines five times enlarged; pixels may differ whose centres lie on one."""
    height, width = size = PYCOCOTOOLS["size"]
    case = PYCOCOTOOLS["polygons"][number]
    points = np.array(case["points"])
    ours = np.array(drawn(shapes.polygon(points, size), height, width))
    theirs = pixels(case["rows"], height, width)
    for row, column in np.argwhere(ours != theirs):
        centre = np.array([column + 0.5, row + 0.5])
        along = np.roll(points, -1, axis=0) - points
        share = ((centre - points) * along).sum(1) / np.maximum((along**2).sum(1), 1e-9)
        nearest = points + share.clip(0, 1)[:, None] * along
        assert np.hypot(*(nearest - centre).T).min() < 0.3
    assert (ours & theirs).sum() >= 0.95 * (ours | theirs).sum()


def test_row_by_row_and_damaged_run_lengths():
    assert drawn(shapes.runs([1, 2, 3], 2, 3, "rows"), 2, 3) == [[0, 1, 1], [0, 0, 0]]
    assert drawn(shapes.runs([6], 2, 3, "rows"), 2, 3) == [[0] * 3] * 2
    for counts, said in (
        ([1, 2], "run lengths of 3 pixels; 2 x 3 have 6"),
        ([9, -3], "a run length out of range"),
        ([2**62, 2**62], "a run length out of range"),
        ([1.5, 4.5], "run lengths that are no numbers"),
        (["6"], "run lengths that are no numbers"),
        ([[6], [1, 2]], "run lengths that are no numbers"),
    ):
        with pytest.raises(ValueError, match=said):
            shapes.runs(counts, 2, 3, "rows")
    for text, said in (("5é", "damaged"), ("o" * 40, "damaged"), ("5o", "end too early")):
        with pytest.raises(ValueError, match=said):
            shapes.coco_counts(text)


def test_ellipses_boxes_lines_and_holes():
    circle = shapes.ellipse(np.array([2.0, 2.0]), (1.2, 1.2), (4, 5))
    assert drawn(circle, 4, 5) == [[0] * 5, [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0] * 5]
    upright = shapes.box(np.array([[1.0, 2], [4, 3]]), (6, 5), rotation=90)
    assert np.argwhere(drawn(upright, 6, 5)).tolist() == [[1, 2], [2, 2], [3, 2]]
    turned = shapes.ellipse(np.array([2.5, 2.5]), (2.5, 0.6), (5, 5), rotation=90)
    assert np.argwhere(drawn(turned, 5, 5)).tolist() == [[row, 2] for row in range(5)]
    line = shapes.stroke(np.array([[0.5, 1.5], [3.5, 1.5]]), 1, (3, 4))
    assert drawn(line, 3, 4) == [[0] * 4, [1] * 4, [0] * 4]
    square = shapes.box(np.array([[0.0, 0], [3, 3]]), (4, 4))
    hole = shapes.box(np.array([[1.0, 1], [4, 2]]), (4, 4))
    assert drawn(shapes.without(square, hole), 4, 4)[1] == [1, 0, 0, 0]
    both = shapes.union([square, hole, shapes.EMPTY])
    assert drawn(both, 4, 4)[1] == [1, 1, 1, 1]


@pytest.mark.parametrize(("top", "left"), [(-1, 2), (1, -1), (9, 0), (0, -9), (-9, 9)])
def test_what_lies_outside_is_cut_off(top, left):
    big = np.zeros((24, 24), int)
    big[10 + top : 13 + top, 10 + left : 12 + left] = 1
    assert drawn(Region(top, left, np.ones((3, 2), bool)), 4, 4) == big[10:14, 10:14].tolist()


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([1, 2, 3], "not a list of points"),
        ([[1, 2], [3]], "not a list of points"),
        ([["1", "2"]], "not a list of points"),
        ([[True, False]], "not a list of points"),
        (None, "not a list of points"),
        ([[1, 2, 3]], "not a list of points"),
        ([[10**400, 1]], "not a list of points"),
        ([[float("nan"), 1]], "a point far out"),
        ([[1e300, 1]], "a point far out"),
    ],
)
def test_points_that_are_none(points, said):
    with pytest.raises(ValueError, match=said):
        shapes.to_points(points)


def test_what_is_less_deep_stays_on_top():
    """In any order; of the same depth the later."""
    canvas = Canvas(1, 4, 0)
    for left, right, value, depth in ((0, 2, 1, 2), (0, 4, 2, 4), (1, 3, 3, 2), (2, 4, 4, 5)):
        canvas.paint(Region(0, left, np.ones((1, right - left), bool)), value, depth)
    assert canvas.values.tolist() == [[1, 3, 3, 2]]


def test_work_is_bounded(monkeypatch):
    monkeypatch.setattr(shapes, "MAX_CROSSINGS", 1000)
    zigzag = np.array([[0, 0], [1, 100]] * 10, float)
    with pytest.raises(ValueError, match="an outline that crosses rows 2000 times; at most 1000"):
        shapes.polygon(zigzag, (100, 100))
    with pytest.raises(ValueError, match=r"100000 x 100000 pixels; at most"):
        Canvas(100_000, 100_000, 0)
    canvas = Canvas(2, 2, 0)
    canvas.budget = 8
    everything = Region(0, 0, np.ones((2, 2), bool))
    canvas.paint(everything, 1)
    canvas.paint(everything, 2)
    with pytest.raises(ValueError, match="shapes cover it more than 1000 times"):
        canvas.paint(everything, 3)
