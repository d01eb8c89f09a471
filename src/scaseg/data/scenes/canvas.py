"""A canvas that draws an image and its labels together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from scaseg.data.sample import Sample

FINE = 3  # supersampling, each way: soft edges

Color = tuple[int, int, int]
Point = tuple[float, float]  # x, y in pixels of the image
Pen = ImageDraw.ImageDraw
Stencil = Callable[[Pen, float], None]  # draws in a square of ten units, given the unit


class Canvas:
    """An image and the class of each pixel, drawn shape by shape at FINE times the size."""

    def __init__(self, background: NDArray[np.uint8], label: int) -> None:
        self.height, self.width = background.shape[:2]
        size = (self.width * FINE, self.height * FINE)
        self.picture = Image.fromarray(background).resize(size, Image.Resampling.NEAREST)
        self.labels = Image.new("L", size, label)

    def polygon(self, points: Sequence[Point], color: Color, label: int) -> None:
        """Fill a polygon."""
        corners = [(x * FINE, y * FINE) for x, y in points]
        for layer, fill in ((self.picture, color), (self.labels, label)):
            ImageDraw.Draw(layer).polygon(corners, fill=fill)

    def paint(self, x: int, y: int, colors: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        """Paste fine pixels (h, w, 3) and their classes (h, w) at the image's (x, y)."""
        self.picture.paste(Image.fromarray(colors), (x * FINE, y * FINE))
        self.labels.paste(Image.fromarray(labels), (x * FINE, y * FINE))

    def stamp(
        self, x: float, y: float, size: float, draw: Stencil, *, opacity: float = 1.0, label: int
    ) -> None:
        """Draw a stencil into a square, top left at (x, y); its shape gets the label."""
        side = round(size * FINE)
        layer = Image.new("RGBA", (side, side), (0, 0, 0, 0))
        draw(ImageDraw.Draw(layer), side / 10)
        shape, place = layer.getchannel("A"), (round(x * FINE), round(y * FINE))
        faint = shape.point([round(alpha * opacity) for alpha in range(256)])
        self.picture.paste(layer.convert("RGB"), place, faint)
        self.labels.paste(label, place, shape)

    def finish(self, texture: NDArray[np.float64]) -> Sample:
        """Average the fine pixels and add a texture (H, W) to their brightness."""
        picture = self.picture.resize((self.width, self.height), Image.Resampling.BOX)
        image = (np.asarray(picture) + texture[..., None]).round().clip(0, 255).astype(np.uint8)
        middle = FINE // 2
        labels = np.asarray(self.labels)[middle::FINE, middle::FINE].astype(np.int32)
        return Sample(image, labels, "scene")


def gradient(height: int, width: int, top: Color, bottom: Color) -> NDArray[np.uint8]:
    """A vertical gradient (H, W, 3) from one colour to another."""
    share = np.linspace(0, 1, height)[:, None, None]
    column = np.array(top) * (1 - share) + np.array(bottom) * share
    return np.broadcast_to(column, (height, width, 3)).round().astype(np.uint8)


def ripples(height: int, width: int, random: Generator) -> NDArray[np.float64]:
    """Waves and grain (H, W) of amplitude about 1: sand, paper."""
    y, x = np.ogrid[:height, :width]
    total = np.zeros((height, width))
    for _ in range(4):
        length, slope = random.uniform(4, 14), random.uniform(-0.5, 0.5)
        total += np.sin((y + slope * x) * 2 * np.pi / length + random.uniform(0, 2 * np.pi))
    return total / 2 + random.standard_normal((height, width))
