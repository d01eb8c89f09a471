"""The flavour `selective`: a look-up table. A map of fields in patterns, and its legend.

Each field's pattern is a tag, a ground colour with dots of another colour, that has no meaning by
itself: the one sign of the legend with the same tag tells the crop. Tags and crops are paired
anew in every image, and some signs have tags that no field has.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from scaseg.data.sample import Sample
from scaseg.data.scenes.canvas import FINE, Canvas, Color, Pen, gradient, ripples

CROPS = ("wheat", "vines", "forest", "lake")
CLASSES = ("paper", *(f"{crop} sign" for crop in CROPS), *CROPS)
PALETTE = (
    (238, 232, 216),
    *((150, 110, 20), (90, 30, 90), (16, 70, 34), (24, 70, 130)),
    *((236, 196, 70), (150, 70, 150), (46, 125, 70), (70, 140, 210)),
)
PAPER, FIRST_SIGN, FIRST_CROP = 0, 1, 5
Ids = NDArray[np.int64]

GROUNDS = (
    *((236, 170, 160), (240, 214, 140), (176, 214, 150)),
    *((150, 210, 214), (170, 180, 232), (222, 170, 216)),
)
DOTS = (
    *((170, 40, 40), (190, 120, 0), (40, 120, 40)),
    *((0, 110, 140), (60, 50, 160), (20, 20, 20)),
)
TAGS = len(GROUNDS) * len(DOTS)  # 36, with 4 crops each: 144 facts that a legend may state

FIELDS = (4, 6)
MORE_SIGNS = (0, 2)  # for tags that no field has
SIGN = 18  # pixels of a sign, each way: within what a neuron of the backbone sees, or nearly
LEGEND, EDGE = 44, 3  # width of the legend, and of the paper's edge around the fields
PITCH, DOT, INK = 6, 1.6, (90, 84, 70)  # distance and radius of dots, colour of lines


def draw(random: Generator, height: int, width: int) -> Sample:
    """Draw one map and its labels."""
    canvas = Canvas(gradient(height, width, (246, 242, 228), (236, 230, 212)), PAPER)
    fields = int(random.integers(FIELDS[0], FIELDS[1] + 1))
    signs = fields + int(random.integers(MORE_SIGNS[0], MORE_SIGNS[1] + 1))
    tags, crops = random.permutation(TAGS)[:signs], random.integers(len(CROPS), size=signs)
    on_the_left = bool(random.integers(2))
    _fields(canvas, tags[:fields], crops, LEGEND if on_the_left else EDGE, random)
    _legend(canvas, tags, crops, 2 if on_the_left else width - LEGEND + 2, random)
    return canvas.finish(2 * ripples(height, width, random))


def _fields(canvas: Canvas, tags: Ids, crops: Ids, left: int, random: Generator) -> None:
    """Divide the land among the fields: each pixel belongs to the nearest centre."""
    height = (canvas.height - 2 * EDGE) * FINE
    width = (canvas.width - LEGEND - EDGE) * FINE
    columns, rows = 2, -(-len(tags) // 2)
    cells = random.permutation(columns * rows)[: len(tags)]
    middles = np.stack([cells // columns, cells % columns], 1)
    cell = height / rows, width / columns
    middles = (middles + random.uniform(0.25, 0.75, (len(tags), 2))) * cell
    y, x = np.ogrid[:height, :width]
    bent_y = (y + 6 * FINE * np.sin(x / (9 * FINE) + random.uniform(0, 6))).astype(np.float32)
    bent_x = (x + 6 * FINE * np.sin(y / (11 * FINE))).astype(np.float32)
    away = [(bent_y - my) ** 2 + (bent_x - mx) ** 2 for my, mx in middles.astype(np.float32)]
    owner = np.argmin(away, 0)  # (h, w): which field
    ground, dot = np.array(GROUNDS, np.uint8), np.array(DOTS, np.uint8)
    colors = ground[tags // len(DOTS)][owner]
    dotted = _dots(height, width)
    colors[dotted] = dot[tags % len(DOTS)][owner[dotted]]
    colors[:-1][owner[1:] != owner[:-1]] = INK
    colors[:, :-1][owner[:, 1:] != owner[:, :-1]] = INK
    labels = (FIRST_CROP + crops).astype(np.uint8)[owner]
    canvas.paint(left, EDGE, colors, labels)


@cache
def _dots(height: int, width: int) -> NDArray[np.bool_]:
    """Mask (h, w) of a pattern's dots: in rows, every second row moved by half."""
    step = PITCH * FINE
    y, x = np.ogrid[:height, :width]
    dx = (x + y // step % 2 * (step // 2)) % step - step // 2
    return dx**2 + (y % step - step // 2) ** 2 <= (DOT * FINE) ** 2


def _legend(canvas: Canvas, tags: Ids, crops: Ids, left: int, random: Generator) -> None:
    """Draw the signs in two columns, in random order, some places left empty."""
    rows = canvas.height // (SIGN + 2)
    places = random.permutation(2 * rows)[: len(tags)]
    for tag, crop, place in zip(tags.tolist(), crops.tolist(), places.tolist(), strict=True):
        x = left + place % 2 * (SIGN + 3) + random.uniform(0, 2)
        y = 1 + place // 2 * (canvas.height - 2) / rows + random.uniform(0, 2)
        canvas.stamp(x, y, SIGN, partial(_sign, tag=tag, crop=crop), label=FIRST_SIGN + crop)


def _sign(pen: Pen, u: float, *, tag: int, crop: int) -> None:
    """Draw the tag's pattern all around, the crop's picture in the middle."""
    pen.rectangle([0, 0, 10 * u, 10 * u], GROUNDS[tag // len(DOTS)], outline=INK)
    step, radius = 10 * u * PITCH / SIGN, 10 * u * DOT / SIGN
    for row, column in np.ndindex(3, 3):
        x, y = (column + 0.5) * step, (row + 0.5) * step
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], DOTS[tag % len(DOTS)])
    pen.rectangle([2.8 * u, 2.8 * u, 7.2 * u, 7.2 * u], PALETTE[FIRST_CROP + crop])
    PICTURES[crop](pen, u)


WHITE: Color = (255, 255, 255)


def _wheat(pen: Pen, u: float) -> None:
    for foot, head in ((4, 3.5), (5, 5), (6, 6.5)):
        pen.line([(foot * u, 6.8 * u), (head * u, 3.2 * u)], WHITE, width=round(0.7 * u))


def _vines(pen: Pen, u: float) -> None:
    for x, y in ((3.9, 4.1), (5, 4.1), (6.1, 4.1), (4.4, 5.1), (5.6, 5.1), (5, 6.1)):
        pen.ellipse([(x - 0.6) * u, (y - 0.6) * u, (x + 0.6) * u, (y + 0.6) * u], WHITE)


def _forest(pen: Pen, u: float) -> None:
    pen.polygon([(5 * u, 3.1 * u), (3.4 * u, 6 * u), (6.6 * u, 6 * u)], WHITE)
    pen.rectangle([4.7 * u, 6 * u, 5.3 * u, 6.9 * u], WHITE)


def _lake(pen: Pen, u: float) -> None:
    for y in (4, 5.2, 6.4):
        wave = [(3.2, y), (4.4, y - 0.5), (5.6, y), (6.8, y - 0.5)]
        pen.line([(x * u, h * u) for x, h in wave], WHITE, width=round(0.6 * u))


PICTURES = (_wheat, _vines, _forest, _lake)
