"""Reading photographs and label maps as they lie on people's disks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
# Decoded by content, and by nothing else that Pillow could be talked into
FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP")
ORIENTATION = 0x0112  # the EXIF tag that says which way up a photograph is


def read_image(path: str | Path) -> NDArray[np.uint8]:
    """Read a photograph upright, as RGB: (H, W, 3). ValueError names the file and the fault."""
    with _open(path) as image:
        return np.array(ImageOps.exif_transpose(image).convert("RGB"))  # a copy can be written to


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
    with _open(path, decode=False) as image:
        width, height = image.size
        turned = upright and image.getexif().get(ORIENTATION, 1) >= 5
        return (width, height) if turned else (height, width)


def _open(path: str | Path, *, decode: bool = True) -> Image.Image:
    try:
        image = Image.open(path, formats=FORMATS)
        try:
            if decode:
                image.load()
        except BaseException:
            image.close()
            raise
        return image
    except FileNotFoundError as fault:
        raise ValueError(f"{path}: no such file") from fault
    except UnidentifiedImageError as fault:
        raise ValueError(f"{path}: not an image ({', '.join(FORMATS)} are read)") from fault
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as fault:
        raise ValueError(f"{path}: cannot be read ({fault}); repair or remove it") from fault
