"""One photograph with its labels, on its way from disk to the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

IGNORE = 255  # ignore_index: an unlabelled pixel


@dataclass
class Sample:
    """A photograph (H, W, C) uint8 and its labels (H, W) int32, IGNORE where nobody labelled.

    `size` is the height and width of the photograph within what transforms padded, to the right
    and below; None: all of it.
    """

    image: NDArray[np.uint8]
    labels: NDArray[np.int32]
    name: str
    size: tuple[int, int] | None = None

    @property
    def real_size(self) -> tuple[int, int]:
        """Height and width without padding."""
        return self.size if self.size is not None else self.labels.shape


class Example(NamedTuple):
    """A sample as the network wants it: image (C, H, W) float, labels (H, W) int64."""

    image: Tensor
    labels: Tensor
    size: tuple[int, int]
    name: str


class Batch(NamedTuple):
    """Images (B, C, H, W), labels (B, H, W), sizes (B, 2) of what is not padding."""

    images: Tensor
    labels: Tensor
    sizes: Tensor
    names: list[str]


def normalize(sample: Sample, mean: Sequence[float], std: Sequence[float]) -> Example:
    """Bring pixels to mean 0 and standard deviation 1; padding becomes exactly 0.

    mean and std of pixels in [0, 1], as in `model.config.mean` and `model.config.std`.
    """
    channels = sample.image.shape[2]
    if len(mean) != channels or len(std) != channels:
        raise ValueError(
            f"{sample.name}: {channels} channels, but mean and std have {len(mean)} and {len(std)} "
            "entries; give one for each channel"
        )
    image = torch.from_numpy(np.ascontiguousarray(sample.image)).permute(2, 0, 1).float() / 255
    image = (image - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    height, width = sample.real_size
    image[:, height:] = 0
    image[:, :, width:] = 0
    labels = torch.from_numpy(np.ascontiguousarray(sample.labels)).long()
    return Example(image, labels, (height, width), sample.name)


STEP = 16  # pixels: batches come in few sizes, for each new one cuDNN looks for its best algorithm


def collate(examples: Sequence[Example]) -> Batch:
    """Bring examples to a common size, to the right and below: 0 for pixels, IGNORE for labels.

    The size that the largest of them needs: where all are padded, what is padding in all of them
    is cut off, in steps of STEP. Padding is nobody's context, so it would only cost.
    """
    for example in examples:
        if not isinstance(example, Example):
            raise ValueError(f"a {type(example).__name__} cannot be batched; normalise it first")
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
