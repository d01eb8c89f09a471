"""The base of all datasets, and of those of files: a photograph and a label map per sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import means_unlabelled
from scaseg.data.decode.bands import pixel_size, read_pixels
from scaseg.data.decode.files import Embedded
from scaseg.data.decode.image import image_orientation, read_labels
from scaseg.data.folders.pairs import FilePair, Listing
from scaseg.data.sample import IGNORE, Sample
from scaseg.errors import UserError, plural
from scaseg.io.paths import on_disk, shown

INVALID = -1  # in a table for renumber(): an id that no label map may hold


class SegmentationDataset(ABC):
    """Samples of one split in a fixed order; labels are 0, 1, ... and IGNORE.

    `root` is the folder that they come from, or None if they are generated.
    """

    classes: tuple[str, ...] | None
    palette: tuple[tuple[int, int, int], ...] | None = None
    root: Path | None
    is_general: ClassVar[bool] = False  # recognized only where no other format is
    problems: Sequence[UserError] = ()  # what is missing or ambiguous
    threads: int | None = None  # that may read samples at once; None: any number
    bands: int | None = None  # of an image; None: photographs, RGB of 8 bits
    dtype: str | None = None  # of the bands, as stored; None: any
    options: ClassVar[tuple[str, ...]] = ()  # class attributes that `configured` may set

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        """Say in words which files of this format a folder holds; None where it is another one.

        Cheap: look at names, and at the headers of a few files.
        """
        return None

    @classmethod
    def configured(cls, **options: str) -> type[Self]:
        """Return this class with some of its `options` set; UserError if it has no such option."""
        for name in options:
            if name not in cls.options:
                known = ", ".join(map(option_name, cls.options)) or "none"
                what = f"not an option of this format ({known})"
                raise UserError(option_name(name), what, "leave it out")
        return type(cls.__name__, (cls,), options) if options else cls

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know, in words: files left out on purpose, values replaced."""
        return ()

    @classmethod
    @abstractmethod
    def splits(cls, root: Any) -> tuple[str, ...]:
        """Return the names of the splits; none if all samples are one set."""

    @abstractmethod
    def name(self, index: int) -> str:
        """Return the name of a sample, unique within the dataset."""

    @property
    def names(self) -> list[str]:
        """The names of all samples."""
        return [self.name(index) for index in range(len(self))]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    @abstractmethod
    def subset(self, indices: Iterable[int]) -> Self:
        """Return the same dataset with only these samples."""

    def neighbours(self, index: int) -> Sequence[int]:
        """Return the samples that are read as cheaply as this one, itself among them."""
        return range(len(self))

    @abstractmethod
    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of an image, or width and height, without decoding it."""

    @abstractmethod
    def fingerprint(self, index: int) -> str:
        """Return a cache key; it changes whenever the sample would."""


def option_name(name: str) -> str:
    """Return what an option of a format is called on the command line."""
    return f"--{name.replace('_', '-')}"


class PairedDataset(SegmentationDataset):
    """Samples of one split, in the order of its list; labels are 0, 1, ... and IGNORE.

    A subclass says where its files are (`splits`, `find`), what its classes are called
    (`default_classes` or `own_classes`) and, if its labels are not images of class indices, how
    to read them (`read_values`).

    split: None for all pairs. pairs: these instead, wherever their files are.
    label_map: values to rename on reading, such as {255: 1} for binary masks.
    reduce_zero_label: 0 is unlabelled and every other class one less, as in mmseg; a first class
        name that says so (unlabelled, background, ...) is that of 0, and left out.
    bands: how many an image has, read as they are stored (None: photographs, as RGB of 8 bits).
    max_pixels: refuse larger files before decoding (None: 250 million).
    strict: raise an error if a file is missing; otherwise keep these errors in `problems` and go
        on with the complete pairs.
    """

    root: Path
    default_classes: ClassVar[tuple[str, ...] | None] = None

    def __init__(
        self,
        root: str | Path,
        split: str | None = None,
        *,
        classes: Sequence[str] | None = None,
        label_map: Mapping[int, int] | None = None,
        reduce_zero_label: bool = False,
        ignore_index: int = IGNORE,
        bands: int | None = None,
        max_pixels: int | None = None,
        strict: bool = True,
        pairs: list[FilePair] | None = None,
    ) -> None:
        self.root = Path(root)
        self.split = split
        self.label_map = dict(label_map or {})
        self.reduce_zero_label = reduce_zero_label
        self.ignore_index = ignore_index
        self.bands = bands
        self.max_pixels = max_pixels
        if not self.root.is_dir():
            remedy = "give the one that holds the dataset"
            raise UserError(self.root, "no such folder", remedy)
        self.classes = tuple(classes) if classes is not None else self.own_classes(self.root)
        self.first_name: str | None = None  # of 0, where that is unlabelled and has a name
        if reduce_zero_label and self.classes and means_unlabelled(self.classes[0], perhaps=True):
            self.first_name, self.classes = self.classes[0], self.classes[1:]
        self.pairs, self.problems = (
            (pairs, []) if pairs is not None else self.find(self.root, split)
        )
        if strict and self.problems:
            first, rest = self.problems[0], len(self.problems) - 1
            others = plural(rest, "more problem")
            more = f" (and {others}; `scaseg data check` lists them)" if rest else ""
            raise UserError(first.place, first.problem, first.remedy + more, first.detail)
        if strict and not self.pairs:
            raise UserError(self.root, f"the split {split} has no photograph")

    @classmethod
    @abstractmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        """Find the pairs of a split; UserError if the folder is not such a dataset."""

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        """Return the class names that the dataset or one of its files gives."""
        return cls.default_classes

    def read_values(self, path: Path) -> NDArray[np.int32]:
        """Read a label map as stored: (H, W) whole numbers, ignore_index for unlabelled."""
        return read_labels(path, max_pixels=self.max_pixels)

    def renumber(
        self, values: NDArray[np.int32], table: NDArray[np.int32], path: Path, valid: str
    ) -> NDArray[np.int32]:
        """Look ids up in a table of classes, IGNORE and INVALID; valid: those that may occur."""
        inside = (values >= 0) & (values < len(table))
        classes = table[np.where(inside, values, 0)]
        wrong = ~inside | (classes == INVALID)
        if wrong.any():
            raise UserError(path, f"holds {values[wrong][0]}", valid)
        return self.unlabelled(classes)

    def unlabelled(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Write ignore_index, as to_classes expects it, where a format says IGNORE."""
        values[values == IGNORE] = self.ignore_index
        return values

    def subset(self, indices: Iterable[int]) -> Self:
        part = copy(self)
        part.pairs = [self.pairs[index] for index in indices]
        return part

    def __len__(self) -> int:
        return len(self.pairs)

    def name(self, index: int) -> str:
        return self.pairs[index].name

    def size(self, index: int) -> tuple[int, int]:
        return self.image_size(self.pairs[index].image, upright=False)

    def image_size(self, path: Path, *, upright: bool) -> tuple[int, int]:
        """Return (height, width) of an image without decoding it; upright: as EXIF turns it."""
        found = self.photograph(path)
        return pixel_size(found, self.bands, upright=upright, max_pixels=self.max_pixels)

    def image_orientation(self, path: Path) -> int:
        """Return the EXIF orientation of a photograph, 1 to 8; 1: it is stored upright."""
        if self.bands is not None:  # their sizes are those of upright images
            return 1
        return image_orientation(self.photograph(path), max_pixels=self.max_pixels)

    def read_image(self, path: Path) -> NDArray[Any]:
        """Read an image (H, W, C): RGB of 8 bits, or its bands as they are stored."""
        found = self.photograph(path)
        return read_pixels(found, self.bands, self.dtype, max_pixels=self.max_pixels)

    def read_photograph(self, path: Path) -> bytes:
        """Return the file of a photograph as it is."""
        found = self.photograph(path)
        return found.data if isinstance(found, Embedded) else found.read_bytes()

    def photograph(self, path: Path) -> Path | Embedded:
        """Return what a photograph is read from: its own file, or bytes out of another."""
        return path

    def fingerprint(self, index: int) -> str:
        facts = [type(self).__name__, sorted(self.label_map.items()), self.reduce_zero_label]
        facts += [self.ignore_index, self.classes, self.bands]
        for path in self.pairs[index][:2]:
            status = on_disk(path).stat()
            facts += [str(path.resolve()), status.st_mtime_ns, status.st_size]
        return repr(facts)

    def __getitem__(self, index: int) -> Sample:
        image_path, label_path, name = self.pairs[index]
        image = self.read_image(image_path)
        labels = self.read_labels(label_path)
        require_same_size(shown(label_path), labels.shape, image.shape[:2])
        return Sample(image, labels, name)

    def read_labels(self, path: Path) -> NDArray[np.int32]:
        """Read a label map as classes 0, 1, ... and IGNORE; UserError if a label is no class."""
        return self.known_classes(self.read_values(path), path)

    def known_classes(self, values: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
        """Turn the values of a label map into classes; UserError if one is no class."""
        labels = self.to_classes(values, path)
        if self.classes is not None:
            count = len(self.classes)
            wrong = (labels != IGNORE) & ((labels < 0) | (labels >= count))
            if wrong.any():
                what = f"holds {labels[wrong][0]}, but there are {count} classes (0 to {count - 1})"
                raise UserError(path, what, "use label_map or reduce_zero_label")
        return labels

    def to_classes(self, values: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
        """Apply label_map, ignore_index and reduce_zero_label; the range is not checked."""
        labels = values.copy()
        for before, after in self.label_map.items():
            labels[values == before] = after
        unlabelled = labels == self.ignore_index
        if self.reduce_zero_label:
            unlabelled |= labels == 0
            labels = labels - 1
        if ((labels == IGNORE) & ~unlabelled).any():
            remedy = f"use label_map to bring the classes below {IGNORE}"
            raise UserError(path, f"class {IGNORE} is taken, it means unlabelled", remedy)
        labels[unlabelled] = IGNORE
        return labels


class EmbeddedDataset(PairedDataset):
    """Photographs in files of another kind: the path of that file, then a name within it.

    A subclass takes them out (`extract`). Photographs that are files of their own are read as ever.
    """

    @abstractmethod
    def extract(self, path: Path) -> bytes:
        """Return a photograph out of the file that it is part of."""

    def photograph(self, path: Path) -> Path | Embedded:
        if on_disk(path) == path:
            return path
        if self.bands is not None:
            remedy = "convert it with `scaseg data prepare` first"
            raise UserError("data.bands", "photographs in other files are read as RGB", remedy)
        return Embedded(self.extract(path), shown(path))


def require_same_size(place: str, labels: tuple[int, ...], image: tuple[int, ...]) -> None:
    """Raise a UserError if a label map and its photograph, (H, W) each, differ in size."""
    if labels != image:
        problem = f"{labels[0]} x {labels[1]} but its photograph is {image[0]} x {image[1]}"
        turned = image == labels[::-1]
        rotated = "the camera's EXIF rotation was not applied to the labels"
        raise UserError(place, problem, rotated if turned else "they must have one size")
