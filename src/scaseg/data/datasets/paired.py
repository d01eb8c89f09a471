"""What all data sets share: photographs and label maps, a file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import LabelledImages
from scaseg.data.decode.files import image_size, read_image, read_labels
from scaseg.data.sample import IGNORE, Sample
from scaseg.io.paths import shown


class Pair(NamedTuple):
    """A photograph, its label map, and the name they share within the data set."""

    image: Path
    labels: Path
    name: str


class Listing(NamedTuple):
    """What a look at the folders found: the pairs of a split, and all that is wrong."""

    pairs: list[Pair]
    problems: list[str]


class PairedDataset(LabelledImages):
    """Samples of one split, in the order of its list; labels are 0, 1, ... and IGNORE.

    A data set says where its files lie (`splits`, `find`) and, where its labels are no image
    of class indices, how they are read (`read_values`). label_map renames values on reading
    ({255: 1} for binary masks); reduce_zero_label makes 0 unlabelled and every other class one
    less, as in mmseg. Where `split` is None, all pairs. A file with more than max_pixels (None: 250
    million) is refused before it is decoded. strict=False keeps what is missing in `problems` and
    goes on with the pairs that are there: for whoever wants to report all of it.
    """

    root: Path

    def __init__(
        self,
        root: str | Path,
        split: str | None = None,
        *,
        classes: Sequence[str] | None = None,
        label_map: Mapping[int, int] | None = None,
        reduce_zero_label: bool = False,
        ignore_index: int = IGNORE,
        max_pixels: int | None = None,
        strict: bool = True,
    ) -> None:
        self.root = Path(root)
        self.split = split
        self.label_map = dict(label_map or {})
        self.reduce_zero_label = reduce_zero_label
        self.ignore_index = ignore_index
        self.max_pixels = max_pixels
        if not self.root.is_dir():
            raise ValueError(f"{shown(self.root)}: no such folder")
        self.classes = tuple(classes) if classes is not None else self.own_classes(self.root)
        self.pairs, self.problems = self.find(self.root, split)
        if strict:
            self._require_pairs()

    @classmethod
    @abstractmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        """Name the splits that a root has; none: all its pairs are one set."""

    @classmethod
    @abstractmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        """Look for the pairs of a split; ValueError where the folder is no such data set."""

    @classmethod
    @abstractmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        """Name the classes, where the data set or a file of it does."""

    def read_values(self, path: Path) -> NDArray[np.int32]:
        """Read a label map as it lies on disk: (H, W) whole numbers, ignore_index unlabelled."""
        return read_labels(path, max_pixels=self.max_pixels)

    def _require_pairs(self) -> None:
        if self.problems:
            rest = len(self.problems) - 1
            more = f" (and {rest} more problems; `scaseg data check` lists them)" if rest else ""
            raise ValueError(self.problems[0] + more)
        if not self.pairs:
            raise ValueError(f"{shown(self.root)}: the split {self.split} has no photograph")

    def subset(self, indices: Iterable[int]) -> Self:
        part = copy(self)
        part.pairs = [self.pairs[index] for index in indices]
        return part

    @property
    def names(self) -> Sequence[str]:
        return [pair.name for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def size(self, index: int) -> tuple[int, int]:
        return image_size(self.pairs[index].image, upright=False, max_pixels=self.max_pixels)

    def fingerprint(self, index: int) -> str:
        facts = [type(self).__name__, sorted(self.label_map.items()), self.reduce_zero_label]
        facts += [self.ignore_index, self.classes]
        for path in self.pairs[index][:2]:
            status = path.stat()
            facts += [str(path.resolve()), status.st_mtime_ns, status.st_size]
        return repr(facts)

    def __getitem__(self, index: int) -> Sample:
        image_path, label_path, name = self.pairs[index]
        image = read_image(image_path, max_pixels=self.max_pixels)
        labels = self.read_labels(label_path)
        if image.shape[:2] != labels.shape:
            raise ValueError(f"{shown(label_path)}: {size_mismatch(labels.shape, image.shape[:2])}")
        return Sample(image, labels, name)

    def read_labels(self, path: Path) -> NDArray[np.int32]:
        """Read a label map as classes 0, 1, ... and IGNORE; ValueError names the first fault."""
        labels = self.to_classes(self.read_values(path), path)
        if self.classes is not None:
            wrong = (labels != IGNORE) & ((labels < 0) | (labels >= len(self.classes)))
            if wrong.any():
                raise ValueError(
                    f"{shown(path)}: holds {labels[wrong][0]}, but there are {len(self.classes)} "
                    f"classes (0 to {len(self.classes) - 1}); use label_map or reduce_zero_label"
                )
        return labels

    def to_classes(self, values: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
        """Apply label_map, ignore_index and reduce_zero_label; the range is not looked at."""
        labels = values.copy()
        for before, after in self.label_map.items():
            labels[values == before] = after
        unlabelled = labels == self.ignore_index
        if self.reduce_zero_label:
            unlabelled |= labels == 0
            labels = labels - 1
        if ((labels == IGNORE) & ~unlabelled).any():
            raise ValueError(
                f"{shown(path)}: class {IGNORE} is taken, it means unlabelled; use label_map to "
                f"bring the classes below {IGNORE}"
            )
        labels[unlabelled] = IGNORE
        return labels


def size_mismatch(labels: tuple[int, ...], image: tuple[int, ...]) -> str:
    """Say that a label map has another size than its photograph, and why where that shows."""
    said = f"{labels[0]} x {labels[1]} but its photograph is {image[0]} x {image[1]}"
    if image == labels[::-1]:
        return f"{said}; the camera's EXIF rotation was not applied to the labels"
    return f"{said}; they must have one size"
