"""Reading photographs and label maps as they lie on people's disks.

Of animated files, of those with several pages and of a phone's JPEG with more than one picture
(MPO) a photograph is the first; a label map must be one alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scaseg.data.decode.opening import FORMATS, MAX_PIXELS, TooLargeError, opened
from scaseg.data.decode.orientation import ORIENTATION, orientation_of, turned
from scaseg.io.paths import shown

__all__ = [
    "FORMATS",
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "ORIENTATION",
    "TooLargeError",
    "image_size",
    "read_image",
    "read_labels",
    "rgb",
]

BAND = 1 << 20  # pixels that are converted at a time
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")


def read_image(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.uint8]:
    """Read a photograph upright, as RGB: (H, W, 3). ValueError names the file and the fault.

    What has more than max_pixels (None: MAX_PIXELS) is refused before it is decoded.
    """
    with opened(path, max_pixels=max_pixels) as found:
        found.image.load()
        return _rgb(turned(found.image, found.turn))


def rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Bring a PIL image to upright RGB, (H, W, 3), of 8 bits; transparency shows white."""
    return _rgb(turned(image, orientation_of(image)))


def _rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Convert band by band: in one piece a large photograph would be held five times."""
    if image.mode in ("I", "F"):
        raise ValueError(f"{image.mode} pixels of 32 bits, of unknown range; save it with 8 or 16")
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        band = (0, top, image.width, min(top + rows, image.height))
        pixels[top : band[3]] = _rgb_band(image if rows >= image.height else image.crop(band))
    return pixels


def _rgb_band(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode.startswith("I;16"):  # Pillow's own conversion would clip at 255
        gray = np.asarray(image).astype(np.uint16)
        gray = ((gray.astype(np.uint32) + 128) // 257).astype(np.uint8)
        return np.repeat(gray[:, :, None], 3, axis=2)
    if image.has_transparency_data:
        # what was made invisible was not meant to be seen; paper is white
        layers = image.convert("RGBA")
        paper = Image.new("RGBA", layers.size, "white")
        image = Image.alpha_composite(paper, layers)
    if image.mode != "RGB":
        image = image.convert("RGB")
    return np.asarray(image)


def read_labels(path: str | Path, *, max_pixels: int | None = None) -> NDArray[np.int32]:
    """Read a label map: (H, W) class indices from an 8- or 16-bit grey or a palette image.

    Indices of a palette image are its labels; its colours are decoration. RGB and lossy files are
    refused: their values are not class indices. max_pixels: as of read_image.
    """
    name = shown(path)
    with opened(path, max_pixels=max_pixels) as found:
        image = found.image
        if image.format == "JPEG" or image.info.get("compression") in ("jpeg", "tiff_jpeg"):
            raise ValueError(f"{name}: a JPEG label map; its values are blurred, use PNG")
        if image.mode not in ("L", "P", "I", "I;16", "I;16B", "1"):
            raise ValueError(
                f"{name}: a {image.mode} label map; give one channel with a class index a pixel"
            )
        if found.is_one_of_several:
            raise ValueError(f"{name}: a label map of several pages; give a file for each")
        image.load()
        return np.asarray(image).astype(np.int32)  # a two-valued image gives 0 and 1


def image_size(
    path: str | Path, *, upright: bool, max_pixels: int | None = None
) -> tuple[int, int]:
    """Return (height, width) without decoding the pixels; upright: as EXIF turns the photograph."""
    with opened(path, max_pixels=max_pixels, header=True) as found:
        return found.upright if upright else found.stored
