"""From a dataset to torch's DataLoader: caches of decoded images, examples, the order of an epoch.

Everything is a function of (seed, epoch, index), so an epoch is the same for any number of loader
workers, and a run that is continued sees the batches it would have seen.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from scaseg.data.augmentations import Mixture
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.device_augmentation import Planned, plan, split_chain
from scaseg.data.sample import IGNORE, Example, Sample, as_example
from scaseg.data.transforms import Compose, Transform, generator
from scaseg.errors import UserError
from scaseg.io.atomic import whole_file
from scaseg.io.remote import make_room
from scaseg.version import __version__

DAY = 86_400  # seconds
UNLABELLED = -1  # the index of an image whose labels are all IGNORE


class RamCache:
    """A dataset decoded once, before the loaders start: their processes share the memory.

    room: bytes that are free (None: unknown); UserError if the images would take over 80 % of them.
    """

    def __init__(self, dataset: SegmentationDataset, *, room: int | None = None) -> None:
        self.dataset = dataset
        require_room(dataset, "ram", room)
        with ThreadPoolExecutor(dataset.threads or 4) as pool:
            samples = pool.map(dataset.__getitem__, range(len(dataset)))
            self.samples = [(one.image, _short(one.labels), one.name) for one in samples]

    def __len__(self) -> int:
        return len(self.dataset)

    def neighbours(self, index: int) -> Sequence[int]:
        return range(len(self))

    def __getitem__(self, index: int) -> Sample:
        image, labels, name = self.samples[index]
        return Sample(image.copy(), labels.astype(np.int32), name)  # a transform may write


class DiskCache:
    """A dataset whose decoded images are kept in a folder as they are first read.

    They are mapped into memory: processes and trainings side by side share it. The key is the
    dataset's fingerprint: a changed file or other label options are another entry. most: bytes that
    may lie in the folder, which must hold nothing else; what was used least recently is removed.
    """

    def __init__(
        self, dataset: SegmentationDataset, folder: str | Path, *, most: int | None = None
    ) -> None:
        self.dataset = dataset
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if most is not None:
            make_room(self.folder, most)
        if dataset.root is not None:  # else each look may fetch a shard
            free = shutil.disk_usage(self.folder).free
            require_room(dataset, "disk", free, kept=lambda index: self._paths(index)[0].exists())

    def __len__(self) -> int:
        return len(self.dataset)

    def neighbours(self, index: int) -> Sequence[int]:
        return self.dataset.neighbours(index)

    def _paths(self, index: int) -> list[Path]:
        facts = f"{__version__} {self.dataset.fingerprint(index)}"
        key = hashlib.sha256(facts.encode()).hexdigest()[:32]
        return [self.folder / f"{key}.{part}.npy" for part in ("image", "labels")]

    def __getitem__(self, index: int) -> Sample:
        paths = self._paths(index)
        try:
            # mapped copy-on-write: a transform that writes must not write into the cache
            image, labels = (open_memmap(path, mode="c") for path in paths)
        except (OSError, ValueError):  # not there yet, or torn
            sample = self.dataset[index]
            arrays: list[NDArray[np.generic]] = [sample.image, _short(sample.labels)]
            for path, array in zip(paths, arrays, strict=True):
                # whole or not at all: several processes may write it at once
                with whole_file(path, durable=False) as temporary, temporary.open("wb") as file:
                    np.save(file, array)
            return sample
        with suppress(OSError):  # removed in the meantime, or another user's
            if time.time() - paths[0].stat().st_mtime > DAY:
                for path in paths:
                    os.utime(path)  # so that it is known to be in use
        return Sample(image, labels.astype(np.int32), self.dataset.name(index))


def require_room(
    dataset: SegmentationDataset,
    place: str,
    room: int | None,
    kept: Callable[[int], bool] = lambda index: False,
) -> None:
    """Refuse to keep decoded images where they would take over 80 % of the bytes that are free.

    kept: whether an image takes no more room.
    """
    # from the sizes of up to 64 images: 3 bytes of colour (or its bands), 1 of label a pixel
    depth = 1 + (dataset.bands or 3) * (1 if dataset.dtype in (None, "uint8") else 4)
    chosen = range(0, len(dataset), max(1, len(dataset) // 64))
    pixels = sum(math.prod(dataset.size(index)) for index in chosen if not kept(index))
    needed = depth * pixels / max(1, len(chosen)) * len(dataset)
    if room is not None and needed > 0.8 * room:
        need, free = f"{needed / 2**30:.1f}", f"{room / 2**30:.1f}"
        what = f"{place}: the decoded images take about {need} GiB and {free} GiB are free"
        fits = "use disk or none" if place == "ram" else "use none, or another data.cache_dir"
        raise UserError("data.cache", what, fits)


def _short(labels: NDArray[np.int32]) -> NDArray[np.integer]:
    """Labels in as few bytes as they need."""
    return labels.astype(np.uint8 if labels.size and labels.max() <= IGNORE else np.uint16)


Samples = SegmentationDataset | RamCache | DiskCache


class SamplerState(NamedTuple):
    """The position of a process in a run; batches_done: of this epoch, before it was continued."""

    epoch: int
    rank: int
    world_size: int
    batches_done: int = 0


@dataclass
class TrainingDataset:
    """Augmented examples, indexed by (epoch, index).

    plans: leave to the device what it can compute (`device_augmentation`); without mixtures only.
    """

    samples: Samples
    transforms: Sequence[Transform]
    seed: int
    mixtures: Sequence[tuple[float, Mixture]] = ()  # after the transforms, each so often
    plans: bool = False

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, key: tuple[int, int]) -> Example | Planned:
        epoch, index = key
        if not self.plans:
            return self.example(epoch, index)
        random = generator(self.seed, epoch, index)
        first, rest = split_chain(self.transforms)
        return plan(Compose(first)(self.samples[index], random), rest, random)

    def example(self, epoch: int, index: int) -> Example:
        """Compute an example here, whatever the device may do."""
        chain, random = Compose(self.transforms), generator(self.seed, epoch, index)
        sample = chain(self.samples[index], random)
        for often, mixture in self.mixtures:
            if random.random() < often:
                near = self.samples.neighbours(index)
                other = near[int(random.integers(len(near)))]
                draws = np.random.default_rng([self.seed, epoch, index, other])
                sample = mixture(sample, chain(self.samples[other], draws), random)
        return as_example(sample)


@dataclass
class EpochBatchSampler(Sampler[list[tuple[int, int]]]):
    """Batches of (epoch, index) for one process, in an order drawn for each epoch.

    All processes get the same number of batches, or one would wait for the others for ever: the
    first images of the epoch fill up where the number of images is not divisible. The last batch
    may be smaller, no image is left out. `state` is called at the start of every epoch; the
    batches of this epoch that are done are left out, and nothing of them is read.
    """

    count: int
    batch_size: int
    seed: int
    state: Callable[[], SamplerState]
    shards: NDArray[np.intp] | None = None  # of each sample, where they come in shards
    buffer: int = 1  # samples that are shuffled together, then

    def __len__(self) -> int:
        share = -(-self.count // self.state().world_size)
        return -(-share // self.batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, rank, world_size, done = self.state()
        random = np.random.default_rng([self.seed, epoch])
        share = -(-self.count // world_size)
        if self.shards is None:
            order = random.permutation(self.count)
            own = np.resize(order, share * world_size)[rank::world_size]
        else:  # neighbours stay together: a process reads its own part of the shards
            order = shard_order(self.shards, self.buffer, random)
            own = np.resize(order, share * world_size).reshape(world_size, share)[rank]
        for start in range(done * self.batch_size, share, self.batch_size):
            yield [(epoch, int(index)) for index in own[start : start + self.batch_size]]


def shard_order(
    shards: NDArray[np.intp], buffer: int, random: np.random.Generator
) -> NDArray[np.intp]:
    """Order samples so that those of a shard (the number of each) come close to each other.

    Shards in any order, then samples within windows of `buffer`, which begin anywhere.
    """
    places = random.permutation(int(shards.max()) + 1)
    order = np.argsort(places[shards], kind="stable")
    for start in range(-int(random.integers(buffer)), len(order), buffer):
        window = slice(max(0, start), start + buffer)
        order[window] = random.permutation(order[window])
    return order


class EvaluationExample(NamedTuple):
    """An image (C, H, W) as stored and its labels (H, W) int32, both at their size on disk."""

    image: Tensor
    labels: Tensor
    name: str


@dataclass
class EvaluationDataset:
    """Images one by one, at their own size: metrics are counted at the labels' resolution."""

    samples: Samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> EvaluationExample:
        sample = self.samples[max(0, index)]
        if index == UNLABELLED:
            sample.labels[:] = IGNORE
        image, labels = (
            torch.from_numpy(np.ascontiguousarray(one)) for one in (sample.image, sample.labels)
        )
        return EvaluationExample(image.permute(2, 0, 1), labels, sample.name)


@dataclass
class EvaluationSampler(Sampler[int]):
    """Every image once over all processes; some processes may have one more than others.

    torch's DistributedSampler would repeat images, and count them twice. A process without an
    image gets one without labels, because the others wait for it at the end.
    """

    count: int
    state: Callable[[], SamplerState]

    def _indices(self) -> Sequence[int]:
        _, rank, world_size, _ = self.state()
        return range(rank, self.count, world_size) or [UNLABELLED]

    def __len__(self) -> int:
        return len(self._indices())

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices())
