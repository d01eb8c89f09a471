"""Caches of decoded images: in memory, or on disk as memory-mapped arrays."""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.sample import Sample
from scaseg.errors import UserError
from scaseg.io.atomic import whole_file


class RamCache:
    """A dataset decoded once, before the loaders start: their processes share the memory.

    room: bytes that are free (None: unknown); UserError if the images would take over 80 % of them.
    """

    def __init__(self, dataset: SegmentationDataset, *, room: int | None = None) -> None:
        self.dataset = dataset
        # from the sizes of up to 64 images: 3 bytes of colour, 4 of label a pixel
        chosen = range(0, len(dataset), max(1, len(dataset) // 64))
        pixels = sum(math.prod(dataset.size(index)) for index in chosen)
        needed = 7 * pixels / max(1, len(chosen)) * len(dataset)
        if room is not None and needed > 0.8 * room:
            sizes = f"about {needed / 2**30:.1f} GiB and {room / 2**30:.1f} GiB are free"
            remedy = "use disk or none"
            raise UserError("data.cache", f"ram: the decoded images take {sizes}", remedy)
        with ThreadPoolExecutor(4) as pool:
            self.samples = list(pool.map(dataset.__getitem__, range(len(dataset))))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        kept = self.samples[index]
        return Sample(kept.image.copy(), kept.labels.copy(), kept.name)  # a transform may write


class DiskCache:
    """A dataset whose decoded images are kept in a folder as they are first read.

    The key is the dataset's fingerprint: a changed file or other label options are another entry.
    """

    def __init__(self, dataset: SegmentationDataset, folder: str | Path) -> None:
        self.dataset = dataset
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        key = hashlib.sha256(self.dataset.fingerprint(index).encode()).hexdigest()[:32]
        paths = [self.folder / f"{key}.{part}.npy" for part in ("image", "labels")]
        try:
            # mapped copy-on-write: a transform that writes must not write into the cache
            image, labels = (open_memmap(path, mode="c") for path in paths)
            return Sample(image, labels, self.dataset.names[index])
        except (OSError, ValueError):  # not there yet, or torn
            sample = self.dataset[index]
            arrays: list[NDArray[np.generic]] = [sample.image, sample.labels]
            for path, array in zip(paths, arrays, strict=True):
                # whole or not at all: several processes may write it at once
                with whole_file(path, durable=False) as temporary, temporary.open("wb") as file:
                    np.save(file, array)
            return sample
