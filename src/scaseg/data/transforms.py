"""Joint transforms of a photograph and its labels, reproducible for each (seed, epoch, index).

A transform is any callable (Sample, Generator) -> Sample. All randomness comes from the generator
it is given, so the same (seed, epoch, index) gives the same sample in any worker, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from PIL import Image

from scaseg.config.run import SMALLEST_SIDE, AugmentConfig
from scaseg.data.augmentations import (
    ClassMix,
    CutMix,
    Mixture,
    RandomBlur,
    RandomHue,
    RandomRotation,
)
from scaseg.data.custom import Custom, load_transform
from scaseg.data.sample import IGNORE, Sample, by_band, require_unpadded

Transform = Callable[[Sample, Generator], Sample]


def generator(seed: int, epoch: int, index: int) -> Generator:
    """Return the source of randomness of one sample in one epoch."""
    return np.random.default_rng([seed, epoch, index])


@dataclass(frozen=True)
class Compose:
    """Apply transforms one after the other."""

    transforms: Sequence[Transform]

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        for transform in self.transforms:
            sample = transform(sample, random)
        return sample


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirror left and right with probability `p`."""

    p: float = 0.5

    def draw(self, random: Generator) -> bool:
        """Whether an image is mirrored."""
        return random.random() < self.p

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        if not self.draw(random):
            return sample
        require_unpadded(sample, type(self).__name__)
        return replace(sample, image=sample.image[:, ::-1], labels=sample.labels[:, ::-1])


@dataclass(frozen=True)
class RandomResize:
    """Scale by a factor drawn from [low, high], uniformly on a logarithmic scale."""

    low: float = 0.75
    high: float = 2.0

    def size(self, before: tuple[int, ...], random: Generator) -> tuple[int, int]:
        """Draw the (height, width) that an image of another gets."""
        factor = float(np.exp(random.uniform(np.log(self.low), np.log(self.high))))
        height, width = before
        # never below one neuron; what is smaller already is left to the network to refuse
        low = min(SMALLEST_SIDE, height, width)
        return max(low, round(height * factor)), max(low, round(width * factor))

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        return resize(sample, *self.size(sample.labels.shape, random))


@dataclass(frozen=True)
class RandomCrop:
    """Cut out height x width pixels at random; a smaller sample is padded, as by Pad."""

    height: int
    width: int
    mirrors: bool = False

    def corner(self, size: tuple[int, ...], random: Generator) -> tuple[int, int]:
        """Draw the top left corner of what is cut out of a (height, width)."""
        rows, columns = size
        top = int(random.integers(0, max(rows - self.height, 0) + 1))
        return top, int(random.integers(0, max(columns - self.width, 0) + 1))

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        top, left = self.corner(sample.labels.shape, random)
        window = np.s_[top : top + self.height, left : left + self.width]
        cut = replace(sample, image=sample.image[window], labels=sample.labels[window])
        return Pad(self.height, self.width, self.mirrors)(cut, random)


@dataclass(frozen=True)
class ResizeToFit:
    """Resize to the largest size within height x width that keeps the aspect ratio."""

    height: int = 448
    width: int = 448

    def size(self, before: tuple[int, ...]) -> tuple[int, int]:
        """The (height, width) that an image of another gets."""
        return fitted_size(before, (self.height, self.width))

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        return resize(sample, *self.size(sample.labels.shape))


@dataclass(frozen=True)
class Pad:
    """Pad to at least height x width, right and below: 0 for pixels, IGNORE for labels.

    mirrors: by the image and its labels, reflected at the edge as often as needed. They count as
    the rest does, so that nothing is padding and batches need no mask.
    """

    height: int = 448
    width: int = 448
    mirrors: bool = False

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        rows, columns = sample.labels.shape
        below, right = max(0, self.height - rows), max(0, self.width - columns)
        if not below and not right:
            return sample
        if self.mirrors:
            edges = ((0, below), (0, right))
            image = np.pad(sample.image, (*edges, (0, 0)), mode="symmetric")
            return replace(sample, image=image, labels=np.pad(sample.labels, edges, "symmetric"))
        return replace(
            sample,
            image=np.pad(sample.image, ((0, below), (0, right), (0, 0))),
            labels=np.pad(sample.labels, ((0, below), (0, right)), constant_values=IGNORE),
            size=sample.real_size,
        )


@dataclass(frozen=True)
class ColorJitter:
    """Change brightness, contrast and saturation by factors of 1 ± the amount; labels stay."""

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2

    def draw(self, random: Generator) -> tuple[float, float, float]:
        """The factors of brightness, contrast and saturation."""
        bright, contrast, saturation = (
            random.uniform(1 - amount, 1 + amount)
            for amount in (self.brightness, self.contrast, self.saturation)
        )
        return bright, contrast, saturation

    def __call__(self, sample: Sample, random: Generator) -> Sample:
        bright, contrast, saturation = self.draw(random)
        # in place, and channel by channel: reducing an axis of three is ten times as slow
        pixels = sample.image.astype(np.float32)
        pixels *= bright
        mean = pixels.mean()
        pixels -= mean
        pixels *= contrast
        pixels += mean
        gray = pixels[:, :, 0].copy()
        for channel in range(1, pixels.shape[2]):
            gray += pixels[:, :, channel]
        gray = np.expand_dims(gray / pixels.shape[2], 2)
        pixels -= gray
        pixels *= saturation
        pixels += gray
        if sample.image.dtype == np.uint8:
            pixels = np.clip(np.rint(pixels, out=pixels), 0, 255, out=pixels).astype(np.uint8)
        return replace(sample, image=pixels)


def build_transforms(config: AugmentConfig) -> list[Transform]:
    """Return the transforms of a training sample, in the order of the recipe.

    All batches have one size if `fit` or `crop` is set.
    """
    chain: list[Transform] = []
    mirrors = config.fill == "mirror"
    if config.transform is not None:
        chain.append(Custom(load_transform(config.transform)))
    if config.flip:
        chain.append(RandomHorizontalFlip(config.flip))
    if config.brightness or config.contrast or config.saturation:
        chain.append(ColorJitter(config.brightness, config.contrast, config.saturation))
    if config.hue:
        chain.append(RandomHue(config.hue))
    if config.blur:
        chain.append(RandomBlur(config.blur))
    if config.rotate:
        chain.append(RandomRotation(config.rotate))
    if config.fit is not None:
        chain.append(ResizeToFit(*config.fit))
    if config.scale is not None:
        chain.append(RandomResize(*config.scale))
    if config.crop is not None:
        chain.append(RandomCrop(*config.crop, mirrors))
    elif config.fit is not None and config.scale is None:
        chain.append(Pad(*config.fit, mirrors))
    return chain


def build_mixtures(config: AugmentConfig) -> list[tuple[float, Mixture]]:
    """Return what mixes two samples after their transforms, and how often."""
    found: list[tuple[float, Mixture]]
    found = [(config.cutmix, CutMix()), (config.classmix, ClassMix())]
    return [(often, mixture) for often, mixture in found if often]


def fitted_size(size: tuple[int, ...], box: tuple[int, int]) -> tuple[int, int]:
    """Return the largest (height, width) within a box that keeps the aspect ratio of `size`.

    A side is at least SMALLEST_SIDE, where the box allows.
    """
    factor = min(box[0] / size[0], box[1] / size[1])
    height, width = (
        min(side, max(SMALLEST_SIDE, round(own * factor)))
        for own, side in zip(size, box, strict=True)
    )
    return height, width


def resize(sample: Sample, height: int, width: int) -> Sample:
    """Resize to height x width: bilinear for pixels, nearest neighbour for labels."""
    require_unpadded(sample, "resize")
    if sample.labels.shape == (height, width):
        return sample
    image = by_band(
        lambda one: one.resize((width, height), Image.Resampling.BILINEAR), sample.image
    )
    rows, columns = (  # the old pixel under the middle of each new one
        ((np.arange(after) + 0.5) * before / after).astype(np.intp)
        for before, after in zip(sample.labels.shape, (height, width), strict=True)
    )
    labels = sample.labels.take(columns, 1).take(rows, 0)  # faster than both at once
    return replace(sample, image=image, labels=labels, size=None)
