"""What may be handed over as a photograph, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.data.decode.image import read_image, rgb
from scaseg.models.segmenter import Segmenter

Photograph = str | Path | Image.Image | NDArray[np.uint8] | Tensor
SINGLE = (str, Path, Image.Image, np.ndarray, Tensor)


def as_pixels(model: Segmenter, photograph: Photograph) -> NDArray[np.uint8]:
    """Read a photograph: (H, W, C) uint8, upright, with as many channels as the model takes."""
    channels = model.config.in_channels
    if isinstance(photograph, (str, Path)):
        pixels, name = read_image(photograph), str(photograph)
    elif isinstance(photograph, Image.Image):
        pixels, name = _decoded(photograph), "image"
    elif isinstance(photograph, Tensor):
        if photograph.dim() != 3:
            _refuse(tuple(photograph.shape), photograph.dtype, channels)
        pixels, name = photograph.detach().permute(1, 2, 0).cpu().numpy(), "image"
    elif isinstance(photograph, np.ndarray):
        pixels, name = photograph, "image"
        if pixels.ndim == 2:  # grey
            pixels = np.repeat(pixels[:, :, None], channels, axis=2)
    else:
        raise ValueError(
            f"image is a {type(photograph).__name__}; give a path, a PIL image, an array "
            f"(H, W, {channels}) or a tensor ({channels}, H, W) of uint8, or a list of them"
        )
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape:
        _refuse(pixels.shape, pixels.dtype, channels)
    if pixels.shape[2] != channels:
        raise ValueError(
            f"{name}: {pixels.shape[2]} channels; the model takes {channels}, give an array "
            f"(H, W, {channels}) or a tensor ({channels}, H, W)"
        )
    return pixels


def _decoded(image: Image.Image) -> NDArray[np.uint8]:
    """Bring a PIL image to RGB; one that was opened and not decoded yet may still be damaged."""
    try:
        return rgb(image)
    except Exception as fault:  # a decoder given a bad file raises anything
        said = " ".join(str(fault).split()) or type(fault).__name__
        raise ValueError(f"image: cannot be read ({said}); give another") from fault


def as_tensor(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """(H, W, C) -> (C, H, W) on a device, a view of the array where it can be one."""
    if not pixels.flags.writeable or any(step < 0 for step in pixels.strides):
        pixels = pixels.copy()  # torch can hold neither
    return torch.from_numpy(pixels).permute(2, 0, 1).to(device)


def _refuse(shape: tuple[int, ...], dtype: object, channels: int) -> None:
    raise ValueError(
        f"image has shape {tuple(shape)} and dtype {dtype}; give uint8, (H, W, {channels}) as an "
        f"array or ({channels}, H, W) as a tensor; several as a list"
    )
