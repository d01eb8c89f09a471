"""Folders anywhere, by fsspec: a path, s3://, hf://, https://, memory://. Files are fetched whole.

Access is fsspec's own affair (environment variables, ~/.config/fsspec): no key of ours holds a
secret, since recipes end up in models.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from scaseg.errors import UserError, WorkError, one_line
from scaseg.io.atomic import whole_file
from scaseg.io.lock import waiting_lock

Item = TypeVar("Item")
ATTEMPTS = 3  # to fetch a file; networks fail for seconds
STAMPS = ("size", "ETag", "etag", "mtime", "LastModified", "created")  # what changes with a file


def is_remote(root: str) -> bool:
    """Whether a folder is not a path on this machine."""
    return "://" in root and not root.startswith(("file://", "local://"))


def list_files(root: str) -> list[str]:
    """Return the names of all files below a folder, relative to it, in order."""
    with _reaching(root):
        fs, path = _open(root)
        if not fs.isdir(path):
            raise FileNotFoundError(f"no such folder: {root}")
        start = len(path.rstrip("/")) + 1
        return sorted(name[start:] for name in fs.find(path))


def match_files(pattern: str) -> list[str]:
    """Return the addresses of all files that a pattern such as s3://bucket/*.jpg matches."""
    with _reaching(pattern):
        fs, path = _open(pattern)
        return [fs.unstrip_protocol(name) for name in sorted(fs.glob(path))]


def parquet_rows(url: str) -> int:
    """Return the number of rows of a Parquet file; its end alone is read."""
    with _reaching(url):
        import pyarrow.parquet

        fs, path = _open(url)
        with fs.open(path, "rb") as file:
            rows: int = pyarrow.parquet.ParquetFile(file).metadata.num_rows
        return rows


def read_object(url: str, most: int) -> bytes:
    """Return a file of `most` bytes; WorkError where the network fails, not the file."""

    def read(**known: int) -> bytes:
        fs, path = _open(url)
        with fs.open(path, "rb", **known) as file:
            found: bytes = file.read(most + 1)
        return found

    def read_at_once() -> bytes:
        """Read in one request, not two, of which the first asks for the size: each takes 30 ms."""
        fs, path = _open(url)
        try:
            if url.startswith(("http://", "https://")):
                return read(size=most + 1)
            if url.startswith("s3://"):
                part: bytes = fs.cat_file(path, start=0, end=most + 1)
                return part
        except FileNotFoundError:
            raise
        except OSError:  # an empty file has no part that could be asked for
            pass
        return read()

    try:
        data = _retried(url, read_at_once, (UserError, FileNotFoundError))
    except FileNotFoundError as error:
        raise UserError(url, "no such file", "check the address") from error
    if len(data) > most:
        raise UserError(url, f"more than {most} bytes", "raise --max-pixels or save it again")
    return data


def read_file(root: str, name: str, most: int) -> bytes | None:
    """Return a small file of a folder, of `most` bytes; None where there is none."""
    with _reaching(f"{root}/{name}"):
        fs, path = _open(f"{root}/{name}")
        try:
            with fs.open(path, "rb") as file:
                data: bytes = file.read(most + 1)
        except FileNotFoundError:
            return None
    if len(data) > most:
        raise UserError(f"{root}/{name}", f"more than {most} bytes", "write it again")
    return data


def fetch(url: str, folder: Path, room: int) -> Path:
    """Return a file on this machine: where it lies, or a copy of it below `folder`.

    Copies are fetched once, whole, by one process at a time; where they take more than `room`
    bytes, those that were used least recently are removed. WorkError: the network failed.
    """
    if not is_remote(url):
        return Path(url.removeprefix("file://").removeprefix("local://"))
    with _reaching(url):
        fs, path = _open(url)
        facts = fs.info(path)
    stamp = repr([url, *(str(facts.get(key)) for key in STAMPS)])
    target = folder / (hashlib.sha256(stamp.encode()).hexdigest()[:32] + Path(path).suffix)
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with waiting_lock(target.with_suffix(".lock")):
            if not target.is_file():
                _download(url, target, facts.get("size"))
                make_room(folder, room, keep=target)
    with suppress(OSError):  # removed by another process in the meantime: fetched again
        os.utime(target)
    return target


def _download(url: str, target: Path, size: int | None) -> None:
    def download() -> None:
        fs, path = _open(url)
        with whole_file(target, durable=False) as temporary:
            fs.get_file(path, str(temporary))
            if size is not None and temporary.stat().st_size != size:
                raise OSError(f"{temporary.stat().st_size} of {size} bytes came")

    _retried(url, download)


def _retried(
    url: str, action: Callable[[], Item], final: tuple[type[Exception], ...] = (UserError,)
) -> Item:
    """Do something over a network, some times if need be; WorkError if all fail.

    final: errors that are not the network's fault, and would come again.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except final:
            raise
        except Exception as error:  # of whatever client stands behind
            if attempt == ATTEMPTS:
                detail = one_line(str(error)) or type(error).__name__
                raise WorkError(f"fetching {url}", detail, "--resume goes on from here") from error
            time.sleep(attempt)
    raise AssertionError  # never reached


def make_room(folder: Path, room: int, keep: Path | None = None) -> None:
    """Remove the files of a folder that were used least recently, until they fit into `room`."""
    with suppress(OSError):  # another process may remove some, too
        files = [(path.stat(), path) for path in folder.iterdir() if path.suffix != ".lock"]
        total = sum(status.st_size for status, _ in files)
        for status, path in sorted(files, key=lambda one: one[0].st_mtime_ns):
            if total <= room:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                total -= status.st_size


def _open(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UserError(url, "needs fsspec", "install it: pip install 'scaseg[data]'") from error
    found: tuple[Any, str] = url_to_fs(url)
    return found


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn whatever a file system raises into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of whatever client stands behind
        detail = one_line(str(error)) or type(error).__name__
        problem = f"cannot be reached ({detail})"
        raise UserError(url, problem, "check the address and your access to it") from error
