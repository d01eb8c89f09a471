"""Datasets whose label maps are drawn from the shapes of an annotation tool."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import is_void, read_class_names, require_fewer
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.shapes import Canvas
from scaseg.data.folders.layout import in_order
from scaseg.data.folders.pairs import FilePair, Listing, require_split
from scaseg.errors import UserError, located
from scaseg.io.paths import shown

BACKGROUND, UNLABELLED = "background", "unlabelled"
BACKGROUND_NAMES = {BACKGROUND, "bg"}  # in any case, with underscores around them or without
FOLDERS = ("images", "img", "imgs", "data")  # of photographs: no part of their names
SHOWN = 5  # names that a message lists


class AnnotatedDataset(PairedDataset):
    """Label maps drawn from shapes; a pixel that no shape covers is `uncovered`.

    A subclass finds its files (`entries`, `pair`), names its classes (`named_classes`) and draws
    (`draw`). Shapes are looked up by the names of their classes; those called void, ignore,
    unlabelled or the like are unlabelled. A label map may be part of a larger file: the path of
    that file, then the name of its photograph.

    uncovered: background (the class of that name, or one put before all others) or unlabelled.
    classes_file: the classes and their order, a name a line, instead of the dataset's own.
    """

    options: ClassVar[tuple[str, ...]] = ("classes_file", "uncovered")
    classes_file: ClassVar[str] = ""
    uncovered: ClassVar[str] = BACKGROUND

    def __init__(
        self, *arguments: Any, classes: Sequence[str] | None = None, **options: Any
    ) -> None:
        if self.uncovered not in (BACKGROUND, UNLABELLED):
            raise UserError.choice("--uncovered", self.uncovered, (BACKGROUND, UNLABELLED))
        self.left_out: dict[Path, Counter[str]] = {}  # shapes without an area, of each label map
        if classes is not None:
            classes = self._with_background(classes, "classes")
        super().__init__(*arguments, classes=classes, **options)

    @classmethod
    @abstractmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, Any]]:
        """Go through the photographs: the split of each, None if it is in none, and for `pair`."""

    @classmethod
    @abstractmethod
    def pair(cls, root: Path, entry: Any) -> FilePair:
        """Find the files of an entry; UserError if one is missing or cannot be read."""

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return in_order(split for split, _ in cls.entries(root))

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        if split is not None:
            require_split(root, split, cls.splits(root))
        pairs, problems = [], []
        for own, entry in cls.entries(root):
            if split in (None, own):
                try:
                    pairs.append(cls.pair(root, entry))
                except UserError as error:
                    problems.append(error)
        return pairs, problems

    @classmethod
    @abstractmethod
    def named_classes(cls, root: Path) -> Iterable[str]:
        """Return the names of the classes in order, without a background unless it is one."""

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        file = cls.classes_file
        found = read_class_names(Path(file)) if file else cls.named_classes(root)
        return cls._with_background(found, shown(root))

    @classmethod
    def _with_background(cls, found: Iterable[str], place: str) -> tuple[str, ...]:
        """Return the names of the classes without those of unlabelled pixels, with a background."""
        plain = dict.fromkeys(name.strip() for name in found)  # tools let "car " pass
        names = [name for name in plain if not is_void(name)]
        if cls.uncovered == BACKGROUND and not any(_is(one, BACKGROUND_NAMES) for one in names):
            names.insert(0, BACKGROUND)
        require_fewer(names, place)
        return tuple(names)

    @abstractmethod
    def draw(self, path: Path) -> Canvas:
        """Draw a label map."""

    def read_values(self, path: Path) -> NDArray[np.int32]:
        return self.draw(path).values

    @cached_property
    def values(self) -> dict[str, int]:
        """The value of each class by its name."""
        return {name: value for value, name in enumerate(self.classes or ())}

    def value_of(self, name: str) -> int:
        """Return the value of a class; UserError, without a place, if it is none."""
        if (known := self.values.get(name.strip())) is not None:
            return known
        if is_void(name):
            return self.ignore_index
        names = ", ".join(list(self.values)[:SHOWN])
        more = ", ..." if len(self.values) > SHOWN else ""
        raise UserError("", f"{name!r} is none of the classes", f"they are {names}{more}")

    def canvas(self, height: int, width: int, path: Path) -> Canvas:
        """Return a canvas of this size on which nothing is drawn."""
        fill = self.ignore_index
        if self.uncovered == BACKGROUND:
            fill = next(at for name, at in self.values.items() if _is(name, BACKGROUND_NAMES))
        with located(path):
            return Canvas(height, width, fill, self.max_pixels)

    def leave_out(self, path: Path, kinds: Iterable[str]) -> None:
        """Remember kinds of shapes that were not drawn, for `notes`."""
        if counted := Counter(kinds):
            self.left_out[path] = counted

    @property
    def notes(self) -> list[str]:
        total: Counter[str] = Counter()
        for counted in list(self.left_out.values()):
            total.update(counted)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(total.items()))
        shapes = [f"shapes left out, without an area: {kinds}"] if kinds else []
        return [*shapes, *note_unsplit(self)]

    def fingerprint(self, index: int) -> str:
        return repr([self.uncovered, super().fingerprint(index)])

    def photograph_size(self, path: Path) -> tuple[int, int]:
        """Return height and width of the upright photograph of a label map."""
        if path not in self._photographs:
            self._photographs.update((pair.labels, pair.image) for pair in self.pairs)
        return self.image_size(self._photographs[path], upright=True)

    @cached_property
    def _photographs(self) -> dict[Path, Path]:
        return {pair.labels: pair.image for pair in self.pairs}


class PhotographFinder:
    """Finds the photographs that annotations name: their paths may be of another machine."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]

    def find(self, name: str) -> Path | None:
        """Find a photograph in one of the folders: by all of its name, else by the last part."""
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "/"]
        for start in range(len(parts)):
            if ".." in parts[start:]:  # out of the folder
                continue
            for folder in self.folders:
                path = folder.joinpath(*parts[start:])
                if os.path.isfile(path):  # not Path's own, which raises where a name is too long
                    self.folders.remove(folder)  # the next one is probably here too
                    self.folders.insert(0, folder)
                    return path
        return None

    def require(self, name: str, place: Path) -> Path:
        """Find a photograph; UserError if it is not there, place: the file that names it."""
        if (found := self.find(name)) is not None:
            return found
        remedy = f"put it into {shown(self.folders[0])}" if self.folders else "add it"
        what = "names a photograph that is not there"
        raise UserError(place, what, remedy, repr(name))


def sample_name(image: Path, root: Path) -> str:
    """Return the name of a photograph: its path without suffix, and without images/ before it.

    >>> sample_name(Path("coco/images/val2017/000139.jpg"), Path("coco"))
    'val2017/000139'
    """
    parts = image.relative_to(root).with_suffix("").parts
    inner = parts[1:] if len(parts) > 1 and parts[0].lower() in FOLDERS else parts
    return PurePosixPath(*inner).as_posix()


def note_unsplit(data: PairedDataset) -> list[str]:
    """Say, with the first split, how many photographs are in none and so left out."""
    splits = data.splits(data.root)
    if data.split is None or data.split != splits[0]:
        return []
    listed = {pair.image for split in splits for pair in data.find(data.root, split)[0]}
    rest = {pair.image for pair in data.find(data.root, None)[0]} - listed
    names = ", ".join(splits)
    return [f"photographs left out, in none of {names}: {len(rest)}"] if rest else []


def _is(name: str, names: Collection[str]) -> bool:
    return name.strip("_ ").lower() in names
