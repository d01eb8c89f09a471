"""An image to predict: a file, a line of a list, a row of a Parquet or tar file, an object."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import NamedTuple

from scaseg.data.decode.files import Embedded
from scaseg.data.decode.table import Table, open_table
from scaseg.data.decode.tar import TarShard, open_tar
from scaseg.errors import UserError, WorkError
from scaseg.io.paths import open_regular, shown, user_cache
from scaseg.io.remote import fetch, is_remote, list_files, match_files, parquet_rows, read_object

SHARDS = (".parquet", ".tar")
LIST = ".txt"
ROOM = 50 << 30  # bytes of shards from elsewhere that are kept on this machine


class InputFile(NamedTuple):
    """An image, and what its results are called: a path below the output folder, no suffix.

    path: of a file of this machine, or the address of one elsewhere (a string).
    row: of an image within that file, where it holds many.
    """

    path: Path | str
    name: PurePath
    row: int | None = None

    def read(self, most: int) -> Path | Embedded:
        """Return what can be decoded; of bytes from elsewhere, or out of a shard, `most` are taken.

        UserError: a bad image. WorkError: the network failed, which is not the image's fault.
        """
        try:
            if self.row is not None:
                return _photograph(str(self.path), self.row, most)
            if isinstance(self.path, str):
                return Embedded(read_object(self.path, most), self.path)
        except WorkError as error:
            remedy = "--skip-existing goes on from here"
            raise WorkError(error.place, error.problem, remedy, error.detail) from error
        return self.path


def batched(files: Iterable[InputFile], size: int) -> Iterator[list[InputFile]]:
    """Divide files into lists of so many, the last of fewer, as they come."""
    several = iter(files)
    while block := list(islice(several, size)):
        yield block


def list_lines(path: Path) -> Iterator[InputFile]:
    """The images that a text file names, one a line, as the command line would.

    Results keep the folders of each name: two of one name in two folders are two images.
    """
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff").strip()
            if not text:
                continue
            if text.lower().endswith(SHARDS):
                yield from shard_rows(text)
                continue
            bare = text.partition("://")[2] if is_remote(text) else text
            with_folders = _safe_name(bare, f"{shown(path)}, line {number}")
            name = with_folders.with_name(PurePath(bare).stem)
            yield InputFile(text if is_remote(text) else Path(text), name)


def remote_files(address: str, suffixes: tuple[str, ...]) -> Iterator[InputFile]:
    """The images at an address of an object store: one, a pattern's, or all below a folder."""
    if address.lower().endswith((*SHARDS, *suffixes)) or glob.has_magic(address):
        found = match_files(address) if glob.has_magic(address) else [address]
        wildcard = next((at for at, sign in enumerate(address) if sign in "*?["), len(address))
        start = address.rfind("/", 0, wildcard) + 1
    else:
        root = address.rstrip("/")
        found, start = [f"{root}/{name}" for name in list_files(root)], len(root) + 1
    for one in found:
        if one.lower().endswith(SHARDS):
            yield from shard_rows(one)
        elif one.lower().endswith(suffixes):
            relative = _safe_name(one[start:], one)
            yield InputFile(one, relative.with_name(relative.stem))


def shard_rows(address: str) -> Iterator[InputFile]:
    """The images of a Parquet or tar file; of a Parquet file elsewhere the end alone is read."""
    stem = PurePosixPath(address).stem
    where = address if is_remote(address) else Path(address)
    if is_remote(address) and address.lower().endswith(".parquet"):
        for row in range(parquet_rows(address)):
            yield InputFile(where, PurePath(stem, f"{row:06}"), row)
        return
    shard = _open(address)
    for row in range(len(shard)):
        key = f"{row:06}" if isinstance(shard, Table) else shard.keys[row]
        yield InputFile(where, PurePath(stem, _safe_name(key, address)), row)


def _safe_name(text: str, place: str) -> PurePath:
    """What results are called after a name of a stranger; UserError where it leads elsewhere."""
    path = PurePath(text)
    if ".." in path.parts or not path.name:
        raise UserError(place, f"{text!r}", "give names without '..'")
    return path.relative_to(path.anchor)


def _photograph(address: str, row: int, most: int) -> Embedded:
    shard = _open(address)
    if isinstance(shard, Table):
        place = f"{shown(address)}: row {row}"
        from scaseg.data.datasets.hugging_face import cell_bytes  # it brings torch

        return Embedded(cell_bytes(shard.value(row, _image_column(shard)), place), place)
    field = shard.image_field(row)
    return Embedded(shard.read(row, field, most), f"{shown(address)}: {shard.keys[row]}.{field}")


def _image_column(table: Table) -> str:
    from scaseg.data.datasets.hugging_face import LABEL_WORDS, is_image_column

    images = [name for name in table.columns if is_image_column(table, name)]
    images = [name for name in images if not any(word in name.lower() for word in LABEL_WORDS)]
    if len(images) != 1:
        problem = f"has the columns {', '.join(table.columns)}"
        raise UserError(shown(table.path), problem, "one of them must hold the bytes of images")
    return images[0]


def _open(address: str) -> Table | TarShard:
    path = _fetched(address)
    if not path.exists() and is_remote(address):  # another process has made room
        _fetched.cache_clear()
        path = _fetched(address)
    if path.suffix.lower() == ".parquet":
        return open_table(path)
    status = path.stat()
    return open_tar(path, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=1024)  # asking an object store about a file takes as long as an image
def _fetched(address: str) -> Path:
    cache = user_cache() or Path(tempfile.gettempdir()) / "scaseg"
    return fetch(address, cache / "shards", ROOM)
