"""Some validation images with their labels and predictions, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from scaseg.data.decode.bands import picture
from scaseg.metrics import percent
from scaseg.plots.palette import INK, PAPER, Palette, add_legend, overlay, shorten

WIDTH = 1440  # pixels of a sheet
SIDE = WIDTH // 3  # of a panel, at most
PAGE = 2.0  # width / height that sheets come near to
FONT, GAP = 13, 6
OPACITY = 0.65
IGNORE = 255


class Panel(NamedTuple):
    """An image (H, W, 3) with labels and prediction (H, W), no larger than a sheet shows them.

    accuracy: the share of the labelled pixels that is right, at full size; NaN where none is.
    """

    name: str
    image: NDArray[np.uint8]
    labels: NDArray[np.integer]
    predicted: NDArray[np.integer]
    accuracy: float

    @classmethod
    def of(
        cls,
        name: str,
        image: NDArray[Any],
        labels: NDArray[np.integer],
        predicted: NDArray[np.integer],
    ) -> Panel:
        """Make a panel of an image at its own size; labels are picked, not mixed."""
        labelled = labels != IGNORE
        right = float((labels == predicted)[labelled].mean()) if labelled.any() else float("nan")
        height, width = labels.shape
        scale = min(1.0, SIDE / max(height, width))
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        rows, columns = (
            ((np.arange(new) + 0.5) * old / new).astype(np.intp)
            for new, old in zip(size, (height, width), strict=True)
        )
        picked = np.ix_(rows, columns)
        small = Image.fromarray(picture(image)).resize(size[::-1], Image.Resampling.BOX)
        return cls(name, np.asarray(small), labels[picked], predicted[picked], right)


def validation_sheet(
    panels: Sequence[Panel], classes: Sequence[str], palette: Palette, *, title: str = ""
) -> Image.Image:
    """Draw each image beside its labels and its prediction, and a legend of what occurs.

    As many side by side as bring the sheet near the shape of a screen.
    """
    shape = median(one.image.shape[1] / one.image.shape[0] for one in panels)
    shape = min(5.0, max(0.4, shape))  # beyond, panels would be lines
    beside = min(
        range(1, min(3, len(panels)) + 1),  # captions need room
        key=lambda count: abs(log(3 * count * shape / -(-len(panels) // count) / PAGE)),
    )
    step = (WIDTH - GAP) // beside  # from one image to the next
    width = (step - 3 * GAP) // 3 - GAP
    most = round(width / shape)
    rows = [panels[first : first + beside] for first in range(0, len(panels), beside)]
    heights = [max(_size(one.image, width, most)[1] for one in row) for row in rows]
    line = round(1.6 * FONT)
    y = line + GAP
    sheet = Image.new("RGB", (WIDTH, y + sum(heights) + len(rows) * (line + GAP)), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT)
    draw.text((GAP, GAP), title, font=font, fill=INK)
    for row, height in zip(rows, heights, strict=True):
        for column, one in enumerate(row):
            over = [
                overlay(one.image, own, palette, OPACITY) for own in (one.labels, one.predicted)
            ]
            right = "" if one.accuracy != one.accuracy else f", {percent(one.accuracy)} % right"
            captions = (shorten(one.name, width // 7), "label", f"prediction{right}")
            for place, shown in enumerate((one.image, *over)):
                x = GAP + column * step + place * (width + GAP)
                draw.text((x, y + line - 4), captions[place], font=font, fill=INK, anchor="ls")
                size = _size(shown, width, most)
                # tiny ones by whole pixels: smoothed, they would look like photographs
                is_tiny = size[0] >= 2 * shown.shape[1]
                kind = Image.Resampling.NEAREST if is_tiny else Image.Resampling.BILINEAR
                sheet.paste(Image.fromarray(shown).resize(size, kind), (x, y + line))
        y += line + height + GAP
    counts = np.zeros(len(classes), np.int64)
    for labels in (own for one in panels for own in (one.labels, one.predicted)):
        counts += np.bincount(labels[labels != IGNORE].ravel(), minlength=len(classes))
    areas = dict(zip(classes, (counts / max(1, counts.sum())).tolist(), strict=True))
    return add_legend(sheet, areas, palette, size=FONT, shares=False)


def _size(image: NDArray[np.uint8], width: int, height: int) -> tuple[int, int]:
    """The largest (width, height) of an image within, proportions kept."""
    scale = min(width / image.shape[1], height / image.shape[0])
    return max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
