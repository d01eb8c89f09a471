"""A photograph with its labels on its way from disk to the network: Sample, Example, Batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
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
    """A normalized sample: image (C, H, W) float, labels (H, W) int64."""

    image: Tensor
    labels: Tensor
    size: tuple[int, int]
    name: str


class Batch(NamedTuple):
    """Images (B, C, H, W), labels (B, H, W), sizes (B, 2) without padding."""

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


def normalize(sample: Sample, mean: Sequence[float], std: Sequence[float]) -> Example:
    """Subtract the mean and divide by the standard deviation; padding becomes exactly 0.

    mean and std of `unit_pixels`, as in `model.config.mean` and `model.config.std`.
    """
    channels = sample.image.shape[2]
    if len(mean) != channels or len(std) != channels:
        problem = f"{channels} channels, but mean and std have {len(mean)} and {len(std)} entries"
        raise UserError(sample.name, problem, "give one for each channel")
    image = unit_pixels(torch.from_numpy(np.ascontiguousarray(sample.image)).permute(2, 0, 1))
    image = (image - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    height, width = sample.real_size
    image[:, height:] = 0
    image[:, :, width:] = 0
    labels = torch.from_numpy(np.ascontiguousarray(sample.labels)).long()
    return Example(image, labels, (height, width), sample.name)


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to a common size, right and below: 0 for pixels, IGNORE for labels.

    The common size is what the largest needs: padding that all examples share is cut off, in steps
    of STEP. It is masked in the network anyway, so it would only cost time.
    """
    for example in examples:
        if not isinstance(example, Example):
            raise UserError("collate", f"a {type(example).__name__}", "normalize it first")
    height, width = (
        min(
            max(example.image.shape[1 + side] for example in examples),
            -(-max(example.size[side] for example in examples) // STEP) * STEP,
        )
        for side in (0, 1)
    )

    def pad(tensor: Tensor, value: float) -> Tensor:  # a negative amount cuts off
        missing = (0, width - tensor.shape[-1], 0, height - tensor.shape[-2])
        return F.pad(tensor, missing, value=value)

    return Batch(
        images=torch.stack([pad(example.image, 0) for example in examples]),
        labels=torch.stack([pad(example.labels, IGNORE) for example in examples]),
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
