"""Hugging Face `datasets`: tables of photographs and label maps, in Parquet or Arrow files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import is_void, require_fewer
from scaseg.data.datasets.annotated import note_unsplit
from scaseg.data.datasets.base import EmbeddedDataset, option_name
from scaseg.data.decode.documents import read_json
from scaseg.data.decode.files import MAX_PIXELS, Embedded, image_format, require_pixels
from scaseg.data.decode.image import read_labels
from scaseg.data.decode.table import Table, is_readable, open_table
from scaseg.data.folders.layout import in_order, split_in
from scaseg.data.folders.pairs import FilePair, Listing, find_files, require_split
from scaseg.errors import UserError, located
from scaseg.io.paths import on_disk, read_lines, shown

LABEL_WORDS = ("label", "mask", "annotation", "seg", "gt", "target")  # in the names of columns
SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "BMP": ".bmp", "TIFF": ".tif", "WEBP": ".webp"}
SAVED, STATE = "dataset_dict.json", "state.json"  # what save_to_disk writes


class HuggingFace(EmbeddedDataset):
    """data/train-00000-of-00001.parquet of a repository on the hub, or a folder of save_to_disk.

    https://huggingface.co/docs/datasets . Two columns are read, of photographs and of label maps,
    which are images of class indices or lists of rows of numbers. They are known by their types
    and names, or given by image_column and label_column. Classes are named by id2label.json, by
    the features of the column (ClassLabel) or by classes_file; without names, labels are taken as
    they are. No code of the dataset is run.
    """

    options = ("classes_file", "image_column", "label_column")
    classes_file: ClassVar[str] = ""
    image_column: ClassVar[str] = ""
    label_column: ClassVar[str] = ""

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        try:
            first, *_ = cls._files(root)
            if is_readable():  # else opening it says what to install
                cls.columns(open_table(first))
        except ValueError:  # no such files, or not the columns
            return None
        return f"{shown(first.relative_to(root))} of Hugging Face datasets"

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return in_order(cls._files(root).values())

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        names = cls._names(root)
        if names is None:
            return None
        found = dict.fromkeys(name for name in names.values() if not is_void(name))
        require_fewer(found, shown(root))
        return tuple(found)

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        files = cls._files(root)
        if split is not None:
            require_split(root, split, cls.splits(root))
        pairs = []
        numbers = dict.fromkeys(files.values(), 0)
        for path, part in files.items():
            if split not in (None, part):
                continue
            table = open_table(path)
            image_column, _ = cls.columns(table)
            suffix = _suffix(table, image_column)
            for row in range(len(table)):
                name = f"{numbers[part]:06}" if part is None else f"{part}/{numbers[part]:06}"
                numbers[part] += 1
                image, labels = path / "image" / f"{row}{suffix}", path / "label" / f"{row}.png"
                pairs.append(FilePair(image, labels, name))
        return pairs, []

    def extract(self, path: Path) -> bytes:
        return cell_bytes(*self._cell(path))

    def read_values(self, path: Path) -> NDArray[np.int32]:
        value, place = self._cell(path)
        if isinstance(value, list):
            values = _grid(value, place, self.max_pixels)
        else:
            embedded = Embedded(cell_bytes(value, place), place)
            values = read_labels(embedded, max_pixels=self.max_pixels)
        names = self._ids
        if names is None:
            return values
        distinct, places = np.unique(values, return_inverse=True)
        classes = [self._class_of(value, place) for value in distinct.tolist()]
        return np.array(classes, np.int32)[places].reshape(values.shape)

    @property
    def notes(self) -> list[str]:
        return note_unsplit(self)

    def _class_of(self, value: int, place: str) -> int:
        names = self._ids or {}
        if value in names and not is_void(names[value]):
            return (self.classes or ()).index(names[value])
        if value in names or value == self.ignore_index:
            return self.ignore_index
        raise UserError(place, f"holds {value}", f"{len(names)} ids are named")

    @cached_property
    def _ids(self) -> dict[int, str] | None:
        """The name of each value; None: values are classes already."""
        names = self._names(self.root)
        if names is None or self.classes != self.own_classes(self.root):
            return None  # the names were given: by index
        return names

    def _cell(self, path: Path) -> tuple[Any, str]:
        """Return the value that a path stands for, and its place in words."""
        table = open_table(on_disk(path))
        image_column, label_column = self.columns(table)
        column = image_column if path.parent.name == "image" else label_column
        place = f"{shown(table.path)}: {column}, row {path.stem}"
        return table.value(int(path.stem), column), place

    @classmethod
    def columns(cls, table: Table) -> tuple[str, str]:
        """Return the columns of photographs and of label maps."""
        names = list(table.columns)
        images = [name for name in names if is_image_column(table, name)]
        labels = [name for name in names if is_image_column(table, name) or _is_grid(table, name)]
        labels = [name for name in labels if any(word in name.lower() for word in LABEL_WORDS)]
        labels = [name for name in labels if name != cls.image_column]
        images = [name for name in images if name not in (*labels, cls.label_column)]
        chosen = []
        for found, option in ((images, "image_column"), (labels, "label_column")):
            given = getattr(cls, option)
            if given and given not in names:
                raise UserError.choice(option_name(option), given, names)
            chosen.append([given] if given else found)
        if [len(found) for found in chosen] != [1, 1]:
            what = f"has the columns {', '.join(names)}"
            remedy = "say which: --image-column and --label-column"
            raise UserError(table.path, what, remedy)
        return chosen[0][0], chosen[1][0]

    @classmethod
    def _names(cls, root: Path) -> dict[int, str] | None:
        """Return the name of each value, as far as files have them."""
        if cls.classes_file:
            return dict(enumerate(read_lines(Path(cls.classes_file))))
        if (path := root / "id2label.json").is_file():
            found = read_json(path)
            if not all(re.fullmatch(r"\d{1,5}", key) for key in found.value):
                raise UserError(path, "not every key is a number", "give ids and names")
            return {int(key): found.get(key, str) for key in sorted(found.value, key=int)}
        table = open_table(next(iter(cls._files(root))))
        feature = table.features.get(cls.columns(table)[1])
        while isinstance(feature, (dict, list)):  # a list of lists of classes
            inner = feature[0] if isinstance(feature, list) and feature else feature
            if isinstance(inner, dict) and isinstance(inner.get("names"), list):
                return dict(enumerate(map(str, inner["names"])))
            feature = inner.get("feature") if isinstance(inner, dict) else None
        return None

    @classmethod
    def _files(cls, root: Path) -> dict[Path, str | None]:
        """Return the files, each with its split."""
        if (root / SAVED).is_file():
            splits = read_json(root / SAVED).get("splits", list)
            folders = {
                root / str(one): split_in(str(one)) for one in splits if ".." not in str(one)
            }
            return {path: split for folder, split in folders.items() for path in _saved(folder)}
        if (root / STATE).is_file():
            return dict.fromkeys(_saved(root))
        found = [paths[0] for paths in find_files(root, ".parquet").values()]
        below = {path: path.relative_to(root) for path in found}
        # default/train/0000.parquet; two configurations would hold the same photographs
        homes = {tuple(p for p in one.parts[:-1] if not split_in(p)) for one in below.values()}
        if len(homes) > 1:
            several = ", ".join(sorted("/".join(home) or "." for home in homes))
            what = f"holds several configurations ({several})"
            raise UserError(root, what, "give the folder of one")
        if not found:
            known = f"data/*.parquet, {SAVED} or {STATE} should be there"
            raise UserError(root, "has no table of Hugging Face", known)
        return {path: split_in(one.stem) or split_in(str(one)) for path, one in below.items()}


def _saved(folder: Path) -> Iterator[Path]:
    """Go through the files of a dataset that save_to_disk has written."""
    state = read_json(folder / STATE)
    if state.value.get("_indices_data_files"):
        remedy = "save it again after `flatten_indices()`"
        raise UserError(state.place, "a selection of rows", remedy)
    for one in state.each("_data_files"):
        name = one.get("filename", str)
        if Path(name).name != name or not (folder / name).is_file():
            raise UserError(folder / Path(name).name, "no such file", "fetch it again")
        yield folder / name


def is_image_column(table: Table, column: str) -> bool:
    """Whether a column holds files of images: bytes, or what Hugging Face makes of them."""
    feature = table.features.get(column)
    if isinstance(feature, dict) and feature.get("_type"):
        return bool(feature["_type"] == "Image")
    kind = table.columns[column]
    return kind.startswith("struct<bytes: ") or kind in ("binary", "large_binary")


def _is_grid(table: Table, column: str) -> bool:
    kind = table.columns[column]
    return kind.count("list<") == 2 and "int" in kind


def _suffix(table: Table, column: str) -> str:
    """Return how the names of photographs should end, by the first of them."""
    if not len(table):
        return ".jpg"
    place = f"{shown(table.path)}: {column}, row 0"
    with located(place):
        return SUFFIXES[image_format(cell_bytes(table.value(0, column), "")[:512])]


def cell_bytes(value: Any, place: str) -> bytes:
    """Return the file of an image: a cell of bytes, or a mapping that has them."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        remedy = "save the dataset with its images (embed_external_files)"
        raise UserError(place, "holds no image, a path alone or nothing", remedy)
    return data


def _grid(value: list[Any], place: str, max_pixels: int | None) -> NDArray[np.int32]:
    with located(place):
        width = len(value[0]) if value and isinstance(value[0], list) else 0
        require_pixels(width, len(value), MAX_PIXELS if max_pixels is None else max_pixels)
        try:
            values = np.array(value)
        except ValueError:
            values = np.empty(0)
        if values.ndim != 2 or values.dtype.kind not in "iu":
            raise UserError("", "no rows of whole numbers", "each row has as many")
        return values.clip(-1, np.iinfo(np.int32).max).astype(np.int32)
