"""Shards: many samples in a file, on this machine or elsewhere, fetched as they are needed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import plain_names
from scaseg.data.datasets.base import SegmentationDataset, require_same_size
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.hugging_face import HuggingFace, cell_bytes
from scaseg.data.decode.bands import pixel_size, read_pixels
from scaseg.data.decode.files import MAX_PIXELS, Embedded, max_bytes
from scaseg.data.decode.image import read_labels
from scaseg.data.decode.table import Table, open_table
from scaseg.data.decode.tar import TarShard, open_tar
from scaseg.data.folders.layout import split_of
from scaseg.data.folders.pairs import require_split
from scaseg.data.sample import Sample
from scaseg.errors import UserError
from scaseg.io.paths import user_cache
from scaseg.io.remote import fetch, is_remote, list_files, read_file

INDEX = "shards.json"
SUFFIXES = (".tar", ".parquet")
MOST_BYTES = 1 << 26  # of the index: a hundred thousand shards take less
GIB = 1 << 30


@dataclass(frozen=True)
class Shard:
    """A file of samples: its name below the root, and what the index says of it (None: nothing)."""

    name: str
    samples: int | None = None
    pixels: tuple[int, ...] | None = None  # of each class


@dataclass(frozen=True)
class Index:
    """The shards of each split, None where they have none, and the names of the classes."""

    splits: Mapping[str | None, Sequence[Shard]]
    classes: tuple[str, ...] | None


def read_index(root: str) -> Index:
    """Read shards.json, or else list the folder: train-000.tar, validation/0001.parquet, ..."""
    data = read_file(root, INDEX, MOST_BYTES)
    if data is not None:
        try:
            return _parse(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            remedy = "write it again, or remove it"
            raise UserError(f"{root}/{INDEX}", f"no index of shards ({error})", remedy) from error
    names = [name for name in list_files(root) if name.endswith(SUFFIXES)]
    if not names:
        problem = f"holds no shards ({', '.join(SUFFIXES)})"
        raise UserError(root, problem, "write some with `scaseg data prepare --shards`")
    splits: dict[str | None, list[Shard]] = {}
    for name in names:
        parts = PurePosixPath(name).with_suffix("").parts
        words = [parts[-1].split("-")[0].split("_")[0], *reversed(parts[:-1])]
        split = next((found for word in words if (found := split_of(word))), None)
        splits.setdefault(split, []).append(Shard(name))
    text = read_file(root, "classes.txt", MOST_BYTES)
    lines = [line.strip() for line in (text or b"").decode("utf-8-sig", "replace").splitlines()]
    names = plain_names([line for line in lines if line], f"{root}/classes.txt")
    return Index(splits, tuple(names) or None)


def _parse(plain: Any) -> Index:
    splits: dict[str | None, list[Shard]] = {}
    for split, shards in plain["splits"].items():
        own = splits.setdefault(split or None, [])
        for one in shards:
            name, pixels = one["name"], one.get("pixels")
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or not name.endswith(SUFFIXES):
                raise ValueError(f"{name} is no shard")
            if type(one["samples"]) is not int or one["samples"] < 0:
                raise ValueError(f"{one['samples']} samples in {name}")
            own.append(Shard(name, one["samples"], None if pixels is None else tuple(pixels)))
    classes = plain.get("classes")
    return Index(splits, None if classes is None else tuple(map(str, classes)))


class _Labels(FolderDataset):
    """Labels are read as those of a folder are; it has no files."""

    @classmethod
    def own_classes(cls, root: Path) -> None:
        return None


class ShardDataset(SegmentationDataset):
    """train-000000.tar, ... (WebDataset) or train-000000.parquet, ... in a folder, s3://, hf://.

    With shards.json, as `scaseg data prepare --shards` writes it, nothing is counted; without it
    shards are listed, and tar files counted once. A sample is an image and a label map, each a file
    as it would lie in a folder; fields: their endings, or columns (None: known by their names).
    Shards from elsewhere are kept in cache_dir (None: the user's cache), shard_cache GiB at most.
    """

    def __init__(
        self,
        root: str | Path,
        split: str | None = None,
        *,
        fields: tuple[str, str] | None = None,
        cache_dir: str | Path | None = None,
        shard_cache: float = 50,
        bands: int | None = None,
        max_pixels: int | None = None,
        strict: bool = True,
        **labels: Any,
    ) -> None:
        self.source = str(root).rstrip("/")
        self.root = None if is_remote(self.source) else Path(self.source)
        self.split, self.fields = split, fields
        self.bands, self.max_pixels = bands, max_pixels
        cache = Path(cache_dir) if cache_dir is not None else user_cache()
        cache = cache or Path(tempfile.gettempdir()) / "scaseg"
        self.cache, self.room = cache / "shards", int(shard_cache * GIB)
        self._paths: dict[int, Path] = {}
        index = read_index(self.source)
        if split is not None:
            require_split(self.source, split, [name for name in index.splits if name])
        shards = [index.splits[split]] if split is not None else index.splits.values()
        self.shards = [one for part in shards for one in part]
        self._are_as_stored = not any(labels.get(key) for key in ("label_map", "reduce_zero_label"))
        labels["classes"] = labels.get("classes") or index.classes
        self._labels = _Labels(".", pairs=[], strict=False, max_pixels=max_pixels, **labels)
        counts = [self._count(number) for number in range(len(self.shards))]
        self._starts = np.array([0, *accumulate(counts)])
        self.indices = np.arange(self._starts[-1])
        if not len(self.indices):
            raise UserError(self.source, f"the split {split} has no sample", "write some")

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        return f"{INDEX} of `scaseg data prepare --shards`" if (root / INDEX).is_file() else None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes; None where nothing names them."""
        return self._labels.classes

    @classes.setter
    def classes(self, names: tuple[str, ...] | None) -> None:
        self._labels.classes = names

    @classmethod
    def splits(cls, root: Any) -> tuple[str, ...]:
        return tuple(split for split in read_index(str(root).rstrip("/")).splits if split)

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        shard, row = self._place(index)
        return f"{PurePosixPath(self.shards[shard].name).with_suffix('')}/{row:06}"

    def subset(self, indices: Iterable[int]) -> Self:
        part = copy(self)
        part.__dict__.pop("shard_numbers", None)
        part.indices = self.indices[list(indices)]
        return part

    @cached_property
    def shard_numbers(self) -> NDArray[np.intp]:
        """The shard of each sample."""
        return np.searchsorted(self._starts, self.indices, side="right") - 1

    @property
    def pixels(self) -> tuple[int, ...] | None:
        """The pixels of each class, where the index knows them."""
        counts = [shard.pixels for shard in self.shards if shard.pixels is not None]
        is_whole = len(self.indices) == self._starts[-1] and len(counts) == len(self.shards)
        if not is_whole or not self._are_as_stored or self.classes is None:
            return None
        if any(len(one) != len(self.classes) for one in counts):
            return None
        return tuple(np.sum(counts, 0).tolist())

    def neighbours(self, index: int) -> Sequence[int]:
        return np.flatnonzero(self.shard_numbers == self.shard_numbers[index]).tolist()

    def size(self, index: int) -> tuple[int, int]:
        image = self.image(index)
        return pixel_size(image, self.bands, upright=False, max_pixels=self.max_pixels)

    def fingerprint(self, index: int) -> str:
        shard, row = self._place(index)
        local = self._fetched(shard)
        # a copy's name changes with the file that it is of; its time says when it was used
        stamp = (str(local.resolve()), local.stat().st_mtime_ns) if self.root else (local.name,)
        facts = [self.source, self.shards[shard].name, local.stat().st_size, row, self.fields]
        facts += stamp
        reader = self._labels
        facts += [sorted(reader.label_map.items()), reader.reduce_zero_label, reader.ignore_index]
        return repr([*facts, self.classes, self.bands])

    def image(self, index: int) -> Embedded:
        """Return the file of an image as it is."""
        return self._file(index, 0)

    def _file(self, index: int, which: int) -> Embedded:
        """Return the image (0) or the label map (1) of a sample."""
        with suppress(FileNotFoundError):  # another process has just made room
            return self._read(index, which)
        return self._read(index, which)

    def __getitem__(self, index: int) -> Sample:
        image, labels = self.image(index), self._file(index, 1)
        pixels = read_pixels(image, self.bands, self.dtype, max_pixels=self.max_pixels)
        values = read_labels(labels, max_pixels=self.max_pixels)
        classes = self._labels.known_classes(values, Path(labels.place))
        require_same_size(labels.place, classes.shape, pixels.shape[:2])
        return Sample(pixels, classes, self.name(index))

    def _place(self, index: int) -> tuple[int, int]:
        shard = int(self.shard_numbers[index])
        return shard, int(self.indices[index] - self._starts[shard])

    def _read(self, index: int, which: int) -> Embedded:
        shard, row = self._place(index)
        opened, name = self._open(shard), self.shards[shard].name
        if row >= len(opened):
            problem = f"{len(opened)} samples, but {INDEX} says more"
            raise UserError(f"{self.source}/{name}", problem, "write the shards again")
        most = max_bytes(MAX_PIXELS if self.max_pixels is None else self.max_pixels)
        if isinstance(opened, TarShard):
            field = opened.fields(row, self.fields)[which]
            place = f"{self.source}/{name}: {opened.keys[row]}.{field}"
            return Embedded(opened.read(row, field, most), place)
        column = (self.fields or HuggingFace.columns(opened))[which]
        place = f"{self.source}/{name}: {column}, row {row}"
        return Embedded(cell_bytes(opened.value(row, column), place), place)

    def _open(self, shard: int) -> TarShard | Table:
        path = self._fetched(shard)
        if path.suffix == ".parquet":
            return open_table(path)
        status = path.stat()
        return open_tar(path, (status.st_mtime_ns if self.root else 0, status.st_size))

    def _fetched(self, shard: int) -> Path:
        """Return the file of a shard on this machine; one that was removed is fetched again."""
        path = self._paths.get(shard)
        if path is None or not path.exists():
            path = fetch(f"{self.source}/{self.shards[shard].name}", self.cache, self.room)
            self._paths[shard] = path
        return path

    def _count(self, shard: int) -> int:
        known = self.shards[shard].samples
        return len(self._open(shard)) if known is None else known
