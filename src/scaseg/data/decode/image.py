"""Read photographs and label maps.

Of animated files, of several pages and of a phone's JPEG with more than one picture (MPO) a
photograph is the first; a label map must be the only one.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, TiffTags, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from scaseg.data.decode import files
from scaseg.data.decode.array import read_label_array
from scaseg.data.decode.files import ORIENTATION, UPRIGHT, Embedded
from scaseg.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
# pictures that people keep beside those, and that are not decoded here
OTHER_SUFFIXES = (".heic", ".heif", ".avif", ".gif", ".jxl", ".jp2", ".dng", ".cr2", ".nef", ".arw")
JPEG = (".jpg", ".jpeg")  # whose values are blurred: no label maps
MAX_RLE_WIDTH = 1 << 16  # of a run-length coded BMP: Pillow allocates 255 rows at one escape
PHOTOMETRIC = 262  # the tag of a TIFF that says whether 0 is black
BAND = 1 << 20  # pixels that are converted at a time
TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow logs what it finds in a damaged TIFF; without any handler, Python prints that
logging.getLogger("PIL").addHandler(logging.NullHandler())


def read_image(path: str | Path | Embedded, *, max_pixels: int | None = None) -> NDArray[np.uint8]:
    """Read a photograph as upright RGB, (H, W, 3).

    A file with more than max_pixels (None: MAX_PIXELS) is refused before it is decoded. A
    UserError of one line names the file and what is wrong with it.
    """
    with open_image(path, max_pixels) as (image, orientation, _, _):
        image.load()
        is_turned = image.format == "TIFF"  # by Pillow, when decoding
        return _to_rgb(image, UPRIGHT if is_turned else orientation)


def read_labels(path: str | Path | Embedded, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a label map, (H, W) class indices, from an 8- or 16-bit grey or a palette image.

    Arrays that NumPy saved (.npy) are read too.
    The labels of a palette image are its indices, whatever its colours; of a two-valued one white
    is 1. RGB and lossy files are refused: their values are not class indices. max_pixels and errors
    as for read_image.
    """
    if not isinstance(path, Embedded) and _is_array(path):
        return read_label_array(path, max_pixels=max_pixels)
    with open_image(path, max_pixels) as (image, _, _, several):
        _refuse_lossy(image, "its values are blurred, use PNG")
        if image.mode not in ("L", "P", "I", "I;16", "I;16B", "1"):
            remedy = "give one channel with a class index a pixel"
            if image.mode in ("RGB", "RGBA"):
                remedy += ", or convert colours: `scaseg data prepare colors SRC DST`"
            raise UserError("", f"a {image.mode} label map", remedy)
        if several:
            raise UserError("", "a label map of several pages", "give a file for each")
        if bits := _few_bits(image):
            remedy = f"save it with 8: some tools read 1 as {255 // (2**bits - 1)}"
            raise UserError("", f"a grey label map of {bits} bits", remedy)
        if image.mode != "1" and _white_is_zero(image):  # Pillow turns 8 bits over, GDAL does not
            problem = "a grey label map in which white is 0"
            raise UserError("", problem, "save it as PNG: tools read other values of it")
        image.load()
        return np.asarray(image).astype(np.int32)  # a two-valued image gives 0 and 1


def read_colors(
    path: str | Path, *, lossy: bool = False, max_pixels: int | None = None
) -> NDArray[np.uint8]:
    """Read a label map whose classes are colours, (H, W, 3) RGB; of a palette image its colours.

    Transparency is ignored. lossy: also from JPEG, whose colours are near those that were saved.
    max_pixels and errors as for read_image.
    """
    with open_image(path, max_pixels) as (image, _, _, several):
        if not lossy:
            _refuse_lossy(image, "its colours are blurred: use PNG, or --unknown-colors nearest")
        if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA"):
            raise UserError("", f"a {image.mode} label map", "give one of RGB colours")
        if several:
            raise UserError("", "a label map of several pages", "give a file for each")
        image.load()
        return np.asarray(image.convert("RGB"))


def read_mask(data: bytes, *, max_pixels: int) -> NDArray[np.bool_]:
    """Read a mask, (H, W), from a PNG in another file: what is neither 0 nor transparent.

    The UserError has no place.
    """
    with open_image(Embedded(data, ""), max_pixels) as (image, *_):
        image.load()
        if image.has_transparency_data:
            return np.asarray(image.convert("RGBA").getchannel("A")) > 0
        set_ = np.asarray(image) != 0
        return set_.any(axis=2) if set_.ndim == 3 else set_


def png_palette(path: Path, *, max_pixels: int | None = None) -> list[tuple[int, ...]]:
    """Return the colours of a palette PNG, without decoding its pixels; of other files none."""
    if _is_array(path):
        return []
    with open_image(path, max_pixels, header=True) as (image, *_):
        if image.format != "PNG" or image.mode != "P" or image.palette is None:
            return []
        levels = bytes(image.palette.palette)
        return [tuple(levels[at : at + 3]) for at in range(0, len(levels), 3)]


def is_veiled(path: str | Path | Embedded, *, max_pixels: int | None = None) -> bool:
    """Whether most pixels of a photograph are partly transparent, as a fourth band looks."""
    if image_mode(path, max_pixels=max_pixels) != "RGBA":
        return False
    with open_image(path, max_pixels) as (image, *_):
        alpha = np.asarray(image.getchannel("A"))
        return bool(2 * np.count_nonzero((alpha > 0) & (alpha < 255)) > alpha.size)


def image_mode(path: str | Path | Embedded, *, max_pixels: int | None = None) -> str:
    """Return how pixels are stored, without decoding them: L, P, RGB, ..."""
    with open_image(path, max_pixels, header=True) as (image, *_):
        return image.mode


def _is_array(path: str | Path) -> bool:
    """Whether NumPy saved a label map."""
    return Path(path).suffix.lower() == ".npy"


def _refuse_lossy(image: Image.Image, remedy: str) -> None:
    if image.format == "JPEG" or image.info.get("compression") in ("jpeg", "tiff_jpeg"):
        raise UserError("", "a JPEG label map", remedy)


def _few_bits(image: Image.Image) -> int:
    """Bits a pixel of a grey image that Pillow spreads to 8, as brightness; 0 where it does not.

    Of 2 bits the last class would be 255, unlabelled.
    """
    for tile in getattr(image, "tile", ()) if image.mode == "L" else ():
        args = tile.args if isinstance(tile.args, str) else str(tile.args[0])
        if found := re.match("L;([24])", args):
            return int(found[1])
    return 0


def _white_is_zero(image: Image.Image) -> bool:
    return isinstance(image, TiffImageFile) and image.tag_v2.get(PHOTOMETRIC) == 0


def image_size(
    path: str | Path | Embedded, *, upright: bool, max_pixels: int | None = None
) -> tuple[int, int]:
    """Return (height, width) without decoding the pixels; upright: as EXIF turns the photograph."""
    with open_image(path, max_pixels, header=True) as (_, orientation, (width, height), _):
        return (width, height) if upright and orientation >= 5 else (height, width)


def image_orientation(path: str | Path | Embedded, *, max_pixels: int | None = None) -> int:
    """Return the EXIF orientation of a photograph, 1 to 8; 1: it is stored upright."""
    with open_image(path, max_pixels, header=True) as (_, orientation, _, _):
        return orientation


def turn(labels: NDArray[np.int32], orientation: int) -> NDArray[np.int32]:
    """Turn labels (H, W) as a photograph of this EXIF orientation is turned on reading."""
    if orientation not in TRANSPOSE:
        return labels
    return np.asarray(Image.fromarray(labels).transpose(TRANSPOSE[orientation]))


def rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Convert a PIL image to upright RGB, (H, W, 3) of 8 bits; transparency becomes white."""
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF fails in any way, and the pixels are there all the same
        orientation = UPRIGHT
    return _to_rgb(image, orientation)


def _to_rgb(image: Image.Image, orientation: Any) -> NDArray[np.uint8]:
    """Convert band by band: in one piece a large photograph would be held five times."""
    is_negative = image.mode.startswith("I;16") and _white_is_zero(image)  # others: by Pillow
    if orientation in TRANSPOSE:
        image = image.transpose(TRANSPOSE[orientation])
    if image.mode in ("I", "F"):
        remedy = "save it with 8 or 16"
        raise UserError("", f"{image.mode} pixels of 32 bits, of unknown range", remedy)
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        band = (0, top, image.width, min(top + rows, image.height))
        pixels[top : band[3]] = _band_to_rgb(image if rows >= image.height else image.crop(band))
    return 255 - pixels if is_negative else pixels


def _band_to_rgb(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode.startswith("I;16"):  # Pillow's own conversion would clip at 255
        gray = np.asarray(image).astype(np.uint16).astype(np.uint32)
        return np.repeat(((gray + 128) // 257).astype(np.uint8)[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        # what was made invisible was not meant to be seen; paper is white
        layers = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


# an image, its orientation, width and height as in the file, whether the file has several images
_Opened = tuple[Image.Image, int, tuple[int, int], bool]


@contextmanager
def open_image(
    path: str | Path | Embedded, max_pixels: int | None, *, header: bool = False
) -> Iterator[_Opened]:
    """Open an image within limits, not decoded yet; header: its pixels will not be needed."""
    limit = files.MAX_PIXELS if max_pixels is None else max_pixels
    with files.open_untrusted(path, "repair or remove it") as file, quiet_pillow():
        start = file.read(512)
        kind = files.image_format(start)
        file.seek(0)
        source: Any = file
        orientation, several = UPRIGHT, False
        if kind in ("JPEG", "PNG", "WEBP"):  # read as a whole
            files.require_bytes(file, limit)
        if kind == "WEBP":
            files.require_pixels(*files.webp_size(start), limit)
        elif kind == "TIFF":
            silence_libtiff()
            source = files.Metered(file, limit)
        elif kind != "BMP":
            strip = files.strip_jpeg if kind == "JPEG" else files.strip_png
            source, orientation, several = strip(file, header=header)
        try:
            image = Image.open(source, formats=(kind,))
        except UnidentifiedImageError as error:  # it only begins like one
            raise files.not_an_image() from error
        with image:
            stored = image.size
            files.require_pixels(*stored, limit)
            if kind == "WEBP":
                exif, xmp = image.info.get("exif", b""), image.info.get("xmp", b"")
                orientation = files.find_orientation(exif, xmp)
            elif isinstance(image, TiffImageFile):
                stored, orientation = _read_tiff(image)
                source.is_metered = False
            elif image.width > MAX_RLE_WIDTH and image.tile[0].codec_name == "bmp_rle":
                raise ValueError(f"a BMP in run-length codes, wider than {MAX_RLE_WIDTH} pixels")
            several = several or bool(getattr(image, "is_animated", False))
            yield image, orientation, stored, several


def _read_tiff(image: TiffImageFile) -> tuple[tuple[int, int], int]:
    """Return width and height as stored, and the orientation; refuse a TIFF that lacks strips."""
    width, height = image.tag_v2[256], image.tag_v2[257]
    if image.tile and max(tile.extents[3] for tile in image.tile if tile.extents) < height:
        raise ValueError("some of its pixels are missing")  # Pillow leaves them black, class 0
    tags = image.getexif()
    for group in TiffTags.TAGS_V2_GROUPS:
        if group in tags:  # EXIF and GPS: not needed, and Pillow would read them
            del tags[group]
    orientation = tags.get(ORIENTATION)
    return (width, height), orientation if orientation in TRANSPOSE else UPRIGHT


@cache
def silence_libtiff() -> None:
    """Stop libtiff from printing to stderr.

    It prints what it finds in a damaged file, and Pillow has no switch for that; the library in
    Pillow's wheels has. Where there is none (Windows), nothing is done.
    """
    package = Path(PIL.__file__).parent
    for path in (*package.parent.glob("pillow.libs/libtiff*"), *package.glob(".dylibs/libtiff*")):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(str(path))  # the one that is loaded already
            for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
                setter = getattr(library, name)
                setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
                setter(None)


_lock = threading.Lock()
_readers = 0
_before: list[Any] = []


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Lift Pillow's own limit, which warns at 89 million pixels and refuses at 179, and warnings.

    Both settings belong to the process; many threads read at once, and the last one restores them.
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
