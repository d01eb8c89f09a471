"""Read images of any number of bands as they are stored: TIFF, .npy, and grey or RGBA files.

A photograph is read by `image.read_image`, as upright RGB of 8 bits, whatever it is. Here nothing
is converted: satellites and microscopes store counts, and their range means something.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from scaseg.config.model import DTYPES
from scaseg.data.decode import files
from scaseg.data.decode.array import read_header
from scaseg.data.decode.files import Embedded
from scaseg.data.decode.image import (
    IMAGE_SUFFIXES,
    TRANSPOSE,
    image_size,
    open_image,
    quiet_pillow,
    read_image,
    silence_libtiff,
)
from scaseg.errors import UserError
from scaseg.io.paths import shown

BAND_SUFFIXES = (*IMAGE_SUFFIXES, ".npy")
NUMPY = b"\x93NUMPY"
UNPACKED, JPEG_IN_TIFF = 1, (6, 7)
DIFFERENCES, FLOAT_DIFFERENCES = 2, 3  # TIFF's predictors


class Bands(NamedTuple):
    """What the header of an image says; dtype: NumPy's name of one value."""

    height: int
    width: int
    bands: int
    dtype: str

    @property
    def size(self) -> int:
        """The size of the pixels in memory."""
        return self.height * self.width * self.bands * np.dtype(self.dtype).itemsize


def read_pixels(
    path: str | Path | Embedded,
    bands: int | None,
    dtype: str | None = None,
    *,
    max_pixels: int | None = None,
) -> NDArray[Any]:
    """Read an image (H, W, C): a photograph, as RGB of 8 bits, or so many bands as stored."""
    if bands is None:
        return read_image(path, max_pixels=max_pixels)
    return read_bands(path, bands, dtype, max_pixels=max_pixels)


def pixel_size(
    path: str | Path | Embedded, bands: int | None, *, upright: bool, max_pixels: int | None = None
) -> tuple[int, int]:
    """Return (height, width) of an image without decoding it; upright: as EXIF turns it."""
    if bands is None:
        return image_size(path, upright=upright, max_pixels=max_pixels)
    return band_header(path, max_pixels=max_pixels)[:2]


def band_header(path: str | Path | Embedded, *, max_pixels: int | None = None) -> Bands:
    """Return size, bands and type of an image without decoding it; errors as for read_image."""
    return _read(path, max_pixels, header=True)[0]


def read_bands(
    path: str | Path | Embedded,
    count: int,
    dtype: str | None = None,
    *,
    max_pixels: int | None = None,
) -> NDArray[Any]:
    """Read an image of `count` bands, (H, W, count): uint8 where it is stored so, else float32.

    dtype: what the file must hold (None: any of DTYPES). Other numbers of bands and other types are
    refused: their values would mean something else. So are values that are not finite.
    """
    found, pixels = _read(path, max_pixels, wanted=(count, dtype))
    if found.dtype == "uint8":
        return pixels
    with np.errstate(over="ignore"):  # beyond 32 bits: infinite, and refused
        pixels = pixels.astype(np.float32)
    if not np.isfinite(pixels).all():
        remedy = "fill them, with 0 or the mean, and mark them as unlabelled"
        place = path.place if isinstance(path, Embedded) else shown(path)
        raise UserError(place, "has pixels that are not finite", remedy)
    return pixels


def picture(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Show an image (H, W, C) to people as RGB: photographs as they are.

    Otherwise the first three bands (one alone: grey), each stretched so that its 2nd percentile is
    black and its 98th is white.
    """
    if pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return pixels
    some = pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, [0, 0, 0]]
    # of a large image every so many pixels will do
    step = 1 + max(some.shape[:2]) // 1024
    low, high = np.percentile(some[::step, ::step], (2, 98), axis=(0, 1))
    shown = (some - low) / np.where(high > low, high - low, 1)
    return (255 * shown).clip(0, 255).astype(np.uint8)


def _read(
    path: str | Path | Embedded,
    max_pixels: int | None,
    *,
    header: bool = False,
    wanted: tuple[int, str | None] | None = None,
) -> tuple[Bands, NDArray[Any]]:
    limit = files.MAX_PIXELS if max_pixels is None else max_pixels
    pixels: NDArray[Any] = np.empty(0)
    with files.open_untrusted(path, "repair or remove it") as file:
        start = file.read(16)
        file.seek(0)
        if start.startswith(NUMPY):
            found, order, dtype = _npy_header(file)
            if wanted is not None and found.height == wanted[0] != found.bands:
                problem = f"an array of shape {found[:3]}: its bands come first"
                raise UserError("", problem, "transpose it to (height, width, bands)")
            _check(found, limit, wanted)
            if not header:
                pixels = np.frombuffer(file.read(found.size), dtype)
                shape = found[:3]
                pixels = pixels.reshape(shape, order=order).copy()  # ValueError: cut off
            return found, pixels
        if files.image_format(start) == "TIFF":
            silence_libtiff()
            with quiet_pillow():
                layout = _Tiff(file, limit)
                _check(layout.found, limit, wanted)
                return layout.found, pixels if header else layout.read(file)
    with open_image(path, max_pixels, header=header) as (image, orientation, _, _):
        types = {"L": "uint8", "LA": "uint8", "RGB": "uint8", "RGBA": "uint8", "I;16": "uint16"}
        if image.mode not in types:
            raise UserError("", f"{image.mode} pixels", "save the bands as TIFF or .npy")
        width, height = image.size
        if orientation >= 5:
            width, height = height, width
        found = Bands(height, width, len(image.getbands()), types[image.mode])
        _check(found, limit, wanted)
        if not header:
            image.load()
            upright = image.transpose(TRANSPOSE[orientation]) if orientation > 1 else image
            pixels = np.array(upright).reshape(found[:3])
    return found, pixels


def _check(found: Bands, limit: int, wanted: tuple[int, str | None] | None) -> None:
    files.require_pixels(found.width, found.height, limit)
    if found.size > 8 * limit:  # what the largest photograph takes, of 4 channels of 16 bits
        problem = f"{found.bands} bands of {found.width} x {found.height} pixels"
        raise UserError("", problem, f"{8 * limit} bytes are taken, raise --max-pixels or cut it")
    if wanted is not None:
        count, dtype = wanted
        if found.bands != count or (dtype is not None and found.dtype != dtype):
            want = f"{_bands(count)} of {dtype}" if dtype else _bands(count)
            problem = f"has {_bands(found.bands)} of {found.dtype}"
            raise UserError("", problem, f"give an image with {want}")


def _bands(count: int) -> str:
    return f"{count} band" if count == 1 else f"{count} bands"


def _npy_header(file: BinaryIO) -> tuple[Bands, Any, np.dtype[Any]]:
    shape, is_fortran, dtype = read_header(file)
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3 or dtype.name not in DTYPES:
        problem = f"an array of shape {shape}, {dtype.name}"
        raise UserError("", problem, f"give (height, width, bands) of {', '.join(DTYPES)}")
    return Bands(*shape, dtype.name), "F" if is_fortran else "C", dtype


class _Tiff:
    """Where the pixels of a TIFF file lie. Pillow knows no more than 4 bands, of 8 bits.

    Its directory is read by Pillow, its packed strips and tiles are unpacked by libtiff, each as
    a grey image of bytes.
    """

    def __init__(self, file: BinaryIO, limit: int) -> None:
        source: Any = files.Metered(file, limit)
        start = source.read(8)
        if start[2] == 43:  # BigTIFF
            start += source.read(8)
        tags = ImageFileDirectory_v2(start)
        source.seek(tags.next)
        tags.load(source)
        bits, kinds = set(_all(tags, 258, 1)), set(_all(tags, 339, 1))
        kind = {1: "uint", 2: "int", 3: "float"}.get(min(kinds), "?")
        dtype = f"{kind}{min(bits)}"
        if len(bits) > 1 or len(kinds) > 1 or dtype not in DTYPES:
            problem = f"TIFF values of {min(bits)} bits, of unknown type or of several"
            raise UserError("", problem, f"save all bands as one of {', '.join(DTYPES)}")
        count = tags.get(277, 1)
        self.found = Bands(tags[257], tags[256], count, dtype)
        self.order: Literal["<", ">"] = ">" if start[:2] == b"MM" else "<"
        self.packing, self.predictor = tags.get(259, UNPACKED), tags.get(317, 1)
        if self.packing in JPEG_IN_TIFF or tags.get(262) == 3 or tags.get(266, 1) != 1:
            raise UserError("", "a TIFF of JPEG, of a palette or of mirrored bits", "save it plain")
        if tags.get(274, 1) != 1:
            raise UserError("", "a TIFF that is turned by its orientation", "save it upright")
        self.planes = count if tags.get(284, 1) == 2 else 1
        is_tiled = 322 in tags
        self.height, self.width = self.found.height, self.found.width
        if is_tiled:
            self.height, self.width = tags[323], tags[322]
        else:
            self.height = min(tags.get(278, self.height), self.height)
        self.is_tiled = is_tiled
        where = (324, 325) if is_tiled else (273, 279)
        self.starts, self.lengths = (_all(tags, tag) for tag in where)
        most = 8 * limit + (1 << 20)
        if min(self.height, self.width) < 1 or self.chunk_bytes(self.height) > most:
            raise ValueError(f"tiles of {self.width} x {self.height} pixels")
        down, across = -(-self.found.height // self.height), -(-self.found.width // self.width)
        expected = self.planes * down * across
        if not len(self.starts) == len(self.lengths) == expected:
            raise ValueError(f"{len(self.starts)} parts where {expected} make the image")
        end = file.seek(0, io.SEEK_END)
        if sum(self.lengths) > end:  # some twice: unpacking them could take for ever
            raise ValueError("its parts claim more data than the file has")

    def chunk_bytes(self, rows: int) -> int:
        """The size of a strip or tile, unpacked."""
        samples = self.found.bands // self.planes
        return rows * self.width * samples * np.dtype(self.found.dtype).itemsize

    def read(self, file: BinaryIO) -> NDArray[Any]:
        """Unpack all pixels: (H, W, bands)."""
        pixels = np.empty(self.found[:3], self.found.dtype)
        samples = self.found.bands // self.planes
        for (plane, top, left), start, length in zip(
            self._places(), self.starts, self.lengths, strict=True
        ):
            rows = self.height if self.is_tiled else min(self.height, len(pixels) - top)
            file.seek(start)
            data = file.read(length)
            if self.packing != UNPACKED:
                data = _unpack(data, self.packing, self.chunk_bytes(rows) // rows, rows)
            elif len(data) != self.chunk_bytes(rows):
                raise ValueError("some of its pixels are missing")
            block = self._values(np.frombuffer(data, np.uint8), rows, samples)
            part = pixels[top : top + rows, left : left + self.width, plane : plane + samples]
            part[:] = block[: part.shape[0], : part.shape[1]]
        return pixels

    def _places(self) -> Iterator[tuple[int, int, int]]:
        for plane in range(self.planes):
            for top in range(0, self.found.height, self.height):
                for left in range(0, self.found.width, self.width):
                    yield plane, top, left

    def _values(self, data: NDArray[np.uint8], rows: int, samples: int) -> NDArray[Any]:
        """Undo the predictor: bytes -> (rows, width, samples)."""
        dtype = np.dtype(self.found.dtype)
        shape = (rows, self.width, samples)
        if self.predictor == FLOAT_DIFFERENCES:  # of bytes, the highest of all values first
            summed = data.reshape(rows, -1, samples).cumsum(1, dtype=np.uint8)
            planes = summed.reshape(rows, dtype.itemsize, -1).transpose(0, 2, 1)
            return np.ascontiguousarray(planes).view(dtype.newbyteorder(">")).reshape(shape)
        if self.predictor == DIFFERENCES:
            whole = np.dtype(f"{self.order}u{dtype.itemsize}")
            summed = data.view(whole).reshape(shape).cumsum(1, dtype=whole.newbyteorder("="))
            return summed.view(dtype)
        return data.view(dtype.newbyteorder(self.order)).reshape(shape)


def _all(tags: ImageFileDirectory_v2, tag: int, default: int | None = None) -> tuple[int, ...]:
    value = tags[tag] if default is None else tags.get(tag, default)
    return value if isinstance(value, tuple) else (value,)


def _unpack(data: bytes, packing: int, width: int, rows: int) -> bytes:
    """Unpack one strip by libtiff, as a TIFF of its own: grey, `rows` of `width` bytes."""
    entries = {256: width, 257: rows, 258: 8, 259: packing, 262: 1, 277: 1, 278: rows}
    start = 8 + 2 + 12 * (len(entries) + 2) + 4
    entries |= {273: start, 279: len(data)}
    fields = b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items())
    )
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + fields + bytes(4)
    with Image.open(io.BytesIO(head + data), formats=("TIFF",)) as image:
        image.load()
        return image.tobytes()
