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


class _Element(NamedTuple):
    """The type of an element, where its contents are, and where the next element begins."""

    kind: int
    start: int
    end: int
    after: int


class _Array(NamedTuple):
    """What an array says of itself before its contents, and where these begin."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    contents: int


def read_label_map(path: Path, key: str, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a variable as (H, W) whole numbers, wide enough for arithmetic: files hold uint8.

    A variable with more than max_pixels (None: MAX_PIXELS) is refused before it is unpacked. A
    UserError of one line names the file and what is wrong with it.
    """
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    with open_untrusted(path, _REMEDY) as file:
        require_bytes(file, limit)
        variable = _Bytes.of_variable(file.read(), key, 8 * limit + _BESIDE)
        kind, is_complex, shape, _, contents = variable.array(0)
        if kind not in _NUMBERS or is_complex or len(shape) != 2 or 0 in shape:
            what = _OTHERS.get(kind) or np.dtype(_NUMBERS.get(kind, "V")).name
            remedy = "a label map has a number a pixel, height x width"
            raise UserError("", f"{key} is {what} of shape {shape}", remedy)
        require_pixels(shape[1], shape[0], limit)
        values = variable.numbers(contents, shape)
        with np.errstate(invalid="ignore"):  # NaN: refused below
            whole = values.astype(np.int32)
        if not np.array_equal(whole, values):  # MATLAB's default type is double
            raise UserError("", f"{key} holds fractions", "class ids are whole numbers")
        return whole


def read_names(path: Path) -> tuple[str, ...]:
    """Read the cell array `names`, whether a row or a column."""
    with open_untrusted(path, _REMEDY) as file:
        require_bytes(file, MAX_PIXELS)
        variable = _Bytes.of_variable(file.read(), "names", _MAX_NAME_BYTES)
        array = variable.array(0)
        count, at = prod(array.shape), array.contents
        if array.kind != _CELL or count > _MAX_NAMES:
            raise UserError("", "its names are no cell array of texts", _REMEDY)
        texts = []
        for _ in range(count):
            cell = variable.element(at)
            texts.append(variable.text(cell.start) if cell.end > cell.start else "")
            at = cell.after
        return tuple(texts)


class _Bytes:
    """The contents of a file or of a variable, in its byte order; EOFError where they end."""

    def __init__(self, data: bytes, order: Literal["little", "big"]) -> None:
        self.data, self.order = data, order

    @classmethod
    def of_variable(cls, content: bytes, key: str, most: int) -> _Bytes:
        """Find a variable of a file and unpack it to at most so many bytes."""
        file = cls(content, "big" if content[126:128] == b"MI" else "little")
        version = file.number(124, 126)
        if version == 0x0200:
            raise UserError("", "of MATLAB 7.3 (HDF5)", "save it again with -v7")
        if len(content) < _HEADER:
            raise EOFError(f"it ends after {len(content)} bytes, within its header")
        if version != 0x0100:
            raise UserError("", "not a .mat file of MATLAB 5 to 7", "save it again with -v7")
        names, at = [], _HEADER
        while at + 8 <= len(content):
            element = file.element(at)
            name = cls(file.unpack(element, _BESIDE, whole=False), file.order).array(0).name
            if name == key:
                return cls(file.unpack(element, most), file.order)
            names.append(shown(name))
            # packed variables follow each other without a gap
            at = element.end if element.kind == _COMPRESSED else element.after
        others = ", ".join(names[:20]) or "nothing"
        raise UserError("", f"has no {key}, but {others}", "is it a label map?")

    def number(self, start: int, end: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.data[start:end], self.order, signed=signed)

    def element(self, at: int) -> _Element:
        if at + 8 > len(self.data):
            raise EOFError("a variable ends too early")
        kind, length, start = self.number(at, at + 4), self.number(at + 4, at + 8), at + 8
        if kind >> 16:  # up to four bytes stand in the tag itself
            length, kind, start = kind >> 16, kind & 0xFFFF, at + 4
            if length > 4:
                raise EOFError("a length that cannot be")
            return _Element(kind, start, start + length, at + 8)
        if start + length > len(self.data):
            raise EOFError(f"it ends after {len(self.data)} bytes, within a variable")
        return _Element(kind, start, start + length, start + length + -length % 8)

    def unpack(self, element: _Element, most: int, *, whole: bool = True) -> bytes:
        """Return the contents of an element without its own tag; whole=False: the beginning."""
        contents = self.data[element.start : element.end]
        if element.kind == _MATRIX:
            return contents
        if element.kind != _COMPRESSED:
            raise EOFError(f"a variable of type {element.kind}")
        stream = zlib.decompressobj()
        unpacked = stream.decompress(contents, most)
        if whole and stream.unconsumed_tail:
            raise EOFError(f"more than {most} bytes of it unpacked")
        if whole and not stream.eof:  # only then has zlib seen the checksum
            raise EOFError("a variable ends too early")
        return unpacked[8:]

    def array(self, at: int) -> _Array:
        """Read flags, shape and name of an array."""
        flags = self.element(at)
        shape = self.element(flags.after)
        name = self.element(shape.after)
        word = self.number(flags.start, flags.start + 4)
        starts = range(shape.start, shape.end, 4)
        sizes = tuple(self.number(start, start + 4, signed=True) for start in starts[:33])
        if not sizes or min(sizes) < 0 or len(sizes) > 32:
            raise EOFError(f"a shape of {sizes[:4]}")
        text = self.data[name.start : name.end].decode("utf-8", "replace")
        return _Array(word & 0xFF, bool(word >> 8 & _COMPLEX), sizes, text, name.after)

    def numbers(self, at: int, shape: tuple[int, ...]) -> NDArray[np.generic]:
        kind, start, end, _ = self.element(at)
        if kind not in _STORED:
            raise EOFError(f"numbers of type {kind}")
        stored = np.dtype(_STORED[kind]).newbyteorder(">" if self.order == "big" else "<")
        if end - start != stored.itemsize * prod(shape):
            raise EOFError(f"{end - start} bytes for {shape} numbers")
        flat = np.frombuffer(self.data, stored, prod(shape), start)
        return flat.reshape(shape, order="F")  # MATLAB goes down the columns

    def text(self, at: int) -> str:
        array = self.array(at)
        if array.kind != _CHAR:
            raise EOFError("a name that is no text")
        kind, start, end, _ = self.element(array.contents)
        ending = "be" if self.order == "big" else "le"
        coding = {4: f"utf-16-{ending}", 17: f"utf-16-{ending}", 18: f"utf-32-{ending}"}
        return self.data[start:end].decode(coding.get(kind, "utf-8"), "replace").strip()
