"""Files that appear whole or not at all, whenever the power fails."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What a killed run leaves behind begins so, with its machine and process; nothing of a user's does
LEFTOVER = ".scaseg-"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` that takes its place, on the disk, when it is written."""
    temporary = temporary_beside(path)
    try:
        yield temporary
        take_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Name a file that nobody else writes, in the folder of `path`."""
    name = f"{LEFTOVER}{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.parent / name


def take_place(temporary: Path, path: Path) -> None:
    """Rename a finished file once its contents are on the disk."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
