"""Which way up a photograph is: one number out of EXIF or XMP, and turning by it.

Read by hand: a general reader of EXIF follows every pointer of a damaged block, and copies what
thousands of entries all point to.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from PIL import Image

ORIENTATION: Final = 0x0112  # the EXIF tag that says which way up a photograph is
UPRIGHT: Final = 1
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # width and height change places
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')
_NUMBERS = {1: "B", 3: "H", 4: "I"}  # types of an entry that can hold it


def orientation(exif: bytes, xmp: bytes = b"") -> int:
    """Find the orientation, 1 to 8; damage, and what nobody wrote, is upright.

    >>> orientation(b"", b'<rdf:Description tiff:Orientation="6"/>')
    6
    """
    try:
        found = _of_exif(exif.removeprefix(b"Exif\0\0"))
    except struct.error:  # cut off
        found = None
    if found is None:
        said = _XMP.search(xmp)
        found = int(said[1]) if said else UPRIGHT
    return found if found in TURNS else UPRIGHT


def _of_exif(block: bytes) -> int | None:
    """Look through the first directory of a TIFF structure."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        return None
    (start,) = struct.unpack_from(f"{order}I", block, 4)
    (entries,) = struct.unpack_from(f"{order}H", block, start)
    for at in range(start + 2, start + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", block, at)
        if tag == ORIENTATION:
            if kind not in _NUMBERS or not count:
                return None
            value: int = struct.unpack_from(order + _NUMBERS[kind], block, at + 8)[0]
            return value
    return None


def orientation_of(image: Image.Image) -> int:
    """Find the orientation of an image that is open already, as its owner may have changed it."""
    try:
        found = image.getexif().get(ORIENTATION, UPRIGHT)
        return found if isinstance(found, int) and found in TURNS else UPRIGHT
    except Exception:  # damaged EXIF fails in any way, and the pixels are there all the same
        return UPRIGHT


def turned(image: Image.Image, by: int) -> Image.Image:
    """Turn an image upright; it is not copied where it is so already."""
    return image.transpose(TURNS[by]) if by in TURNS else image
