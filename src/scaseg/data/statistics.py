"""Mean and standard deviation of each band of the training images, to normalize them by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.sample import unit_pixels
from scaseg.data.validation.samples import in_parallel
from scaseg.progress import Progress

MOST_IMAGES = 1000  # evenly spread: more change the third digit at most


@dataclass(frozen=True)
class BandStatistics:
    """What a model must know of the bands that it is trained on; mean and std of `unit_pixels`."""

    dtype: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


def band_statistics(
    dataset: SegmentationDataset, *, progress: Progress | None = None
) -> BandStatistics:
    """Measure up to MOST_IMAGES images of a dataset with bands; a band that never changes has 1."""
    assert dataset.dtype is not None
    count = min(MOST_IMAGES, len(dataset))
    chosen = [index * len(dataset) // count for index in range(count)]

    def sums(index: int) -> tuple[int, np.ndarray, np.ndarray]:
        pixels = unit_pixels(torch.from_numpy(dataset[index].image)).double().flatten(0, 1)
        return len(pixels), pixels.sum(0).numpy(), pixels.square().sum(0).numpy()

    total, first, second = zip(
        *in_parallel(sums, chosen, workers=dataset.threads, progress=progress), strict=True
    )
    mean = np.sum(first, 0) / sum(total)
    std = np.sqrt(np.maximum(np.sum(second, 0) / sum(total) - mean**2, 0))
    # what is left of a constant band is rounding
    std[std <= 1e-6 * np.abs(mean) + 1e-12] = 1
    return BandStatistics(dataset.dtype, tuple(mean.tolist()), tuple(std.tolist()))
