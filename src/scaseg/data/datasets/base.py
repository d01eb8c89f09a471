"""What every dataset offers to training, caches and checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from scaseg.data.sample import Sample
from scaseg.errors import UserError


class SegmentationDataset(ABC):
    """Samples of one split in a fixed order; labels are 0, 1, ... and IGNORE.

    `root` is the folder that they come from, or None if they are generated.
    """

    classes: tuple[str, ...] | None
    palette: tuple[tuple[int, int, int], ...] | None = None
    root: Path | None
    problems: Sequence[UserError] = ()  # what is missing

    @classmethod
    @abstractmethod
    def open_splits(cls, root: Path | None) -> dict[str | None, Self]:
        """Open every split, or all samples (None) where there is none, whatever is missing."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The name of each sample, unique within the dataset."""

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    def image_path(self, index: int) -> Path | None:
        """Return the file of an image, or None if it is generated."""
        return None

    @abstractmethod
    def subset(self, indices: Iterable[int]) -> Self:
        """Return the same dataset with only these samples."""

    @abstractmethod
    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of an image, or width and height, without decoding it."""

    @abstractmethod
    def fingerprint(self, index: int) -> str:
        """Return a cache key; it changes whenever the sample would."""

    def __len__(self) -> int:
        return len(self.names)
