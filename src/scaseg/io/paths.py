"""Files by name: what can be opened, what can be written, and how a name is shown in a message."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from scaseg.errors import UserError, located
from scaseg.errors import shown as shown  # of the names of files, as a rule
from scaseg.io.atomic import temporary_beside

CACHE = "SCASEG_CACHE"  # environment variable: the folder of the cache; empty: none
MOST_TEXT = 1 << 28  # bytes of a list: ten million names take less

Made = TypeVar("Made")
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_KINDS |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file of bytes; UserError where it is something else: a pipe would wait for ever."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
        if kind is None:
            return open(path, "rb")
    except FileNotFoundError as error:
        raise UserError(path, "no such file", "check its name") from error
    except (OSError, ValueError) as error:  # no right to it, links that circle, a zero byte
        raise UserError.cannot_be("opened", path, error, "check its name") from error
    raise UserError(path, f"is {kind}", "give a file")


def user_cache() -> Path | None:
    """The folder for what may be lost (SCASEG_CACHE, where it is set; empty: none)."""
    cache = os.environ.get(CACHE)
    if cache is not None:
        return Path(cache) if cache else None
    local = os.environ.get("LOCALAPPDATA") if os.name == "nt" else None
    try:
        return Path(local or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scaseg"
    except RuntimeError:  # a user without a home
        return None


def on_disk(path: Path) -> Path:
    """Return what there is of a path: `val.json` of `val.json/a.jpg`, which is a part of it."""
    return next((place for place in (path, *path.parents) if os.path.exists(place)), path)


def cached_by_file(most: int) -> Callable[[Callable[[Path], Made]], Callable[[Path], Made]]:
    """Remember what a function made of each of the last `most` files, until a file changes."""

    def decorate(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
        @lru_cache(maxsize=most)
        def remembered(path: Path, _time: int, _size: int) -> Made:
            return make(path)

        def current(path: Path) -> Made:
            status = path.stat()
            return remembered(path, status.st_mtime_ns, status.st_size)

        return wraps(make)(current)

    return decorate


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file that are not empty; UserError says what is wrong with it."""
    return [line for _, line in numbered_lines(path)]


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Read the lines of a text file that are not empty, each with its number, from 1 on."""
    with open_regular(path) as file:
        data = file.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise UserError(path, f"more than {MOST_TEXT} bytes", "a list has a name a line")
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise UserError.cannot_be("read", path, error, "save it as UTF-8 text") from error
    return [(number, line) for number, line in enumerate(lines, 1) if line]


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary of what JSON has as an object; ValueError where a key comes twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value
    return found


def check_folder(option: str, folder: str | Path) -> None:
    """Refuse a place where no folder can be made; UserError names the option."""
    folder = Path(folder)
    with located(option):
        for place in (folder, *folder.parents):
            try:
                mode = os.stat(place).st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue  # to be made, in what comes next
            except OSError as error:  # a name too long, links that loop
                raise not_writable(folder, error) from error
            if not stat.S_ISDIR(mode):
                raise UserError(place, "is a file", "give a folder")
            return


def check_file(option: str, path: str | Path, *, overwrite: bool) -> None:
    """Refuse a file that exists or could not be written; UserError names the option."""
    path = Path(path)
    trial = temporary_beside(path)
    with located(option):
        if os.path.isdir(path):  # not Path's own, which raises where a name is too long
            raise UserError(path, "is a folder", "give a file")
        if os.path.exists(path) and not overwrite:
            raise UserError(path, "is there already", "use --overwrite, or another name")
        try:
            path.is_symlink()  # raises where the name is too long
            trial.touch(exist_ok=False)
            trial.unlink()
        except OSError as error:
            raise not_writable(path, error) from error


def not_writable(path: str | Path, error: OSError) -> UserError:
    """The error for a place where nothing can be written."""
    return UserError.cannot_be("written", path, error, "give another place")
