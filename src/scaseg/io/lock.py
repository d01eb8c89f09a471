"""One process at a time in an output folder; the second is told which process has it."""

from __future__ import annotations

import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scaseg.errors import UserError, located
from scaseg.io.paths import not_writable

LOCK = ".lock"  # in the folder; what a killed process leaves of it locks nothing
# Locks of the system belong to a process (so that a killed one's loader workers, its forks, hold
# nothing): what the process has locked itself it must know itself
_held: set[tuple[int, Path]] = set()


@contextmanager
def folder_lock(
    folder: str | Path, option: str = "--out", *, shared: bool = False
) -> Iterator[None]:
    """Hold a folder for this process alone; UserError where another one has it.

    A folder that does not exist is made, and taken away again if it stays empty. shared: together
    with others that share it, of which none may have it alone.
    """
    folder = Path(folder)
    key = (os.getpid(), folder.absolute())
    made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    with located(option):
        if key in _held:
            raise _in_use(folder, f"{os.getpid()} on {platform.node()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = _locked(folder, shared)
        except OSError as error:
            raise not_writable(folder, error) from error
    _held.add(key)
    try:
        yield
    finally:
        _held.discard(key)
        with suppress(OSError):  # Windows removes no open file; a lock that stays locks nothing
            if not shared or _take(file):  # nobody else has it
                (folder / LOCK).unlink()
        os.close(file)
        with suppress(OSError):  # something was written: it stays
            for path in made:
                path.rmdir()


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold a file for this process alone, after whoever has it; the file stays."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while not _take(file):
            time.sleep(0.05)
        yield
    finally:
        os.close(file)


def _locked(folder: Path, shared: bool) -> int:
    """Open and lock the file, and write into it who has it."""
    path, end = folder / LOCK, time.monotonic() + (1.0 if shared else 0.0)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            while not (taken := _take(file, shared)) and time.monotonic() < end:
                time.sleep(0.05)  # one of those that share it is just leaving
            if not taken:
                owner = os.read(file, 400).decode(errors="replace").strip()
                raise _in_use(folder, owner or "unknown")
            # the last holder may have removed the file between our opening and our locking it
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                with suppress(OSError):  # a full disk: locked all the same
                    os.ftruncate(file, 0)
                    os.write(file, f"{os.getpid()} on {platform.node()}\n".encode())
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


if sys.platform == "win32":
    import msvcrt

    def _take(file: int, shared: bool = False) -> bool:
        """Lock a byte far behind the text, which others must be able to read."""
        if shared:  # there are no such locks
            return True
        os.lseek(file, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _take(file: int, shared: bool = False) -> bool:
        """Lock the file unless another process has; file systems that know no locks let all in."""
        try:
            fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True


def _in_use(folder: Path, owner: str) -> UserError:
    return UserError(folder, f"is in use by process {owner}", "wait for it or give another folder")
