"""Open files that may be damaged or hostile: by content, within limits, errors in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from scaseg.errors import UserError, one_line
from scaseg.io.paths import open_regular, shown

# A photograph of 12,000 x 9,000 has 108 million; more than this is held by few machines, and is a
# decompression bomb more often than a photograph
MAX_PIXELS = 250_000_000
MAX_READS = 32_768  # of metadata: a directory of 4,096 entries, twice for its data, some times over

# Recognized by content; nothing else that Pillow supports is decoded
_STARTS = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "BMP": rb"BM",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "WEBP": rb"RIFF....WEBP",
}
FORMATS = tuple(_STARTS)
_SAVE = f"save it as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
_TEXT = rb"(?:\xef\xbb\xbf)?\s*"
# What people do find under a name that ends in .jpg, and what they can do about it
_OTHERS = (
    (rb"GIF8", "a GIF", _SAVE),
    (rb"%PDF", "a PDF", _SAVE),
    (rb"%!PS|\xc5\xd0\xd3\xc6", "PostScript (EPS)", _SAVE),
    (rb"....ftyp(?:hei|hev|mif|msf)", "HEIC, as phones write it", _SAVE),
    (rb"....ftypavi", "AVIF", _SAVE),
    (rb"....ftyp", "a film", _SAVE),
    (rb"\x00\x00\x00\x0cJXL|\xff\x0a", "JPEG XL", _SAVE),
    (rb"\x00\x00\x00\x0cjP|\xff\x4f\xff\x51", "JPEG 2000", _SAVE),
    (rb"8BPS", "Photoshop's own (PSD)", _SAVE),
    (rb"PK\x03\x04", "an archive (ZIP)", "unpack it"),
    (rb"\x89HDF", "HDF5", _SAVE),
    (rb"version https://git-lfs", "a pointer of Git LFS", "run `git lfs pull`"),
    (_TEXT + rb"(?:<\?xml[^>]*>\s*)?(?:<!.{0,300}?>\s*)*<svg", "SVG, a drawing", _SAVE),
    (_TEXT + rb"<(?:!doctype|html|head|body)", "a web page (HTML)", "fetch it again"),
    (_TEXT + rb"<\?xml", "XML", "fetch it again"),
    (rb"$", "empty", "fetch it again"),
)


@contextmanager
def open_untrusted(path: str | Path, remedy: str) -> Iterator[BinaryIO]:
    """Open a regular file; whatever fails within is a UserError of one line that names it.

    UserErrors without a place get the file's name. All other errors, of a decoder or of ours, mean
    that the file "cannot be read", with their text as the detail.
    """
    with open_regular(path) as file:
        try:
            yield file
        except UserError as error:
            raise error.within(shown(path)) from error
        except Exception as error:  # a decoder given a damaged file raises anything
            detail = one_line(str(error)) or type(error).__name__
            raise UserError(shown(path), "cannot be read", remedy, detail) from error


def image_format(start: bytes) -> str:
    """Return the format by the first bytes; the UserError says what the file is instead."""
    for name, pattern in _STARTS.items():
        if re.match(pattern, start, re.DOTALL):
            return name
    for pattern, other, remedy in _OTHERS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            raise UserError("", "not an image", remedy, f"it is {other}")
    raise not_an_image()


def not_an_image() -> UserError:
    """Return the error for a file of unknown format."""
    return UserError("", "not an image", f"{', '.join(FORMATS)} are read")


def max_bytes(pixels: int) -> int:
    """Return the size of the largest file of so many pixels: 4 channels of 16 bits, metadata."""
    return 8 * pixels + (1 << 26)


def require_bytes(file: BinaryIO, limit: int) -> None:
    """Raise a UserError if a file is far larger than an image of so many pixels can be."""
    size, most = os.fstat(file.fileno()).st_size, max_bytes(limit)
    if size > most:
        remedy = f"at most {most} are taken for {limit} pixels, raise --max-pixels or save it again"
        raise UserError("", f"{size} bytes", remedy)


def require_pixels(width: int, height: int, limit: int) -> None:
    """Raise a UserError if an image has more pixels than the limit."""
    if width * height > limit:
        remedy = f"at most {limit} are taken, raise --max-pixels or make it smaller"
        raise UserError("", f"{width} x {height} pixels", remedy)
    if width < 1 or height < 1:
        raise ValueError(f"{width} x {height} pixels")


class Metered:
    """A TIFF file whose directories may claim no more data than there are, for Pillow to read.

    Pillow copies what every entry of a directory points to: thousands of entries that share one
    megabyte take gigabytes. In a sound file every byte belongs to one entry at most, and Pillow
    reads a directory three times. It would also go on without the entries that it cannot read.
    """

    def __init__(self, file: BinaryIO, max_pixels: int) -> None:
        size = min(os.fstat(file.fileno()).st_size, max_bytes(max_pixels))
        self._file = file
        self._bytes, self._reads = 4 * size + (1 << 16), MAX_READS
        self.is_metered = True  # False: what follows are pixels

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._bytes -= len(data)
        self._reads -= 1
        if self.is_metered and (len(data) < size or self._bytes < 0 or self._reads < 0):
            raise ValueError("its directories claim more data than the file has")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
