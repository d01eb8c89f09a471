"""Generated scenes that need context to be segmented: no files, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.sample import Sample
from scaseg.data.scenes import legend, mirage
from scaseg.errors import UserError

HEIGHT, WIDTH = 96, 128
VERSION = 1  # raise it when the same (split, index) gives another scene
SPLITS = {"train": 2000, "val": 200, "test": 400}


class ContextScenes(SegmentationDataset):
    """One flavour of `context_scenes`; a scene is a function of (split, index) alone."""

    classes: tuple[str, ...]
    root: Path | None = None
    draw: Callable[[np.random.Generator, int, int], Sample]

    def __init__(self, split: str | None = None) -> None:
        if split is not None and split not in SPLITS:
            raise UserError.choice("split", split, SPLITS)
        chosen = SPLITS if split is None else {split: SPLITS[split]}
        self.scenes = [(name, index) for name, count in chosen.items() for index in range(count)]

    @classmethod
    def splits(cls, root: Path | None = None) -> tuple[str, ...]:
        return tuple(SPLITS)

    def __len__(self) -> int:
        return len(self.scenes)

    def name(self, index: int) -> str:
        split, number = self.scenes[index]
        return f"{split}-{number:04d}"

    def __getitem__(self, index: int) -> Sample:
        split, number = self.scenes[index]
        random = np.random.default_rng([list(SPLITS).index(split), number])
        return replace(self.draw(random, HEIGHT, WIDTH), name=self.name(index))

    def subset(self, indices: Iterable[int]) -> Self:
        part = copy(self)
        part.scenes = [self.scenes[index] for index in indices]
        return part

    def size(self, index: int) -> tuple[int, int]:
        return HEIGHT, WIDTH

    def fingerprint(self, index: int) -> str:
        return repr((type(self).__name__, VERSION, HEIGHT, WIDTH, self.scenes[index]))


class ContextScenesGlobal(ContextScenes):
    """Generated: sand is desert, beach, oasis or camp, as the clearest of the things on it says."""

    classes, palette = mirage.CLASSES, mirage.PALETTE
    draw = staticmethod(mirage.draw)


class ContextScenesSelective(ContextScenes):
    """Generated: the fields of a map in patterns, whose meaning is in its legend."""

    classes, palette = legend.CLASSES, legend.PALETTE
    draw = staticmethod(legend.draw)
