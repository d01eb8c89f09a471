"""Files that appear whole or not at all, whenever the power fails."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What a killed run leaves behind begins so, with its machine and process; nothing of a user's does
LEFTOVER = ".scaseg-"


@contextmanager
def whole_file(
    path: Path,
    *,
    durable: bool | None = True,
    previous: Path | None = None,
    exclusive: bool = False,
) -> Iterator[Path]:
    """Give a temporary file beside `path` that takes its place when it is written.

    durable: on the disk, not only in the system's memory; what can be made again need not be. None:
    its contents are, and the names in its folder will be (`sync_folder`), once for many files.
    previous: what the file that was there becomes. exclusive: one that is there stays, of however
    many machines that write it at once the first one's.
    """
    temporary = temporary_beside(path)
    try:
        yield temporary
        take_place(temporary, path, durable=durable, previous=previous, exclusive=exclusive)
    except OSError as error:
        # a name that says nothing to anybody; or none, where a disk is full
        if str(error.filename) == str(temporary) or (
            error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        ):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, durable: bool = True, exclusive: bool = False) -> None:
    """Write a text file in UTF-8, whole."""
    with whole_file(path, durable=durable, exclusive=exclusive) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, *, exclusive: bool = False) -> None:
    """Write a JSON file, whole. Text is left readable, unless it has what UTF-8 cannot hold."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    is_unicode = text == text.encode(errors="ignore").decode()  # not so: a name of other bytes
    text = text if is_unicode else json.dumps(value, indent=2)
    write_text(path, f"{text}\n", exclusive=exclusive)


def temporary_beside(path: Path) -> Path:
    """Name a file that nobody else writes, in the folder of `path`."""
    # not mkstemp: its files are for nobody else's eyes, and colleagues read each other's runs
    # .part: torch.save refuses a name that ends before its first dot
    import platform  # not above: `scaseg --help` would wait for it

    name = f"{LEFTOVER}{platform.node()}-{os.getpid()}-{os.urandom(4).hex()}.part"
    return path.parent / name


def take_place(
    temporary: Path,
    path: Path,
    *,
    durable: bool | None = True,
    previous: Path | None = None,
    exclusive: bool = False,
) -> None:
    """Rename a finished file, once its contents are on the disk."""
    if durable is not False:
        with temporary.open("rb+") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())
    if exclusive:
        try:
            os.link(temporary, path)  # the first of many succeeds
        except FileExistsError:
            return
        except OSError:  # a disk without links
            if path.exists():
                return
            os.replace(temporary, path)
    elif previous is not None and path.is_file():
        link = temporary_beside(path)
        try:  # a second name for the old file, so that at no moment the first is missing
            os.link(path, link)
        except OSError:  # no hard links here: for a moment only the previous one is there
            link = path
        os.replace(link, previous)
    if not exclusive:
        os.replace(temporary, path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
    finally:
        os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed run left in a folder, which the caller must have locked."""
    for path in folder.glob(f"{LEFTOVER}*.part"):
        path.unlink(missing_ok=True)
