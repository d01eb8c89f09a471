"""Batches of images of a similar size: an image waits for others, a few at most."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from scaseg.inference.preprocessing import input_size
from scaseg.inference.tta import TestTimeAugmentation
from scaseg.models.segmenter import Segmenter

# Pixels of a batch, padding counted: beyond it more images at once gain nothing and cost memory
BATCH_PIXELS = 4_000_000
MOST_QUEUED = 64_000_000  # pixels of images that wait for others of their size
# How much of a batch may be padding, which is computed for nothing
PADDING = 0.15

Item = TypeVar("Item")


class _Waiting(NamedTuple, Generic[Item]):
    """An image of so many pixels; size: the one given to the network."""

    item: Item
    pixels: int
    size: tuple[int, int]


class SizeQueue(Generic[Item]):
    """Images that wait for others of a similar size: batches come in another order than images.

    batch_size: images of a batch, at most; 1: none waits. An image that needs windows neither.
    """

    def __init__(self, model: Segmenter, tta: TestTimeAugmentation, batch_size: int) -> None:
        self.model, self.tta, self.batch_size = model, tta, batch_size
        self._waiting: list[_Waiting[Item]] = []

    def add(self, item: Item, height: int, width: int) -> list[Item]:
        """Add an image of such a size; return a batch that is due, or nothing."""
        size = input_size(self.model, height, width, max(self.tta.scales))
        if self.batch_size == 1 or self.tta.needs_windows(size):
            return [item]
        self._waiting.append(_Waiting(item, height * width, size))
        return self.take() if self._is_due() else []

    def _is_due(self) -> bool:
        """Whether the image that has waited longest has company enough, or has waited enough."""
        first, pixels = self._waiting[0].size, sum([one.pixels for one in self._waiting])
        alike = [one.size for one in self._waiting].count(first)
        is_batch = alike >= min(self.batch_size, max(1, BATCH_PIXELS // (first[0] * first[1])))
        return is_batch or len(self._waiting) >= 4 * self.batch_size or pixels > MOST_QUEUED

    def take(self) -> list[Item]:
        """Take out the image that has waited longest, and others near its size; [] at the end."""
        if not self._waiting:
            return []
        batch = [self._waiting.pop(0)]
        height, width = batch[0].size
        area = height * width

        def distance(other: _Waiting[Item]) -> int:
            return abs(other.size[0] - batch[0].size[0]) + abs(other.size[1] - batch[0].size[1])

        for other in sorted(self._waiting, key=distance):
            if len(batch) == self.batch_size:
                break
            high, wide = max(height, other.size[0]), max(width, other.size[1])
            padded = (len(batch) + 1) * high * wide
            real = area + other.size[0] * other.size[1]
            if padded <= BATCH_PIXELS and real >= (1 - PADDING) * padded:
                batch.append(other)
                height, width, area = high, wide, real
        taken = {id(other) for other in batch}
        self._waiting = [other for other in self._waiting if id(other) not in taken]
        return [one.item for one in batch]
