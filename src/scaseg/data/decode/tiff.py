"""A look at the directories of a TIFF file before a decoder follows them."""

from __future__ import annotations

import ctypes
import io
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import PIL

from scaseg.data.decode.containers import Contents
from scaseg.data.decode.orientation import ORIENTATION, TURNS, UPRIGHT

_UNITS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_UNITS |= {16: 8, 17: 8, 18: 8}  # BigTIFF's
_POINTERS = (0x8769, 0x8825, 0xA005)  # EXIF, GPS and interoperability: Pillow follows these
MOST_ENTRIES = 4096  # of one directory; editors write a hundred


def tiff(file: BinaryIO, *, header: bool) -> Contents:
    """Refuse directories whose entries share data: they would be copied once for each of them.

    In a sound file every byte belongs to one entry at most, so all entries together have no more
    than the file. ValueError also where the first directory is cut off.
    """
    silence_libtiff()
    start = file.read(16)
    order = "<" if start[:2] == b"II" else ">"
    big = struct.unpack(f"{order}H", start[2:4])[0] == 43
    end = file.seek(0, io.SEEK_END)
    turned, claimed = UPRIGHT, 0
    waiting, seen = [_unpack(f"{order}Q", start, 8) if big else _unpack(f"{order}I", start, 4)], 0
    while waiting:
        entries = _entries(file, waiting.pop(0), order, end, big=big)
        for tag, kind, count, value in entries:
            size = count * _UNITS.get(kind, 0)
            claimed += size if size > len(value) else 0
            if tag == ORIENTATION and kind == 3 and not seen:
                turned = _unpack(f"{order}H", value, 0)
            if tag in _POINTERS and kind in (4, 13, 16, 18):
                waiting.append(_unpack(f"{order}Q" if big and kind > 13 else f"{order}I", value, 0))
        seen += 1
        if claimed > end or seen > 8:
            raise ValueError("its directories claim more data than the file has")
    file.seek(0)
    return Contents(file, turned if turned in TURNS else UPRIGHT)


@cache
def silence_libtiff() -> None:
    """Keep libtiff from writing to stderr behind everybody's back: a fault is our one line.

    It prints what it thinks of a damaged file, and Pillow has no switch for that; the library that
    comes with Pillow's wheels has. Where there is none (Windows), nothing is done.
    """
    beside = Path(PIL.__file__).parent
    for place in (*beside.parent.glob("pillow.libs/libtiff*"), *beside.glob(".dylibs/libtiff*")):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(str(place))  # the one that is loaded already
            for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
                setter = getattr(library, name)
                setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
                setter(None)


def _entries(
    file: BinaryIO, at: int, order: str, end: int, *, big: bool
) -> list[tuple[int, int, int, bytes]]:
    """Read the entries of one directory: tag, type, count and value, or where that lies."""
    if at > end:
        return []  # Pillow warns and goes on without, or fails for want of a size
    file.seek(at)
    count = _unpack(f"{order}Q" if big else f"{order}H", file.read(8 if big else 2), 0)
    if count > MOST_ENTRIES:
        raise ValueError(f"a TIFF directory of {count} entries")
    length, form = (20, f"{order}HHQ8s") if big else (12, f"{order}HHI4s")
    block = file.read(length * count)
    return list(struct.iter_unpack(form, block[: len(block) // length * length]))


def _unpack(form: str, data: bytes, at: int) -> int:
    try:
        value: int = struct.unpack_from(form, data, at)[0]
    except struct.error:
        raise ValueError("it ends within a TIFF directory") from None
    return value
