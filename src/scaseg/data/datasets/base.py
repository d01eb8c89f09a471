"""What every data set is to those who train on it: samples, their names, their classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from scaseg.data.sample import Sample


class LabelledImages(ABC):
    """Samples of one split in a fixed order; labels are 0, 1, ... and IGNORE.

    `root` is the folder that they come from; None: they are generated.
    """

    classes: tuple[str, ...] | None
    palette: tuple[tuple[int, int, int], ...] | None = None
    root: Path | None

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The name of each sample, within the data set its own."""

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    @abstractmethod
    def subset(self, indices: Iterable[int]) -> Self:
        """The same data set with some of its samples only."""

    @abstractmethod
    def size(self, index: int) -> tuple[int, int]:
        """Height and width of an image, or width and height, without decoding it."""

    @abstractmethod
    def fingerprint(self, index: int) -> str:
        """What a sample is made of: another where the sample would be another."""

    def __len__(self) -> int:
        return len(self.names)
