"""The scores of one photograph, at its own size: one pass, or the mean of several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.data.transforms import SMALLEST, fitted_size
from scaseg.models import Segmenter


@dataclass(frozen=True)
class TestTime:
    """How a photograph is looked at: at which scales, mirrored too, in windows of which size."""

    __test__ = False  # pytest would take it for a test

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    window: int | None = None
    overlap: int = 64

    def __post_init__(self) -> None:
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ValueError(f"scales are {self.scales}; give numbers above 0, up to 8")
        if self.window is not None and self.window < 2 * SMALLEST:
            raise ValueError(f"window is {self.window}; give at least {2 * SMALLEST} pixels")
        if self.window is not None and not 0 <= self.overlap < self.window:
            raise ValueError(
                f"overlap is {self.overlap} of a window of {self.window}; give 0 to window - 1"
            )


@torch.no_grad()
def score(model: Segmenter, image: Tensor, how: TestTime | None = None) -> Tensor:
    """Give the probability of each class for each pixel: uint8 (C, H, W) -> (classes, H, W).

    The photograph is normalised and, where the model was trained so (`model.config.fit`), resized
    as in training. The model should be in eval mode, and the image on its device.
    """
    how = how or TestTime()
    pixels = _normalise(model, image).unsqueeze(0)  # (1, C, H, W)
    height, width = image.shape[-2:]
    total: Tensor | None = None
    passes = 0
    for scale in how.scales:
        view = _resize(pixels, *_seen_size(model, height, width, scale), smooth=True)
        for mirrored in (False, True) if how.flip else (False,):
            part = _probabilities(model, view.flip(-1) if mirrored else view, how)
            part = part.flip(-1) if mirrored else part
            part = _resize(part, height, width)
            total = part if total is None else total.add_(part)
            passes += 1
    assert total is not None
    return total[0] if passes == 1 else total[0].div_(passes)


def _normalise(model: Segmenter, image: Tensor) -> Tensor:
    channels = len(model.config.mean)
    fits = image.dim() == 3 and image.shape[0] == channels and image.numel() > 0
    if not fits or image.dtype != torch.uint8:
        raise ValueError(
            f"image has shape {tuple(image.shape)} and dtype {image.dtype}; give uint8 "
            f"({channels}, H, W)"
        )
    mean = torch.tensor(model.config.mean, device=image.device).view(-1, 1, 1)
    std = torch.tensor(model.config.std, device=image.device).view(-1, 1, 1)
    return (image.float() / 255 - mean) / std


def _seen_size(model: Segmenter, height: int, width: int, scale: float) -> tuple[int, int]:
    """The size at which the network sees a photograph."""
    if model.config.fit is not None:
        height, width = fitted_size((height, width), model.config.fit)
    return max(SMALLEST, round(height * scale)), max(SMALLEST, round(width * scale))


def _probabilities(model: Segmenter, view: Tensor, how: TestTime) -> Tensor:
    """(1, C, h, w) -> (1, classes, h, w), in windows where the view is larger than one."""
    height, width = view.shape[-2:]
    if how.window is None or (height <= how.window and width <= how.window):
        return model(view).float().softmax(1)
    total = view.new_zeros(1, len(model.config.classes), height, width)
    shares = view.new_zeros(1, 1, height, width)
    for rows in _windows(height, how.window, how.overlap):
        for columns in _windows(width, how.window, how.overlap):
            part = model(view[..., rows, columns]).float().softmax(1)
            share = _ramp(part.shape[-2], how.overlap, view)[:, None] * _ramp(
                part.shape[-1], how.overlap, view
            )
            total[..., rows, columns] += part * share
            shares[..., rows, columns] += share
    return total / shares


def _windows(length: int, window: int, overlap: int) -> Iterator[slice]:
    """Slices of one size that cover a length, evenly spread, sharing at least `overlap`."""
    if length <= window:
        yield slice(0, length)
        return
    count = -(-(length - overlap) // (window - overlap))
    for index in range(count):
        start = round(index * (length - window) / (count - 1))
        yield slice(start, start + window)


def _ramp(length: int, overlap: int, like: Tensor) -> Tensor:
    """What a window's pixels count for: less towards its edges, so that no seam shows."""
    distance = torch.arange(1, length + 1, device=like.device, dtype=like.dtype)
    distance = torch.minimum(distance, distance.flip(0))
    return (distance / (overlap + 1)).clamp(max=1)


def _resize(x: Tensor, height: int, width: int, *, smooth: bool = False) -> Tensor:
    """Bilinear; smooth: filtered before it shrinks, as training images are."""
    if x.shape[-2:] == (height, width):
        return x
    return F.interpolate(
        x, size=(height, width), mode="bilinear", align_corners=False, antialias=smooth
    )
