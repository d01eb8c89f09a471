"""A photograph with its labels on its way from disk to the network: Sample, Example, Batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.errors import UserError
from scaseg.losses import IGNORE as IGNORE  # exported: data and losses agree on it

ROUNDING = 1e-3  # beyond 0 and 1, by filters that overshoot
STEP = 16  # pixels: batches come in few sizes, since cuDNN searches algorithms for each new one


@dataclass
class Sample:
    """An image (H, W, C), uint8 or float32, and its labels (H, W) int32, IGNORE where unlabelled.

    `size` is the (height, width) of the photograph within what transforms padded, right and
    below; None: all of it.
    """

    image: NDArray[Any]
    labels: NDArray[np.int32]
    name: str
    size: tuple[int, int] | None = None

    @property
    def real_size(self) -> tuple[int, int]:
        """Height and width without padding."""
        return self.size if self.size is not None else self.labels.shape


class Example(NamedTuple):
    """A sample as tensors: image (C, H, W), uint8 or float32, labels (H, W) int32."""

    image: Tensor
    labels: Tensor
    size: tuple[int, int]
    name: str


class Batch(NamedTuple):
    """Images (B, C, H, W), labels (B, H, W), sizes (B, 2) without padding.

    As they travel: pixels as stored, not normalized, and 8 bits where 8 bits are enough. That is a
    fifth of the bytes that the network computes with, from the loaders' processes to the device.
    """

    images: Tensor
    labels: Tensor
    sizes: Tensor
    names: list[str]


def unit_pixels(image: Tensor) -> Tensor:
    """Pixels as floats: 8 bits in [0, 1], others as they are."""
    return image.float() / 255 if image.dtype == torch.uint8 else image.float()


def check_unit_range(pixels: Tensor | NDArray[Any]) -> None:
    """Refuse floats that are not from 0 to 1, such as pixels that were normalized already."""
    if pixels.size == 0 if isinstance(pixels.size, int) else pixels.numel() == 0:
        return
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):  # NaN neither
        problem = f"values from {low:.3g} to {high:.3g}"
        raise UserError("image", problem, "give floats from 0 to 1, or uint8; not normalized")


def normalize(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Subtract the mean (C,) and divide by the standard deviation of `unit_pixels` (..., C, H, W).

    Of padding too: the network sets it to zero.
    """
    channels = images.shape[-3]
    if mean.shape != (channels,) or std.shape != (channels,):
        problem = f"{channels} channels, but mean and std have {len(mean)} and {len(std)} entries"
        raise UserError("images", problem, "give one for each channel")
    return (unit_pixels(images) - mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def as_example(sample: Sample) -> Example:
    """Make tensors of a sample, of the same memory where torch can hold it."""
    image, labels = (
        torch.from_numpy(np.ascontiguousarray(one)) for one in (sample.image, sample.labels)
    )
    return Example(image.permute(2, 0, 1), labels, sample.real_size, sample.name)


def common_size(
    shapes: Sequence[tuple[int, int]], sizes: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """Return (height, width) of a batch of examples of such shapes, padding left out such sizes.

    It is what the largest needs: padding that all examples share is cut off, where they differ in
    size in steps of STEP. It is masked in the network anyway, so it would only cost time; examples
    of one size need no mask.
    """
    step = 1 if len(set(sizes)) == 1 < len(sizes) else STEP
    height, width = (
        min(
            max(shape[side] for shape in shapes),
            -(-max(size[side] for size in sizes) // step) * step,
        )
        for side in (0, 1)
    )
    return height, width


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to a common size, right and below: 0 for pixels, IGNORE for labels."""
    for example in examples:
        if not isinstance(example, Example):
            raise UserError("collate", f"a {type(example).__name__}", "make it an example first")
    shapes = [(example.image.shape[1], example.image.shape[2]) for example in examples]
    height, width = common_size(shapes, [example.size for example in examples])
    pixels = [example.image for example in examples]
    if any(image.dtype != pixels[0].dtype for image in pixels):
        pixels = [unit_pixels(image) for image in pixels]
    count, channels = len(examples), pixels[0].shape[0]
    images = pixels[0].new_zeros(count, height, width, channels).permute(0, 3, 1, 2)
    is_short = all(int(example.labels.max()) <= IGNORE for example in examples)
    dtype = torch.uint8 if is_short else torch.int32
    labels = torch.full((count, height, width), IGNORE, dtype=dtype)
    for place, example in enumerate(examples):
        rows, columns = (
            slice(0, min(height, example.size[0])),
            slice(0, min(width, example.size[1])),
        )
        images[place, :, rows, columns] = pixels[place][:, rows, columns]
        labels[place, rows, columns] = example.labels[rows, columns]
    return Batch(
        images=images,
        labels=labels,
        sizes=torch.tensor([example.size for example in examples]),
        names=[example.name for example in examples],
    )


def by_band(change: Callable[[Image.Image], Image.Image], pixels: NDArray[Any]) -> NDArray[Any]:
    """Apply a function of Pillow to an image (H, W, C); the result can be written to.

    RGB goes through at once, others band by band: Pillow would take a fourth for transparency.
    """
    if pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return np.array(change(Image.fromarray(pixels)))
    bands = range(pixels.shape[2])
    changed = [np.asarray(change(Image.fromarray(pixels[:, :, band]))) for band in bands]
    return np.stack(changed, axis=2)


def require_unpadded(sample: Sample, transform: str) -> None:
    """Refuse what would move the padding away from the right and bottom edge, or blur it."""
    if sample.size not in (None, sample.labels.shape):
        raise UserError(sample.name, f"{transform} after padding", "pad last")
