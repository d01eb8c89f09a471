"""Which sample comes when: the order of an epoch, its share for each process, its batches.

Everything is a function of (seed, epoch, index), so an epoch is the same in any number of loader
workers, and a run that is continued sees what it would have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from scaseg.data.sample import IGNORE, Example, Sample, normalize
from scaseg.data.transforms import Transform, apply, generator


class Samples(Protocol):
    """What a data set is to a loader."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


class Place(NamedTuple):
    """Where a process stands: the epoch, which of how many processes it is, batches it has had."""

    epoch: int
    rank: int
    processes: int
    done: int = 0


class TrainingExamples:
    """Samples as the network wants them, augmented; indexed by (epoch, index)."""

    def __init__(
        self,
        samples: Samples,
        transforms: Sequence[Transform],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        seed: int,
    ) -> None:
        self.samples = samples
        self.transforms = tuple(transforms)
        self.mean, self.std = tuple(mean), tuple(std)
        self.seed = seed

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int]) -> Example:
        epoch, index = key
        random = generator(self.seed, epoch, index)
        sample = apply(self.transforms, self.samples[index], random)
        return normalize(sample, self.mean, self.std)


class EpochBatches(Sampler[list[tuple[int, int]]]):
    """Batches of (epoch, index) for one process, in an order drawn for each epoch.

    All processes get the same number of batches, or one would wait for the others for ever: the
    first images of the epoch fill up where the number of images is not divisible. The last batch
    may be smaller, no image is left out. `place` is asked at the start of every epoch; the batches
    of this epoch that are done are left out, and nothing of them is read.
    """

    def __init__(
        self, count: int, batch_size: int, *, seed: int, place: Callable[[], Place]
    ) -> None:
        self.count = count
        self.batch_size = batch_size
        self.seed = seed
        self.place = place

    def __len__(self) -> int:
        share = -(-self.count // self.place().processes)
        return -(-share // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, rank, processes, done = self.place()
        order = np.random.default_rng([self.seed, epoch]).permutation(self.count)
        share = -(-self.count // processes)
        own = np.resize(order, share * processes)[rank::processes]
        for start in range(done * self.batch_size, share, self.batch_size):
            yield [(epoch, int(index)) for index in own[start : start + self.batch_size]]


NOTHING = -1  # the index of a photograph that counts nothing


class Photograph(NamedTuple):
    """A photograph (C, H, W) uint8 and its labels (H, W) int64, both as they are on disk."""

    image: Tensor
    labels: Tensor
    name: str


class EvaluationPhotographs:
    """Photographs one by one, at their own size: metrics are counted at the label's resolution."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Photograph:
        sample = self.samples[max(0, index)]
        if index == NOTHING:
            sample.labels[:] = IGNORE
        image = torch.from_numpy(np.ascontiguousarray(sample.image)).permute(2, 0, 1)
        return Photograph(image, torch.from_numpy(sample.labels).long(), sample.name)


class OwnShare(Sampler[int]):
    """Every image once, over all processes: some processes may have one more than others.

    A process without an image gets one without labels, that counts nothing: the others wait for it
    at the end.
    """

    def __init__(self, count: int, *, place: Callable[[], Place]) -> None:
        self.count = count
        self.place = place

    def _own(self) -> Sequence[int]:
        _, rank, processes, _ = self.place()
        return range(rank, self.count, processes) or [NOTHING]

    def __len__(self) -> int:
        return len(self._own())

    def __iter__(self) -> Iterator[int]:
        return iter(self._own())
