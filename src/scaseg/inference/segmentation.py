"""The result of a prediction: a class for every pixel, with names and colors."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from scaseg.errors import UserError
from scaseg.io.atomic import whole_file
from scaseg.io.ownership import MARK
from scaseg.plots.palette import add_legend, overlay

# classes that repr() names: at most so many, and none with a smaller share of the area
NAMED, SMALL = 3, 0.005
LARGE = 1 << 18  # pixels of a label map


@dataclass(eq=False, repr=False)
class Segmentation:
    """The classes of an image's pixels, at its own size.

    labels (H, W): indices into `classes`, or `unsure` where a pixel was less sure than was asked
    for. palette: a color for each class. scores (classes, H, W) float32: probabilities, where they
    were asked for. image (H, W, 3): the image, upright. confidence (H, W) float32: the probability
    of the likeliest class, right as often as it says if the model is calibrated (training does it).
    """

    labels: NDArray[np.integer]
    classes: tuple[str, ...]
    palette: tuple[tuple[int, int, int], ...]
    scores: NDArray[np.float32] | None = None
    image: NDArray[np.uint8] | None = None
    confidence: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        """Width x height and the largest classes."""
        height, width = self.size
        areas = sorted(self.areas().items(), key=lambda area: -area[1])
        large = [(name, share) for name, share in areas if share >= SMALL][:NAMED]
        parts = [f"{100 * share:.0f} % {name}" for name, share in large]
        if sum(share > 0 for _, share in areas) > len(parts):
            parts.append("...")
        known = len(self.classes)
        return (
            f"Segmentation({width}x{height}, {known} class{'' if known == 1 else 'es'}: "
            f"{', '.join(parts)}{'' if self.scores is None else '; with scores'})"
        )

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.labels.shape[0], self.labels.shape[1]

    @property
    def unsure(self) -> int:
        """The label of pixels that are less sure than `min_confidence`."""
        return 255 if len(self.classes) <= 255 else 65535

    def areas(self) -> dict[str, float]:
        """The share of the image that each class covers; they sum to 1, less unsure pixels."""
        counts = np.zeros(len(self.classes), np.int64)
        for row in range(0, len(self.labels), 1024):  # bincount widens what it counts
            part = self.labels[row : row + 1024].ravel()
            counts += np.bincount(part, minlength=len(self.classes))[: len(self.classes)]
        return dict(zip(self.classes, (counts / self.labels.size).tolist(), strict=True))

    def overlay(
        self, opacity: float = 0.5, *, legend: bool = False, max_side: int | None = None
    ) -> Image.Image:
        """Draw the classes over the image; legend: with their names and areas below it.

        max_side: make the picture smaller where a side has more pixels than that.
        """
        if self.image is None or self.image.shape[2] != 3:
            raise UserError("overlay", "there is no RGB image", "set .image to an array (H, W, 3)")
        drawn = overlay(self.image, self.labels, self.palette, opacity, ignore=self.unsure)
        picture = Image.fromarray(drawn)
        if max_side is not None:
            picture.thumbnail((max_side, max_side))
        return add_legend(picture, self.areas(), self.palette) if legend else picture

    def as_image(self) -> Image.Image:
        """The label map as an image whose values are the classes: a palette, or 16-bit gray."""
        if len(self.classes) > 256 or self.labels.dtype == np.uint16:
            return Image.fromarray(self.labels.astype(np.uint16))
        picture = Image.fromarray(self.labels.astype(np.uint8))
        colors = [value for color in self.palette for value in color]
        if (self.labels == self.unsure).any():
            colors += [0] * (768 - len(colors))  # black; else Pillow would save 255 in fewer bits
        picture.putpalette(colors)
        return picture

    def save(self, path: str | Path, *, durable: bool | None = True) -> None:
        """Write the label map as a PNG, whole or not at all; durable: see `whole_file`."""
        # runs of equal labels: half the time of the usual strategy, and smaller
        reason, options = "other formats would blur the classes", {"compress_type": zlib.Z_RLE}
        if self.labels.size > LARGE:  # fewer bits save a fifth, and take 1.7 times as long
            options["bits"] = 8
        _save(self.as_image(), Path(path), reason, durable, **options)

    def save_confidence(self, path: str | Path) -> None:
        """Write the confidence as a gray PNG of 8 bits, whole or not at all: 255 is 1."""
        if self.confidence is None:
            raise UserError("confidence", "was not kept", "use scaseg.predict")
        gray = np.round(255 * self.confidence).astype(np.uint8)
        _save(Image.fromarray(gray), Path(path), "other formats would blur it")


def _save(
    picture: Image.Image, path: Path, reason: str, durable: bool | None = True, **options: int
) -> None:
    if path.suffix.lower() != ".png":
        raise UserError(path, "not a .png", reason)
    if not path.parent.exists():
        raise UserError(path.parent, "no such folder", "make it, or give another")
    mark = PngInfo()
    mark.add_text("Software", MARK)  # so that --overwrite knows it again
    with whole_file(path, durable=durable) as temporary:
        picture.save(temporary, format="PNG", pnginfo=mark, **options)
