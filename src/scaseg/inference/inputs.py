"""Which photographs are meant, one after the other: files, folders and patterns.

Nothing holds the whole list: a folder of a million photographs is walked as it is worked through,
and walked again where it must be known twice.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import NamedTuple

from scaseg.data.decode.image import IMAGE_SUFFIXES


class Listed(NamedTuple):
    """A photograph, and what its results are called: a path below DIR, without suffix."""

    path: Path
    name: PurePath


class Shard(NamedTuple):
    """The place-th (from 0) of some shares of the work; a photograph's name decides its share."""

    place: int
    shares: int

    def has(self, name: PurePath) -> bool:
        if self.shares == 1:
            return True
        # surrogateescape: names are bytes on most systems, and not always UTF-8
        key = name.as_posix().encode("utf-8", "surrogateescape")
        return int.from_bytes(blake2b(key, digest_size=8).digest()) % self.shares == self.place


def listed(arguments: Sequence[str], out: Path, shard: Shard | None = None) -> Iterator[Listed]:
    """Find the photographs that arguments name. ValueError where an argument names none.

    Folders are searched with all below them, in the order of names, but for hidden files and for
    `out` itself; what lies below a folder, or below the first wildcard of a pattern, keeps its
    sub-folders in the results.
    """
    out = out.resolve()
    for argument in arguments:
        found = 0
        for photograph in _of(argument, out):
            found += 1
            if shard is None or shard.has(photograph.name):
                yield photograph
        if not found:
            raise ValueError(_nothing(argument))


def _of(argument: str, out: Path) -> Iterator[Listed]:
    path = Path(argument)
    if path.is_dir():
        if path.resolve() == out:
            raise ValueError(
                f"--out: {argument} is the folder of the photographs itself; give another folder"
            )
        yield from _below(path, PurePath(), out)
    elif path.exists():
        yield Listed(path, PurePath(path.stem))
    elif glob.has_magic(argument):
        root = _fixed_part(argument)
        for match in glob.iglob(argument, recursive=True):
            if Path(match).is_dir():
                continue  # folders are named, not matched: `photos/**` would list them twice
            if out in Path(match).resolve().parents:
                continue  # a result of this very run, or of one before
            if Path(match).suffix.lower() in IMAGE_SUFFIXES:
                relative = PurePath(match).relative_to(root)
                yield Listed(Path(match), relative.with_name(PurePath(match).stem))


def _below(folder: Path, relative: PurePath, out: Path) -> Iterator[Listed]:
    """Walk a folder in the order of names; links to folders are not followed: they may circle."""
    with os.scandir(folder) as entries:
        there = sorted(
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if not entry.name.startswith(".")
        )
    for name, is_folder in there:
        if is_folder:
            if (folder / name).resolve() != out:
                yield from _below(folder / name, relative / name, out)
        elif os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
            yield Listed(folder / name, relative / os.path.splitext(name)[0])


def _fixed_part(pattern: str) -> PurePath:
    """The folders of a pattern before its first wildcard."""
    parts = PurePath(pattern).parts
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    return PurePath(*parts[:fixed])


def _nothing(argument: str) -> str:
    if Path(argument).is_dir():
        return f"{argument}: holds no photographs; files {', '.join(IMAGE_SUFFIXES)} are taken"
    if glob.has_magic(argument):
        return f"{argument}: matches no photograph; quote patterns and check the path"
    return f"{argument}: no such file or folder; give photographs, folders or patterns"
