"""Reading photographs and label maps as they lie on people's disks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
# Decoded by content, and by nothing else that Pillow could be talked into
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
ORIENTATION = 0x0112  # the EXIF tag that says which way up a photograph is


def read_image(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.uint8]:
    """Read a photograph upright, as RGB: (H, W, 3). ValueError names the file and the fault.

    What has more than max_pixels is refused before it is decoded.
    """
    with _open(path, max_pixels=max_pixels) as image, _faults(path):
        return rgb(image)


def rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Bring a PIL image to upright RGB, (H, W, 3), of 8 bits; transparency shows white."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow's own conversion would clip at 255
        grey = np.asarray(image).astype(np.uint16)
        grey = ((grey.astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise ValueError(f"{image.mode} pixels of 32 bits, of unknown range; save it with 8 or 16")
    if image.has_transparency_data:
        # what was made invisible was not meant to be seen; paper is white
        layers = image.convert("RGBA")
        paper = Image.new("RGBA", layers.size, "white")
        image = Image.alpha_composite(paper, layers)
    return np.array(image.convert("RGB"))  # a copy can be written to


def read_labels(path: str | Path) -> NDArray[np.int32]:
    """Read a label map: (H, W) class indices from an 8- or 16-bit grey or a palette image.

    Indices of a palette image are its labels; its colours are decoration. RGB and lossy files are
    refused: their values are not class indices.
    """
    with _open(path) as image:
        if image.format == "JPEG":
            raise ValueError(f"{path}: a JPEG label map; its values are blurred, use PNG")
        if image.mode not in ("L", "P", "I", "I;16", "I;16B", "1"):
            raise ValueError(
                f"{path}: a {image.mode} label map; give one channel with a class index a pixel"
            )
        return np.asarray(image).astype(np.int32)  # a two-valued image gives 0 and 1


def image_size(path: str | Path, *, upright: bool) -> tuple[int, int]:
    """Return (height, width) without decoding the pixels; upright: as EXIF turns the photograph."""
    with _open(path, decode=False) as image, _faults(path):
        width, height = image.size
        # Pillow gives the size of a TIFF as it will be turned, of all others as it is stored
        if upright == (image.format == "TIFF"):
            return height, width  # and need not look for EXIF, which in a PNG may stand at its end
        turned = image.getexif().get(ORIENTATION, 1) in (5, 6, 7, 8)
        return (width, height) if turned else (height, width)


def _open(path: str | Path, *, decode: bool = True, max_pixels: int | None = None) -> Image.Image:
    with _faults(path):
        image = Image.open(path, formats=FORMATS)
        try:
            width, height = image.size
            if max_pixels is not None and width * height > max_pixels:
                raise TooLargeError(
                    f"{path}: {width} x {height} pixels; at most {max_pixels} are taken, raise "
                    "--max-pixels or make it smaller"
                )
            if decode:
                image.load()
        except BaseException:
            image.close()
            raise
        return image


class TooLargeError(ValueError):
    """A photograph with more pixels than somebody wants to hold."""


@contextmanager
def _faults(path: str | Path) -> Iterator[None]:
    """Say in one line what is wrong with a file; a decoder given a bad one raises anything."""
    try:
        yield
    except TooLargeError:
        raise
    except IsADirectoryError as fault:
        raise ValueError(f"{path}: is a folder; give a file") from fault
    except FileNotFoundError as fault:
        raise ValueError(f"{path}: no such file") from fault
    except UnidentifiedImageError as fault:
        raise ValueError(f"{path}: not an image ({', '.join(FORMATS)} are read)") from fault
    except Exception as fault:
        said = " ".join(str(fault).split()) or type(fault).__name__
        raise ValueError(f"{path}: cannot be read ({said}); repair or remove it") from fault
