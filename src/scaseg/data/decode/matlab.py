"""Read label maps and lists of names from MATLAB's .mat files (version 5: `save` without -v7.3).

Not by scipy: it trusts what it unpacks, so a kilobyte can become gigabytes and a damaged variable
can end the process with a segmentation fault (seen with 1.17.1). Here every length is checked.
https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

from __future__ import annotations

import zlib
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scaseg.data.decode.files import MAX_PIXELS, open_untrusted, require_bytes, require_pixels
from scaseg.errors import UserError
from scaseg.io.paths import shown

_HEADER = 128  # bytes: a text, the version and the byte order
_MATRIX, _COMPRESSED = 14, 15  # types of an element
_CELL, _CHAR = 1, 4  # classes of an array
_OTHERS = {_CELL: "a cell array", 2: "a struct", 3: "an object", _CHAR: "text", 5: "sparse"}
_NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
_NUMBERS |= {14: "i8", 15: "u8"}  # classes of an array
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}  # types of an element; a double may be stored as bytes
_COMPLEX = 0x08
_BESIDE = 1 << 16  # bytes of a variable beside its numbers: its name and the like
_MAX_NAMES, _MAX_NAME_BYTES = 10_000, 1 << 22
_REMEDY = "fetch it again"
_Order = Literal["little", "big"]


class _Array(NamedTuple):
    """A variable or a cell, unpacked; its contents not parsed yet."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    contents: memoryview
    order: _Order


def read_label_map(path: Path, key: str, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a variable as (H, W) whole numbers, wide enough for arithmetic: files hold uint8.

    A variable with more than max_pixels (None: MAX_PIXELS) is refused before it is unpacked. A
    UserError of one line names the file and what is wrong with it.
    """
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    with open_untrusted(path, _REMEDY) as file:
        require_bytes(file, limit)
        array = _find_variable(file.read(), key, 8 * limit + _BESIDE)
        kind, shape = array.kind, array.shape
        if kind not in _NUMBERS or array.is_complex or len(shape) != 2 or 0 in shape:
            what = _OTHERS.get(kind) or np.dtype(_NUMBERS.get(kind, "V")).name
            remedy = "a label map has a number a pixel, height x width"
            raise UserError("", f"{key} is {what} of shape {shape}", remedy)
        require_pixels(shape[1], shape[0], limit)
        values = _numbers(array)
        with np.errstate(invalid="ignore"):  # NaN: refused below
            whole = values.astype(np.int32)
        if not np.array_equal(whole, values):  # MATLAB's default type is double
            raise UserError("", f"{key} holds fractions", "class ids are whole numbers")
        return whole


def read_names(path: Path) -> tuple[str, ...]:
    """Read the cell array `names`, whether a row or a column."""
    with open_untrusted(path, _REMEDY) as file:
        require_bytes(file, MAX_PIXELS)
        array = _find_variable(file.read(), "names", _MAX_NAME_BYTES)
        if array.kind != _CELL or prod(array.shape) > _MAX_NAMES:
            raise UserError("", "its names are no cell array of texts", _REMEDY)
        texts, at = [], 0
        for _ in range(prod(array.shape)):
            _, content, at = _element(array.contents, at, array.order)
            texts.append(_text(_parse(content, array.order)) if content else "")
        return tuple(texts)


def _find_variable(content: bytes, key: str, most: int) -> _Array:
    """Find a variable of a file and unpack it to at most so many bytes."""
    order: _Order = "big" if content[126:128] == b"MI" else "little"
    version = int.from_bytes(content[124:126], order)
    if version == 0x0200:
        raise UserError("", "of MATLAB 7.3 (HDF5)", "save it again with -v7")
    if len(content) < _HEADER:
        raise EOFError(f"it ends after {len(content)} bytes, within its header")
    if version != 0x0100:
        raise UserError("", "not a .mat file of MATLAB 5 to 7", "save it again with -v7")
    names, at = [], _HEADER
    while at + 8 <= len(content):
        kind, packed, after = _element(memoryview(content), at, order)
        name = _parse(_unpack(kind, packed, _BESIDE, whole=False), order).name
        if name == key:
            return _parse(_unpack(kind, packed, most), order)
        names.append(shown(name))
        # packed variables follow each other without a gap
        at = at + 8 + len(packed) if kind == _COMPRESSED else after
    others = ", ".join(names[:20]) or "nothing"
    raise UserError("", f"has no {key}, but {others}", "is it a label map?")


def _element(data: memoryview, at: int, order: _Order) -> tuple[int, memoryview, int]:
    """Return the type of an element, its contents, and where the next one begins."""
    if at + 8 > len(data):
        raise EOFError("a variable ends too early")
    kind, length = (int.from_bytes(data[i : i + 4], order) for i in (at, at + 4))
    if kind >> 16:  # up to four bytes stand in the tag itself
        if kind >> 16 > 4:
            raise EOFError("a length that cannot be")
        return kind & 0xFFFF, data[at + 4 :][: kind >> 16], at + 8
    start, end = at + 8, at + 8 + length
    if end > len(data):
        raise EOFError(f"it ends after {len(data)} bytes, within a variable")
    return kind, data[start:end], end + -length % 8


def _unpack(kind: int, data: memoryview, most: int, *, whole: bool = True) -> memoryview:
    """Return the contents of a variable without its own tag; whole=False: the beginning."""
    if kind == _MATRIX:
        return data
    if kind != _COMPRESSED:
        raise EOFError(f"a variable of type {kind}")
    stream = zlib.decompressobj()
    unpacked = stream.decompress(data, most)
    if whole and stream.unconsumed_tail:
        raise EOFError(f"more than {most} bytes of it unpacked")
    if whole and not stream.eof:  # only then has zlib seen the checksum
        raise EOFError("a variable ends too early")
    return memoryview(unpacked)[8:]


def _parse(data: memoryview, order: _Order) -> _Array:
    """Read flags, shape and name of an array."""
    _, flags, at = _element(data, 0, order)
    _, shape, at = _element(data, at, order)
    _, name, at = _element(data, at, order)
    word = int.from_bytes(flags[:4], order)
    starts = range(0, len(shape), 4)[:33]
    sizes = tuple(int.from_bytes(shape[i : i + 4], order, signed=True) for i in starts)
    if not sizes or min(sizes) < 0 or len(sizes) > 32:
        raise EOFError(f"a shape of {sizes[:4]}")
    text = bytes(name).decode("utf-8", "replace")
    return _Array(word & 0xFF, bool(word >> 8 & _COMPLEX), sizes, text, data[at:], order)


def _numbers(array: _Array) -> NDArray[np.generic]:
    kind, data, _ = _element(array.contents, 0, array.order)
    if kind not in _STORED:
        raise EOFError(f"numbers of type {kind}")
    stored = np.dtype(_STORED[kind]).newbyteorder(">" if array.order == "big" else "<")
    if len(data) != stored.itemsize * prod(array.shape):
        raise EOFError(f"{len(data)} bytes for {array.shape} numbers")
    return np.frombuffer(data, stored).reshape(array.shape, order="F")  # column by column


def _text(array: _Array) -> str:
    if array.kind != _CHAR:
        raise EOFError("a name that is no text")
    kind, data, _ = _element(array.contents, 0, array.order)
    ending = "be" if array.order == "big" else "le"
    coding = {4: f"utf-16-{ending}", 17: f"utf-16-{ending}", 18: f"utf-32-{ending}"}
    return bytes(data).decode(coding.get(kind, "utf-8"), "replace").strip()
