"""Opening image files: by content, from a list of formats, within a limit; faults in one line."""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageFile, UnidentifiedImageError

from scaseg.data.decode.containers import PNG, Contents, bmp, jpeg, png, webp
from scaseg.data.decode.orientation import SIDEWAYS, UPRIGHT, orientation
from scaseg.data.decode.tiff import tiff
from scaseg.io.paths import open_regular, shown

# Decoded by content, and by nothing else that Pillow could be talked into
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
# A photograph of 12,000 x 9,000 has 108 million; more than this is held by few machines, and is a
# decompression bomb more often than a photograph
MAX_PIXELS = 250_000_000
# A file is at most so many bytes a pixel (four channels of 16 bits), and some for what else it has
BYTES_A_PIXEL, BYTES_BESIDE = 8, 1 << 26


# Pillow logs what it thinks of a damaged TIFF; without any handler, Python prints that
logging.getLogger("PIL").addHandler(logging.NullHandler())


class TooLargeError(ValueError):
    """A photograph with more pixels than somebody wants to hold."""


class Opened(NamedTuple):
    """An image whose pixels may not be decoded yet, and how it must be turned once they are."""

    image: Image.Image
    turn: int
    stored: tuple[int, int]  # (height, width) as it lies in the file
    upright: tuple[int, int]
    is_one_of_several: bool


@contextmanager
def opened(path: str | Path, *, max_pixels: int | None, header: bool = False) -> Iterator[Opened]:
    """Open an image file; whatever fails within is a ValueError of one line that names the file.

    max_pixels: what has more is refused before any pixel is decoded; None: MAX_PIXELS. header: the
    pixels will not be asked for.
    """
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    with _faults(path), open_regular(path) as file, _pillow_let_be():
        kind = _kind(file.read(512))
        file.seek(0)
        if kind in ("JPEG", "PNG", "WEBP") and not header:  # read as a whole
            _require_fitting(path, os.fstat(file.fileno()).st_size, limit)
        contents = _READERS[kind](file, header=header)
        if contents.size is not None:
            _require_few(path, contents.size, limit)
        contents.file.seek(0)
        with Image.open(contents.file, formats=(kind,)) as image:
            _require_few(path, image.size, limit)
            turn = contents.orientation
            if kind == "WEBP":
                turn = orientation(_bytes(image, "exif"), _bytes(image, "xmp"))
            width, height = image.size
            first, other = (height, width), (width, height)
            if turn not in SIDEWAYS:
                other = first
            more = contents.more or bool(getattr(image, "is_animated", False))
            if kind == "TIFF":  # Pillow gives the size as it will be, and turns it when decoding
                _require_covered(image, other)
                yield Opened(image, UPRIGHT, other, first, more)
            else:
                yield Opened(image, turn, first, other, more)


def _require_covered(image: ImageFile.ImageFile, size: tuple[int, int]) -> None:
    """Refuse a TIFF some of whose strips are missing: Pillow would leave them black, class 0."""
    if image.tile and max(tile.extents[3] for tile in image.tile if tile.extents) < size[0]:
        raise ValueError("some of its pixels are missing")


def _bytes(image: Image.Image, key: str) -> bytes:
    found = image.info.get(key)
    return found if isinstance(found, bytes) else b""


_READERS: dict[str, Callable[..., Contents]] = {
    "JPEG": jpeg,
    "PNG": png,
    "BMP": bmp,
    "TIFF": tiff,
    "WEBP": webp,
}
_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    PNG: "PNG",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
}
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


class _NotAnImageError(ValueError):
    """A file of another kind: what it is, and what can be done."""


def _kind(start: bytes) -> str:
    """Tell the format by the first bytes; ValueError says what it is instead, where that shows."""
    for sign, kind in _STARTS.items():
        if start.startswith(sign):
            return kind
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WEBP"
    for pattern, name, remedy in _OTHERS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            raise _NotAnImageError(f"not an image (it is {name}); {remedy}")
    raise _NotAnImageError(f"not an image ({', '.join(FORMATS)} are read)")


def _require_few(path: str | Path, size: tuple[int, int], limit: int) -> None:
    width, height = size
    if width * height > limit:
        raise TooLargeError(
            f"{shown(path)}: {width} x {height} pixels; at most {limit} are taken, raise "
            "--max-pixels or make it smaller"
        )
    if width < 1 or height < 1:
        raise ValueError(f"{width} x {height} pixels")


def _require_fitting(path: str | Path, size: int, limit: int) -> None:
    most = BYTES_A_PIXEL * limit + BYTES_BESIDE
    if size > most:
        raise TooLargeError(
            f"{shown(path)}: {size} bytes; at most {most} are taken for {limit} pixels, raise "
            "--max-pixels or save it again"
        )


@contextmanager
def _faults(path: str | Path) -> Iterator[None]:
    """Say in one line what is wrong with a file; a decoder given a bad one raises anything."""
    name = shown(path)
    try:
        yield
    except _NotAnImageError as fault:
        raise ValueError(f"{name}: {fault}") from fault
    except UnidentifiedImageError as fault:  # it begins like one
        raise ValueError(f"{name}: not an image ({', '.join(FORMATS)} are read)") from fault
    except Exception as fault:
        if isinstance(fault, ValueError) and str(fault).startswith(f"{name}: "):
            raise
        said = " ".join(shown(str(fault)).split()) or type(fault).__name__
        raise ValueError(f"{name}: cannot be read ({said}); repair or remove it") from fault


_lock = threading.Lock()
_readers = 0
_before: list[Any] = []


@contextmanager
def _pillow_let_be() -> Iterator[None]:
    """Lift Pillow's own limit, which warns at 89 million pixels and refuses at 179: ours counts.

    Nor need it warn of damage: what cannot be read is an error, and the rest is as good as it gets.
    Both settings are the process's; many threads read at once, and the last one out restores them.
    """
    global _readers
    with _lock:
        if not _readers:
            quiet = warnings.catch_warnings()
            quiet.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\b")
            _before[:] = [quiet, Image.MAX_IMAGE_PIXELS]
            Image.MAX_IMAGE_PIXELS = None
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if not _readers:
                quiet, Image.MAX_IMAGE_PIXELS = _before
                quiet.__exit__(None, None, None)
