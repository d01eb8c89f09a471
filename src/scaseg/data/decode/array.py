"""Read label maps that NumPy saved (.npy): numbers alone, within limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from scaseg.data.decode import files
from scaseg.errors import UserError


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, whether it is in Fortran's order, and type; the numbers come next."""
    # arrays of numbers are never saved in other versions: those have names in UTF-8
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    return readers[npy.read_magic(file)](file)


def read_label_array(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a label map, (H, W) class indices, from an array of whole numbers."""
    with files.open_untrusted(path, "save it again with numpy.save") as file:
        shape, fortran, kind = read_header(file)
        if kind.kind not in "bui" or kind.hasobject:
            raise UserError("", f"an array of {kind}", "save the labels as whole numbers")
        sides = [side for side in shape if side != 1] if len(shape) == 3 else list(shape)
        if len(sides) != 2 or 0 in sides:
            shown = " x ".join(map(str, shape)) or "a single number"
            raise UserError("", f"an array of {shown}", "give (height, width)")
        height, width = sides
        files.require_pixels(width, height, files.MAX_PIXELS if max_pixels is None else max_pixels)
        size = height * width * kind.itemsize
        if os.fstat(file.fileno()).st_size - file.tell() != size:
            raise ValueError("the file is cut off, or has more than its array")
        values = np.frombuffer(file.read(size), kind).reshape(sides, order="F" if fortran else "C")
        if values.min() < -(2**31) or values.max() >= 2**31:
            raise UserError("", f"holds {values.max()}", "give class indices")
        return values.astype(np.int32)
