"""Drawing a picture and its labels in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

FINE = 3  # pixels of the drawing to one of the picture, each way: soft edges

Color = tuple[int, int, int]
Point = tuple[float, float]  # x, y in pixels of the picture
Pen = ImageDraw.ImageDraw


class Scene(NamedTuple):
    """A picture (H, W, 3) and the class of each pixel (H, W)."""

    image: NDArray[np.uint8]
    labels: NDArray[np.int32]


class Canvas:
    """A picture and the class of each pixel, drawn shape by shape, FINE times as large."""

    def __init__(self, background: NDArray[np.uint8], label: int) -> None:
        self.height, self.width = background.shape[:2]
        size = (self.width * FINE, self.height * FINE)
        self.picture = Image.fromarray(background).resize(size, Image.Resampling.NEAREST)
        self.labels = Image.new("L", size, label)

    def polygon(self, points: Sequence[Point], color: Color, label: int) -> None:
        """Fill a polygon."""
        corners = [(x * FINE, y * FINE) for x, y in points]
        ImageDraw.Draw(self.picture).polygon(corners, fill=color)
        ImageDraw.Draw(self.labels).polygon(corners, fill=label)

    def disc(self, x: float, y: float, radius: float, color: Color, label: int) -> None:
        """Fill a disc."""
        box = [(x - radius) * FINE, (y - radius) * FINE, (x + radius) * FINE, (y + radius) * FINE]
        ImageDraw.Draw(self.picture).ellipse(box, fill=color)
        ImageDraw.Draw(self.labels).ellipse(box, fill=label)

    def paint(self, x: int, y: int, colors: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        """Put fine pixels (h, w, 3) with their classes (h, w) at the picture's (x, y)."""
        self.picture.paste(Image.fromarray(colors), (x * FINE, y * FINE))
        self.labels.paste(Image.fromarray(labels), (x * FINE, y * FINE))

    def stamp(
        self,
        x: float,
        y: float,
        size: float,
        draw: Callable[[Pen, float], None],
        *,
        opacity: float = 1.0,
        label: int,
    ) -> None:
        """Draw something within a square, top left at (x, y), as faint as opacity says.

        draw(pen, unit) draws it in a square of ten units; its shape gets the label.
        """
        side = round(size * FINE)
        layer = Image.new("RGBA", (side, side), (0, 0, 0, 0))
        draw(ImageDraw.Draw(layer), side / 10)
        shape, place = layer.getchannel("A"), (round(x * FINE), round(y * FINE))
        faint = shape.point([round(alpha * opacity) for alpha in range(256)])
        self.picture.paste(layer.convert("RGB"), place, faint)
        self.labels.paste(label, place, shape)

    def finish(self, texture: NDArray[np.float64]) -> Scene:
        """Average the fine pixels, make them lighter or darker by a texture (H, W)."""
        picture = self.picture.resize((self.width, self.height), Image.Resampling.BOX)
        image = (np.asarray(picture) + texture[..., None]).round().clip(0, 255).astype(np.uint8)
        middle = FINE // 2
        labels = np.asarray(self.labels)[middle::FINE, middle::FINE].astype(np.int32)
        return Scene(image, labels)


def blend(first: Color, second: Color, share: float) -> Color:
    """Mix two colours; share 1 is the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def gradient(height: int, width: int, top: Color, bottom: Color) -> NDArray[np.uint8]:
    """A picture (H, W, 3) that goes over from one colour to another."""
    share = np.linspace(0, 1, height)[:, None, None]
    column = np.array(top) * (1 - share) + np.array(bottom) * share
    return np.broadcast_to(column, (height, width, 3)).round().astype(np.uint8)


def ripples(height: int, width: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Soft waves and grain (H, W) of about one unit: sand, paper."""
    y, x = np.ogrid[:height, :width]
    total = np.zeros((height, width))
    for _ in range(4):
        length, slope = random.uniform(4, 14), random.uniform(-0.5, 0.5)
        total += np.sin((y + slope * x) * 2 * np.pi / length + random.uniform(0, 2 * np.pi))
    return total / 2 + random.standard_normal((height, width))
