"""More transforms: hue, blur and rotation; parts of another sample: CutMix and ClassMix.

As in `transforms`, all randomness comes from the generator that a transform is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

from scaseg.data.sample import IGNORE, Sample, by_band, require_unpadded

# (sample, donor, random) -> sample: puts a part of the donor into the sample
Mixture = Callable[[Sample, Sample, Generator], Sample]
# luminance and two axes of colour (NTSC's YIQ): turning those changes hue, and no brightness
YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


@dataclass(frozen=True)
class RandomHue:
    """Turn the colours of an RGB image by up to `amount` of the colour circle, either way."""

    amount: float = 0.05

    def draw(self, random: Generator) -> NDArray[np.float32]:
        """The matrix (3, 3) that turns colours."""
        angle = 2 * np.pi * random.uniform(-self.amount, self.amount)
        turn = np.eye(3)
        turn[1:, 1:] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        return (np.linalg.inv(YIQ) @ turn @ YIQ).astype(np.float32)

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        pixels = sample.image.astype(np.float32) @ self.draw(random).T
        return replace(sample, image=np.clip(pixels.round(), 0, 255).astype(np.uint8))


@dataclass(frozen=True)
class RandomBlur:
    """Blur by a Gaussian whose standard deviation is drawn from 0 to `radius` pixels."""

    radius: float = 1.5

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        from scipy.ndimage import gaussian_filter  # it takes a while to import

        radius = random.uniform(0, self.radius)
        pixels = sample.image.astype(np.float32)
        blurred = gaussian_filter(pixels, (radius, radius, 0), truncate=3)
        if sample.image.dtype == np.uint8:
            blurred = blurred.round().astype(np.uint8)
        return replace(sample, image=blurred)


@dataclass(frozen=True)
class RandomRotation:
    """Rotate by up to `degrees`, either way, about the middle; the size stays.

    What comes from outside is 0, and unlabelled. Labels are picked by nearest neighbour.
    """

    degrees: float = 10.0

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        require_unpadded(sample, type(self).__name__)
        angle = random.uniform(-self.degrees, self.degrees)

        def turn(one: Image.Image) -> Image.Image:
            return one.rotate(angle, Image.Resampling.BILINEAR)

        labels = Image.fromarray(np.ascontiguousarray(sample.labels))
        turned = labels.rotate(angle, Image.Resampling.NEAREST, fillcolor=IGNORE)
        return replace(sample, image=by_band(turn, sample.image), labels=np.array(turned))


@dataclass(frozen=True)
class CutMix:
    """Put a rectangle of the donor where it lies in the donor; its share of the area is uniform."""

    def __call__(self, sample: Sample, donor: Sample, random: Generator) -> Sample:
        height, width = _common(sample, donor)
        side = np.sqrt(random.uniform())
        rows, columns = (max(1, round(length * side)) for length in (height, width))
        top, left = random.integers(height - rows + 1), random.integers(width - columns + 1)
        mask = np.zeros((height, width), bool)
        mask[top : top + rows, left : left + columns] = True
        return _paste(sample, donor, mask)


@dataclass(frozen=True)
class ClassMix:
    """Put half of the donor's classes, drawn at random, where they lie in the donor."""

    def __call__(self, sample: Sample, donor: Sample, random: Generator) -> Sample:
        height, width = _common(sample, donor)
        labels = donor.labels[:height, :width]
        classes = np.setdiff1d(labels, IGNORE)
        chosen = random.permutation(classes)[: (len(classes) + 1) // 2]
        return _paste(sample, donor, np.isin(labels, chosen))


def _common(sample: Sample, donor: Sample) -> tuple[int, int]:
    """The height and width that both have, padding left out."""
    height, width = (min(sides) for sides in zip(sample.real_size, donor.real_size, strict=True))
    return height, width


def _paste(sample: Sample, donor: Sample, mask: NDArray[np.bool_]) -> Sample:
    height, width = mask.shape
    image, labels = sample.image.copy(), sample.labels.copy()
    image[:height, :width][mask] = donor.image[:height, :width][mask]
    labels[:height, :width][mask] = donor.labels[:height, :width][mask]
    return replace(sample, image=image, labels=labels)
