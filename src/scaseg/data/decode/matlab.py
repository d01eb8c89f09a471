"""Label maps in MATLAB's .mat files (version 5: what `save` writes but for -v7.3), read by hand.

scipy trusts what it unpacks: a damaged variable can end the process with a segmentation fault
(seen with 1.17.1), and one of a kilobyte can unpack to gigabytes. We want one matrix of numbers or
one list of names out of a file; every length is checked, and a packed variable has a checksum.
https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scaseg.data.decode.opening import MAX_PIXELS, TooLargeError
from scaseg.io.paths import open_regular, shown

_HEADER = 128  # bytes: a text, the version and the order of bytes
_MATRIX, _COMPRESSED = 14, 15  # types of an element
_CELL, _CHAR = 1, 4  # classes of an array
_OTHERS = {_CELL: "a cell array", 2: "a struct", 3: "an object", _CHAR: "text", 5: "sparse"}
_NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"}
_NUMBERS |= {14: "i8", 15: "u8"}  # classes of an array
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}  # types of an element; a double may be stored as bytes
_COMPLEX = 0x08
_BESIDE = 1 << 16  # bytes of a variable beside its numbers: its name and the like
_MOST_NAMES, _LONGEST_NAME = 10_000, 1 << 22  # and the bytes of all of them

_Order = Literal["little", "big"]


class _Element(NamedTuple):
    """A tag, and the place of what it announces; `after`: where the next one begins."""

    kind: int
    start: int
    end: int
    after: int


class _Array(NamedTuple):
    """What a variable says of itself before its contents."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    contents: int  # where they begin


def read_label_map(path: Path, key: str, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a variable as (H, W) whole numbers, wide enough for arithmetic: files hold uint8.

    ValueError names the file and the fault in one line; what has more than max_pixels (None:
    MAX_PIXELS) is refused before it is unpacked.
    """
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    name, variable = shown(path), _Variable(path, key, 8 * limit + _BESIDE)
    array = variable.array
    if array.kind not in _NUMBERS or array.is_complex or len(array.shape) != 2 or 0 in array.shape:
        what = _OTHERS.get(array.kind) or np.dtype(_NUMBERS.get(array.kind, "V")).name
        raise ValueError(
            f"{name}: {key} is {what} of shape {array.shape}; a label map has a number a pixel, "
            "height x width"
        )
    if prod(array.shape) > limit:
        height, width = array.shape
        raise TooLargeError(
            f"{name}: {width} x {height} pixels; at most {limit} are taken, raise --max-pixels "
            "or make it smaller"
        )
    values = variable.numbers()
    with np.errstate(invalid="ignore"):  # NaN: told below
        whole = values.astype(np.int32)
    if not np.array_equal(whole, values):  # MATLAB's default type is double
        raise ValueError(f"{name}: {key} holds fractions; class ids are whole numbers")
    return whole


def read_names(path: Path) -> tuple[str, ...]:
    """Read the cell array `names`, in whichever direction it lies."""
    return _Variable(path, "names", _LONGEST_NAME).texts()


class _Variable:
    """One variable of a file, unpacked, of at most so many bytes."""

    def __init__(self, path: Path, key: str, most: int) -> None:
        self.path = path
        with open_regular(path) as file:
            content = file.read()
        try:
            self.order = _require_version(content)
            names = []
            for element in _elements(content, _HEADER, len(content), self.order):
                start = _unpacked(content, element, _BESIDE, whole=False)
                array = _array(start, 0, self.order)
                names.append(shown(array.name))
                if array.name == key:
                    self.data = _unpacked(content, element, most)
                    self.array = _array(self.data, 0, self.order)
                    return
        except NotImplementedError as fault:
            raise ValueError(f"{shown(path)}: {fault}") from fault
        except (EOFError, MemoryError, OverflowError, zlib.error) as fault:
            raise self._torn(fault) from fault
        others = ", ".join(names[:20]) or "nothing"
        raise ValueError(f"{shown(path)}: has no {key}, but {others}; is it a label map?")

    def numbers(self) -> NDArray[np.generic]:
        """Its numbers, (H, W)."""
        try:
            kind, start, end, _ = _element(self.data, self.array.contents, self.order)
            if kind not in _STORED:
                raise EOFError(f"numbers of type {kind}")
            stored = np.dtype(_STORED[kind]).newbyteorder(">" if self.order == "big" else "<")
            if end - start != stored.itemsize * prod(self.array.shape):
                raise EOFError(f"{end - start} bytes for {self.array.shape} numbers")
        except EOFError as fault:
            raise self._torn(fault) from fault
        flat = np.frombuffer(self.data, stored, prod(self.array.shape), start)
        return flat.reshape(self.array.shape, order="F")  # MATLAB goes down the columns

    def texts(self) -> tuple[str, ...]:
        """Its texts, one of each cell."""
        count = prod(self.array.shape)
        if self.array.kind != _CELL or count > _MOST_NAMES:
            raise ValueError(f"{shown(self.path)}: its names are no cell array of texts")
        texts, at = [], self.array.contents
        try:
            for _ in range(count):
                cell = _element(self.data, at, self.order)
                inner = _array(self.data, cell.start, self.order) if cell.end > cell.start else None
                texts.append("" if inner is None else self._text(inner))
                at = cell.after
        except EOFError as fault:
            raise self._torn(fault) from fault
        return tuple(texts)

    def _text(self, array: _Array) -> str:
        if array.kind != _CHAR:
            raise EOFError("a name that is no text")
        kind, start, end, _ = _element(self.data, array.contents, self.order)
        ending = "be" if self.order == "big" else "le"
        coding = {4: f"utf-16-{ending}", 17: f"utf-16-{ending}", 18: f"utf-32-{ending}"}
        return self.data[start:end].decode(coding.get(kind, "utf-8"), "replace").strip()

    def _torn(self, fault: BaseException) -> ValueError:
        said = " ".join(shown(str(fault)).split()) or type(fault).__name__
        return ValueError(f"{shown(self.path)}: cannot be read ({said}); fetch it again")


def _require_version(content: bytes) -> _Order:
    order: _Order = "big" if content[126:128] == b"MI" else "little"
    version = int.from_bytes(content[124:126], order)
    if version == 0x0200:
        raise NotImplementedError("of MATLAB 7.3 (HDF5); save it again with -v7")
    if len(content) < _HEADER:
        raise EOFError(f"it ends after {len(content)} bytes, within its header")
    if version != 0x0100:
        raise NotImplementedError("not a .mat file of MATLAB 5 to 7; save it again with -v7")
    return order


def _elements(data: bytes, at: int, end: int, order: _Order) -> Iterator[_Element]:
    """Go over the variables of a file; packed ones follow each other without a gap."""
    while at + 8 <= end:
        element = _element(data, at, order)
        yield element
        at = element.end if element.kind == _COMPRESSED else element.after


def _element(data: bytes, at: int, order: _Order) -> _Element:
    if at + 8 > len(data):
        raise EOFError("a variable ends too early")
    first = int.from_bytes(data[at : at + 4], order)
    if first >> 16:  # up to four bytes stand in the tag itself
        length, kind, start, after = first >> 16, first & 0xFFFF, at + 4, at + 8
        if length > 4:
            raise EOFError("a length that cannot be")
        return _Element(kind, start, start + length, after)
    length, start = int.from_bytes(data[at + 4 : at + 8], order), at + 8
    if start + length > len(data):
        raise EOFError(f"it ends after {len(data)} bytes, within a variable")
    return _Element(first, start, start + length, start + length + -length % 8)


def _unpacked(data: bytes, element: _Element, most: int, *, whole: bool = True) -> bytes:
    """What an element of the file holds, its own tag taken off; whole=False: its beginning."""
    if element.kind == _MATRIX:
        return data[element.start : element.end]
    if element.kind != _COMPRESSED:
        raise EOFError(f"a variable of type {element.kind}")
    stream = zlib.decompressobj()
    unpacked = stream.decompress(data[element.start : element.end], most)
    if whole and stream.unconsumed_tail:
        raise EOFError(f"more than {most} bytes of it unpacked")
    if whole and not stream.eof:  # only then has zlib seen the checksum
        raise EOFError("a variable ends too early")
    return unpacked[8:]


def _array(data: bytes, at: int, order: _Order) -> _Array:
    """Read flags, shape and name of an array."""
    flags = _element(data, at, order)
    shape = _element(data, flags.after, order)
    name = _element(data, shape.after, order)
    word = int.from_bytes(data[flags.start : flags.start + 4], order)
    sizes = [
        int.from_bytes(data[place : place + 4], order, signed=True)
        for place in range(shape.start, shape.end, 4)
    ]
    if not sizes or min(sizes) < 0 or len(sizes) > 32:
        raise EOFError(f"a shape of {sizes[:4]}")
    text = data[name.start : name.end].decode("utf-8", "replace")
    return _Array(word & 0xFF, bool(word >> 8 & _COMPLEX), tuple(sizes), text, name.after)
