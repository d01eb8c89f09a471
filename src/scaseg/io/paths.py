"""Files by name: what may be opened, and how a name is written in a message of one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_TEXT = 1 << 28  # bytes of a list: ten million names take less

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def shown(path: str | os.PathLike[str]) -> str:
    r"""Write a name in one line that a terminal shows as it is: control characters are escaped.

    >>> shown("holi\nday.jpg")
    'holi\\x0aday.jpg'
    """
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in str(os.fspath(path)))


def _escaped(sign: str) -> str:
    code = ord(sign)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file of bytes. ValueError where it is something else: a pipe would wait for ever."""
    try:
        status = os.stat(path)
        for is_kind, name in _KINDS:
            if is_kind(status.st_mode):
                raise ValueError(f"{shown(path)}: is {name}; give a file")
        return open(path, "rb")
    except FileNotFoundError as fault:
        raise ValueError(f"{shown(path)}: no such file; check its name") from fault
    except OSError as fault:  # may not be read, links that circle, a name too long
        said = fault.strerror or type(fault).__name__
        raise ValueError(f"{shown(path)}: cannot be opened ({said}); check its name") from fault
    except ValueError as fault:
        if "null" in str(fault):  # Python's own word for a name with a zero byte
            raise ValueError(f"{shown(path)}: no name of a file; check it") from fault
        raise


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file that are not empty; ValueError says what is wrong with it."""
    with open_regular(path) as file:
        data = file.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise ValueError(f"{shown(path)}: more than {MOST_TEXT} bytes; a list has a name a line")
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError as fault:
        raise ValueError(
            f"{shown(path)}: cannot be read ({fault}); save it as UTF-8 text"
        ) from fault
    return [line for line in lines if line]
