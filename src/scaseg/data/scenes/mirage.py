"""The flavour `global`: one object decides the class of the ground in the whole image.

After the paper's example: sand is desert, beach, oasis or camp, and nothing about the sand tells
which. Things of all four kinds stand on it. All but one are mirages, paler than the real one, and
the real one tells what the sand is. How pale the real one is differs from image to image.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from PIL import ImageDraw

from scaseg.data.sample import Sample
from scaseg.data.scenes.canvas import FINE, Canvas, Color, Pen, gradient, ripples

THINGS = ("cactus", "boat", "palm", "tent")
GROUNDS = ("desert", "beach", "oasis", "camp")  # what sand is where the real thing is that one
CLASSES = ("sky", "hills", *THINGS, *GROUNDS)
PALETTE = (
    *((126, 178, 221), (140, 120, 160)),
    *((30, 90, 50), (60, 110, 190), (16, 130, 96), (120, 40, 30)),
    *((226, 148, 58), (250, 222, 120), (66, 160, 100), (196, 78, 82)),
)
SKY, HILLS, FIRST_THING, FIRST_GROUND = 0, 1, 2, 6

FAINTEST = 0.4  # opacity of the real thing: from here to 1
MIRAGE = (0.35, 0.8)  # opacity of a mirage, in shares of the real thing's
MIRAGES = (8, 12)
SIZE = 15  # of a thing, in pixels

# by the hour: sky above, sky at the horizon, far hills, near hills, sand
HOURS: tuple[tuple[Color, ...], ...] = (
    ((88, 154, 214), (206, 228, 240), (150, 160, 196), (124, 132, 160), (232, 208, 160)),
    ((244, 150, 96), (252, 214, 160), (176, 116, 132), (140, 92, 112), (236, 196, 148)),
    ((120, 108, 172), (240, 180, 176), (128, 104, 150), (100, 84, 128), (216, 184, 160)),
    ((140, 192, 206), (236, 240, 220), (160, 176, 168), (124, 148, 140), (240, 222, 178)),
)


def draw(random: Generator, height: int, width: int) -> Sample:
    """Draw one scene and its labels."""
    hour = HOURS[random.integers(len(HOURS))]
    kind = int(random.integers(len(THINGS)))
    horizon = round(height * random.uniform(0.28, 0.42))
    canvas = Canvas(gradient(height, width, hour[0], hour[1]), SKY)
    x, y = random.uniform(0.1, 0.9) * width, random.uniform(0.25, 0.8) * horizon
    sun = tuple(round(a + (b - a) * 0.8) for a, b in zip(hour[1], (255, 255, 236), strict=True))
    radius = height * 0.06
    box = [(x - radius) * FINE, (y - radius) * FINE, (x + radius) * FINE, (y + radius) * FINE]
    ImageDraw.Draw(canvas.picture).ellipse(box, fill=sun)
    for color, rise in ((hour[2], 0.22), (hour[3], 0.12)):
        _hills(canvas, horizon, rise * height, color, random)
    tint = random.integers(-10, 11, 3)
    red, green, blue = np.clip(np.add(hour[4], tint), 0, 255).tolist()
    ground = [(0, horizon), (width, horizon), (width, height), (0, height)]
    canvas.polygon(ground, (red, green, blue), FIRST_GROUND + kind)
    _things(canvas, kind, horizon, random)
    texture = 4 * ripples(height, width, random)
    texture[:horizon] = 0
    return canvas.finish(texture)


def _hills(canvas: Canvas, horizon: int, rise: float, color: Color, random: Generator) -> None:
    places = np.linspace(-0.1, 1.1, 7) * canvas.width
    crest = [(float(x), horizon - rise * random.uniform(0.15, 1)) for x in places]
    foot = [(canvas.width * 1.1, horizon + 1), (-canvas.width * 0.1, horizon + 1)]
    canvas.polygon([*crest, *foot], color, HILLS)


def _things(canvas: Canvas, kind: int, horizon: int, random: Generator) -> None:
    """Draw the real thing and the mirages, not overlapping, from far to near."""
    count = int(random.integers(MIRAGES[0], MIRAGES[1] + 1)) + 1
    feet: list[tuple[float, float]] = []
    for _ in range(200):
        if len(feet) == count:
            break
        x, y = random.uniform(8, canvas.width - 8), random.uniform(horizon + 15, canvas.height - 1)
        if all(abs(x - a) > 15 or abs(y - b) > 17 for a, b in feet):
            feet.append((x, y))
    clear = random.uniform(FAINTEST, 1)
    for index, (x, y) in sorted(enumerate(feet), key=lambda item: item[1][1]):
        real = index == 0
        which = kind if real else int(random.integers(len(THINGS)))
        size = SIZE * random.uniform(0.9, 1.1)
        opacity = clear if real else clear * random.uniform(*MIRAGE)
        left, top = x - size / 2, y - size
        canvas.stamp(left, top, size, STENCILS[which], opacity=opacity, label=FIRST_THING + which)


def _cactus(pen: Pen, u: float) -> None:
    green = (38, 120, 62)
    pen.rounded_rectangle([4 * u, 0, 6 * u, 10 * u], u, fill=green)
    for near, far, low in ((5, 1.6, 6.5), (5, 8.4, 5.5)):
        left, right = sorted((near * u, far * u))
        pen.rectangle([left, (low - 1.5) * u, right, low * u], fill=green)
        left, right = (far - 0.6) * u, (far + 0.8) * u
        pen.rounded_rectangle([left, (low - 4) * u, right, low * u], 0.8 * u, fill=green)


def _boat(pen: Pen, u: float) -> None:
    pen.polygon([(0, 7 * u), (10 * u, 7 * u), (8 * u, 10 * u), (2 * u, 10 * u)], (150, 48, 40))
    pen.polygon([(4.7 * u, 0), (4.7 * u, 6.4 * u), (9.2 * u, 6.4 * u)], (252, 252, 255))
    pen.polygon([(4 * u, u), (4 * u, 6.4 * u), (u, 6.4 * u)], (60, 110, 190))


def _palm(pen: Pen, u: float) -> None:
    trunk = [(4.3 * u, 10 * u), (5.7 * u, 10 * u), (6 * u, 3 * u), (5.2 * u, 3 * u)]
    pen.polygon(trunk, (120, 78, 40))
    for x, y in ((0.8, 2.4), (2.2, 0.3), (6, 0), (8.8, 0.8), (9.6, 3.4), (1.6, 4.6)):
        pen.line([(5.5 * u, 2.9 * u), (x * u, y * u)], (36, 150, 60), width=round(1.5 * u))


def _tent(pen: Pen, u: float) -> None:
    pen.polygon([(0, 10 * u), (5 * u, 2 * u), (10 * u, 10 * u)], (222, 112, 34))
    pen.polygon([(3.4 * u, 10 * u), (5 * u, 5 * u), (6.6 * u, 10 * u)], (86, 40, 30))
    pen.line([(5 * u, 2 * u), (5 * u, 0)], (86, 40, 30), width=max(1, round(0.5 * u)))


STENCILS = (_cactus, _boat, _palm, _tent)
