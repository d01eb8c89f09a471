"""Preprocessing: read an image, resize and normalize it, whole or some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.config.model import ModelConfig
from scaseg.config.run import SMALLEST_SIDE
from scaseg.data.decode.bands import read_pixels
from scaseg.data.decode.image import rgb
from scaseg.data.sample import check_unit_range, normalize, unit_pixels
from scaseg.data.transforms import fitted_size
from scaseg.errors import UserError
from scaseg.models.segmenter import Segmenter
from scaseg.system import join_stream, side_stream

# what `predict` takes for an image: a path, a PIL image, pixels (H, W, C) or (C, H, W)
ImageLike = str | Path | Image.Image | NDArray[Any] | Tensor
MOST_PINNED = 1 << 26  # bytes of an array that is copied while a GPU computes
IMAGE_TYPES = (str, Path, Image.Image, np.ndarray, Tensor)


def as_array(model: Segmenter, image: ImageLike) -> NDArray[Any]:
    """Read an image: (H, W, C) uint8, upright, with as many channels as the model takes.

    Floats from 0 to 1 are rounded to the 256 steps that photographs have. Where the model takes
    bands of another type, they are float32.
    """
    config = model.config
    channels, is_photograph = config.in_channels, config.bands is None
    pixels: NDArray[Any] = image  # type: ignore[assignment]  # checked below
    if isinstance(image, (str, Path)):
        return read_pixels(image, config.bands, config.dtype)
    if isinstance(image, Image.Image):
        try:
            pixels = rgb(image) if is_photograph else np.asarray(image)
        except Exception as fault:  # opened, not decoded yet: a damaged file raises anything
            raise UserError.cannot_be("read", "image", fault, "give another") from fault
    elif isinstance(image, Tensor) and image.dim() == 3:
        image = image.detach().cpu()
        image = image.float() if image.is_floating_point() else image  # NumPy has no bfloat16
        pixels = image.permute(1, 2, 0).numpy()
    if isinstance(pixels, np.ndarray) and pixels.ndim == 2:  # gray
        pixels = np.repeat(pixels[:, :, None], channels if is_photograph else 1, axis=2)
    is_array = isinstance(pixels, np.ndarray) and pixels.size > 0 and pixels.ndim == 3
    if is_array and np.issubdtype(pixels.dtype, np.floating) and config.dtype == "uint8":
        check_unit_range(pixels)
        pixels = (pixels.clip(0, 1) * 255).round().astype(np.uint8)
    elif is_array and pixels.dtype == config.dtype != "uint8":
        pixels = pixels.astype(np.float32)  # as files are read
    wanted = np.uint8 if config.dtype == "uint8" else np.float32
    if not is_array or pixels.dtype != wanted:
        raise _unfit(pixels, config)
    if pixels.shape[2] != channels:
        want = f"{channels}: an array (H, W, {channels}), a tensor ({channels}, H, W)"
        raise UserError("image", f"{pixels.shape[2]} channels", f"the model takes {want}")
    return pixels


def as_tensor(pixels: NDArray[Any], device: torch.device) -> Tensor:
    """(H, W, C) -> (C, H, W) on a device, a view of the array where it can be one."""
    image = torch.from_numpy(_holdable(pixels))
    if device.type == "cuda" and image.numel() <= MOST_PINNED:  # else it waits for the GPU
        image = image.pin_memory()
    return image.permute(2, 0, 1).to(device, non_blocking=device.type == "cuda")


def _holdable(pixels: NDArray[Any]) -> NDArray[Any]:
    """The same pixels where torch can hold them: neither read-only nor with negative strides."""
    is_held = pixels.flags.writeable and all(step >= 0 for step in pixels.strides)
    return pixels if is_held else pixels.copy()


def _unfit(image: object, config: ModelConfig) -> UserError:
    came, channels = f"a {type(image).__name__}", config.in_channels
    if isinstance(image, (np.ndarray, Tensor)):
        came = f"shape {tuple(image.shape)} and dtype {image.dtype}"
    values = "uint8 or floats from 0 to 1" if config.dtype == "uint8" else config.dtype
    return UserError(
        "image",
        came,
        f"give a path, a PIL image, an array (H, W, {channels}) or a tensor ({channels}, H, W), "
        f"{values}; several as a list, or with B in front",
    )


def as_batch(images: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    """Images (H, W, C) of one size and type -> (B, C, H, W) on a device."""
    if len(images) == 1:
        found = as_tensor(images[0], device).unsqueeze(0)
        return found if device.type == "cpu" else found.contiguous()
    first = torch.from_numpy(_holdable(images[0]))
    if device.type == "cuda" and first.is_pinned():  # in shared memory
        found = torch.stack([torch.from_numpy(one).to(device, non_blocking=True) for one in images])
    else:
        pinned = device.type == "cuda" and len(images) * images[0].nbytes <= MOST_PINNED
        host = first.new_empty((len(images), *images[0].shape), pin_memory=pinned)
        np.stack(images, out=host.numpy())
        found = host.to(device, non_blocking=pinned)
    found = found.permute(0, 3, 1, 2)
    return found if device.type == "cpu" else found.contiguous()


class Uploads:
    """Brings batches to a device: to a GPU while it computes those before."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._stream = device, side_stream(device)
        self._held: tuple[torch.Event, Sequence[Sequence[NDArray[Any]]]] | None = None

    def __call__(self, groups: Sequence[Sequence[NDArray[Any]]]) -> list[Tensor]:
        """Groups of images (H, W, C) of one size each -> (B, C, H, W)."""
        if self._held is not None:  # until they are copied; long ago, as a rule
            self._held[0].synchronize()
        with torch.cuda.stream(self._stream):
            found = [as_batch(images, self.device) for images in groups]
        if self._stream is not None:
            self._held = self._stream.record_event(), groups
        join_stream(self._stream, *found)
        return found


class Preprocessed:
    """Images (B, C, H, W) of one size, or one (C, H, W), as one pass of the network takes them.

    Resized and normalized.

    size: (h, w) after resizing. flipped: left and right change places.
    """

    def __init__(
        self, model: Segmenter, image: Tensor, scale: float = 1.0, *, flipped: bool = False
    ) -> None:
        channels = model.config.in_channels
        fits = image.dim() in (3, 4) and image.shape[-3] == channels and image.numel() > 0
        dtype = torch.uint8 if model.config.dtype == "uint8" else torch.float32
        if not fits or image.dtype != dtype:
            raise _unfit(image, model.config)
        self.image = image if image.dim() == 4 else image.unsqueeze(0)
        self.flipped = flipped
        self.size = input_size(model, image.shape[-2], image.shape[-1], scale)
        self._model = model

    def whole(self) -> Tensor:
        """All of it, (B, C, h, w)."""
        image = self.image
        if image.is_cuda and math.prod(self.size) < math.prod(image.shape[-2:]):
            # the same to rounding, and of fewer pixels
            x = resize(unit_pixels(image), *self.size, antialias=True)
            return self._flip(normalize(x, *self._model.statistics))
        x = self._flip(resize(self._model.normalize(image), *self.size, antialias=True))
        if x.device.type == "cpu" and self._model.backbone.channels_last_on_cpu:
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def rows(self, rows: slice) -> Tensor:
        """Some rows of it, without ever holding the others: (B, C, rows, w)."""
        height = self.image.shape[-2]
        if self.size == tuple(self.image.shape[-2:]):
            return self._flip(self._pixels(rows))
        weights, first = _resize_weights(height, self.size[0], rows)
        source = self._pixels(slice(first, first + weights.shape[1]))
        # first along the rows, then across them, as F.interpolate does
        source = resize(source, source.shape[-2], self.size[1], antialias=True)
        return self._flip(torch.einsum("oi,bciw->bcow", weights.to(source), source))

    def _pixels(self, rows: slice = slice(None)) -> Tensor:
        return self._model.normalize(self.image[:, :, rows])

    def _flip(self, x: Tensor) -> Tensor:
        return x.flip(-1) if self.flipped else x


def input_size(model: Segmenter, height: int, width: int, scale: float = 1.0) -> tuple[int, int]:
    """Return the size to which an image is resized for the network."""
    if model.config.fit is not None:
        height, width = fitted_size((height, width), model.config.fit)
    step = model.backbone.multiple
    rows, columns = (
        -(-max(SMALLEST_SIDE, round(side * scale)) // step) * step for side in (height, width)
    )
    return rows, columns


def resize(x: Tensor, height: int, width: int, *, antialias: bool = False) -> Tensor:
    """Resize (B, C, H, W) bilinearly; antialias: as training images are."""
    if x.shape[-2:] == (height, width):
        return x
    return F.interpolate(
        x, size=(height, width), mode="bilinear", align_corners=False, antialias=antialias
    )


def _resize_weights(height: int, out_height: int, rows: slice) -> tuple[Tensor, int]:
    """The weight of each source row in some rows of the resized image.

    -> (rows, sources), and the first source row. The triangle of F.interpolate(antialias=True).
    """
    scale = height / out_height
    reach = max(scale, 1.0)
    center = (torch.arange(rows.start, rows.stop, dtype=torch.float64) + 0.5) * scale
    low = (center - reach + 0.5).long().clamp(min=0)
    high = (center + reach + 0.5).long().clamp(max=height)
    first, last = int(low[0]), int(high[-1])
    source = torch.arange(first, last)
    inside = (source >= low[:, None]) & (source < high[:, None])
    distance = (source + 0.5 - center[:, None]).abs() / reach
    weights = (1 - distance).clamp(min=0) * inside
    return weights / weights.sum(1, keepdim=True), first
