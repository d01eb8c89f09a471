"""The images to predict: files, folders, patterns, lists and shards, one after the other.

Nothing holds the whole list: a folder of a million images is walked as it is worked through, and
walked again where it must be known twice.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path, PurePath

from scaseg.data.decode.image import IMAGE_SUFFIXES, OTHER_SUFFIXES
from scaseg.data.folders.endings import label_maps_beside
from scaseg.data.folders.layout import dataset_folders, subfolders
from scaseg.errors import UserError, plural
from scaseg.inference.sources import (
    LIST,
    SHARDS,
    InputFile,
    list_lines,
    remote_files,
    shard_rows,
)
from scaseg.io.paths import shown
from scaseg.io.remote import is_remote


class Inputs:
    """The image files that arguments name; UserError while iterating where one names none.

    Folders are searched with all below them, in the order of names, but for hidden files and for
    `out` itself; what lies below a folder, or below the first wildcard of a pattern, keeps its
    sub-folders in the results. Of a dataset, at any depth, its images alone are taken. A text file
    names images, one a line; Parquet and tar files hold them; addresses such as s3:// work. shard:
    (i, n), the i-th share of n; its name alone decides which share an image belongs to. suffixes:
    of image files.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        out: Path,
        shard: tuple[int, int] | None = None,
        suffixes: tuple[str, ...] = IMAGE_SUFFIXES,
    ) -> None:
        self._suffixes = suffixes
        self._left_out: list[str] = []
        # by what is taken and what is left: the folders, and how many files are left there
        self._datasets: dict[tuple[str, str], dict[str, int]] = {}
        self._out, self._given = out.resolve(), out
        self._arguments = [self._images_of(os.fspath(one)) for one in arguments]
        self._shard = shard or (1, 1)
        if not 1 <= self._shard[0] <= self._shard[1]:
            raise UserError("--shard", f"{self._shard}", "give (I, N) with I from 1 to N")

    def __iter__(self) -> Iterator[InputFile]:
        for argument in self._arguments:
            found = False
            for file in self._files(argument):
                found = True
                if self._in_shard(file.name):
                    yield file
            if not found:
                raise _nothing(argument, self._suffixes)

    def _images_of(self, argument: str) -> str:
        """Replace the folder of a dataset by the one of its images, where there is one."""
        images = self._dataset(argument, subfolders(argument))[0]
        return os.path.join(argument, *images) if len(images) == 1 else argument

    def _dataset(self, folder: str | Path, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """The sub-folders of images of a dataset and those to leave out, noted; else none."""
        names = {name for name in names if name[0] != "."}
        images, labels = dataset_folders(names)
        # beside the only one: instances/, panoptic/ and the like
        others = names - images - labels if len(images) == 1 else set()
        others = {name for name in others if Path(folder, name).resolve() != self._out}
        if images:
            taken, left, more = (
                ", ".join(f"{shown(name)}/" for name in sorted(part))
                for part in (images, labels, others)
            )
            rest = f", nor is anything in {more}" if more else ""
            walks = chain(*(os.walk(Path(folder, name)) for name in labels | others))
            count = (self._is_image(name) for _, _, files in walks for name in files)
            self._note(folder, f"in {taken}", f"in {left} are not{rest}", count)
        return images, labels | others

    def _note(self, folder: str | Path, taken: str, left: str, left_out: Iterable[bool]) -> None:
        """Note a dataset; left_out: whether each of the other files is an image."""
        found = self._datasets.setdefault((taken, left), {})
        if shown(folder) not in found:  # it is walked more than once
            found[shown(folder)] = sum(left_out)

    @property
    def notes(self) -> list[str]:
        """Lines for the user: what is left out of the folders that were walked."""
        found = []
        for (taken, left), folders in self._datasets.items():
            first, *more = folders
            are = f"and {plural(len(more), 'more folder')} are datasets" if more else "is a dataset"
            count = plural(sum(folders.values()), "file")
            what = f"the images {taken} are predicted, the label maps {left} ({count})"
            found.append(f"{first} {are}: {what}")
        return [*found, *self._left_out]

    def _in_shard(self, name: PurePath) -> bool:
        index, count = self._shard
        # surrogateescape: names are bytes on most systems, and not always UTF-8
        key = name.as_posix().encode("utf-8", "surrogateescape")
        return int.from_bytes(blake2b(key, digest_size=8).digest()) % count == index - 1

    def _files(self, argument: str) -> Iterator[InputFile]:
        path = Path(argument)
        if is_remote(argument):
            yield from remote_files(argument, self._suffixes)
        elif os.path.isdir(path):  # not Path's own, which raises where a name is too long
            if path.resolve() == self._out:
                problem = f"{argument} is the folder of the images itself"
                raise UserError("--out", problem, "give another folder")
            yield from self._below(path, PurePath())
        elif os.path.exists(path) and path.suffix.lower() in SHARDS:
            yield from shard_rows(argument)
        elif os.path.exists(path) and path.suffix.lower() == LIST:
            yield from list_lines(path)
        elif os.path.exists(path):
            yield InputFile(path, PurePath(path.stem))
        elif glob.has_magic(argument):
            parts = PurePath(argument).parts
            wildcard = next(place for place, part in enumerate(parts) if glob.has_magic(part))
            taken = left = 0
            for match in map(Path, glob.iglob(argument, recursive=True)):
                if match.suffix.lower() in SHARDS:
                    taken += 1
                    yield from shard_rows(os.fspath(match))
                    continue
                # folders are named, not matched: `photos/**` would list their files twice
                if not self._is_image(match.name) or match.is_dir():
                    continue
                if self._out in match.resolve().parents:  # a result
                    left += 1
                    continue
                taken += 1
                relative = match.relative_to(Path(*parts[:wildcard]))
                yield InputFile(match, relative.with_name(match.stem))
            if left and not taken:
                problem = f"{shown(self._given)} holds all images that {argument} matches"
                raise UserError("--out", problem, "give another folder")

    def _below(self, folder: Path, relative: PurePath) -> Iterator[InputFile]:
        """Walk a folder in the order of names; links to folders are not followed: they may loop."""
        with os.scandir(folder) as entries:
            found = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not entry.name.startswith(".")
            )
        _, labels = self._dataset(folder, (name for name, is_folder in found if is_folder))
        files = [name for name, is_folder in found if not is_folder]
        if others := [end for name in files if (end := _ending(name)) in OTHER_SUFFIXES]:
            count, kinds = plural(len(others), "picture"), ", ".join(sorted(set(others)))
            note = f"{shown(folder)}: {count} left out ({kinds}); save them as JPEG"
            self._left_out += [] if note in self._left_out else [note]
        beside = label_maps_beside(files)
        if beside is not None:
            endings, maps = beside
            taken, left = f"NAME{endings.image or '.jpg'}", f"NAME{endings.label} are not"
            self._note(folder, taken, left, map(self._is_image, maps))
            labels = labels | maps
        for name, is_folder in found:
            if is_folder:
                if name not in labels and (folder / name).resolve() != self._out:
                    yield from self._below(folder / name, relative / name)
            elif self._is_image(name) and name not in labels:
                yield InputFile(folder / name, relative / os.path.splitext(name)[0])

    def _is_image(self, name: str) -> bool:
        return _ending(name) in self._suffixes


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _nothing(argument: str, suffixes: tuple[str, ...]) -> UserError:
    if os.path.isdir(argument):
        taken = f"files {', '.join(suffixes)} are taken"
        return UserError(argument, "holds no images", taken)
    if glob.has_magic(argument):
        return UserError(argument, "matches no image", "quote patterns and check the path")
    if os.path.exists(argument) or is_remote(argument):
        return UserError(argument, "holds no images", "give a list, a shard or a folder of some")
    return UserError(argument, "no such file or folder", "give images, folders or patterns")
