"""How the network sees a photograph: normalised, at some size, whole or a strip at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.data.transforms import SMALLEST, fitted_size
from scaseg.models.segmenter import Segmenter


def as_seen(model: Segmenter, image: Tensor, scale: float = 1.0) -> Tensor:
    """Bring a photograph to what the network sees of it: uint8 (C, H, W) -> (1, C, h, w)."""
    return View(model, image, scale).whole()


class View:
    """A photograph, uint8 (C, H, W), as one pass of the network sees it."""

    def __init__(
        self, model: Segmenter, image: Tensor, scale: float = 1.0, *, mirrored: bool = False
    ) -> None:
        check_image(model, image)
        self.image = image
        self.mirrored = mirrored
        self.size = seen_size(model, image.shape[-2], image.shape[-1], scale)
        self._mean = torch.tensor(model.config.mean, device=image.device).view(-1, 1, 1)
        self._std = torch.tensor(model.config.std, device=image.device).view(-1, 1, 1)

    def whole(self) -> Tensor:
        """All of it: (1, C, h, w)."""
        return self._turn(resize(self._normalize(self.image), *self.size, smooth=True))

    def strip(self, rows: slice) -> Tensor:
        """Some rows of it, without ever holding the others: (1, C, rows, w)."""
        height = self.image.shape[-2]
        if self.size == tuple(self.image.shape[-2:]):
            return self._turn(self._normalize(self.image[:, rows]))
        weights, first = _row_filter(height, self.size[0], rows)
        source = self._normalize(self.image[:, first : first + weights.shape[1]])
        # first along the rows, then across them, as F.interpolate does
        source = resize(source, source.shape[-2], self.size[1], smooth=True)
        return self._turn(torch.einsum("oi,bciw->bcow", weights.to(source), source))

    def _normalize(self, pixels: Tensor) -> Tensor:
        return ((pixels.float() / 255 - self._mean) / self._std).unsqueeze(0)

    def _turn(self, view: Tensor) -> Tensor:
        return view.flip(-1) if self.mirrored else view


def check_image(model: Segmenter, image: Tensor) -> None:
    """Refuse what is no photograph for this model."""
    channels = len(model.config.mean)
    fits = image.dim() == 3 and image.shape[0] == channels and image.numel() > 0
    if not fits or image.dtype != torch.uint8:
        raise ValueError(
            f"image has shape {tuple(image.shape)} and dtype {image.dtype}; give uint8 "
            f"({channels}, H, W)"
        )


def seen_size(model: Segmenter, height: int, width: int, scale: float = 1.0) -> tuple[int, int]:
    """The size at which the network sees a photograph."""
    if model.config.fit is not None:
        height, width = fitted_size((height, width), model.config.fit)
    return max(SMALLEST, round(height * scale)), max(SMALLEST, round(width * scale))


def resize(x: Tensor, height: int, width: int, *, smooth: bool = False) -> Tensor:
    """Bilinear; smooth: filtered before it shrinks, as training images are."""
    if x.shape[-2:] == (height, width):
        return x
    return F.interpolate(
        x, size=(height, width), mode="bilinear", align_corners=False, antialias=smooth
    )


def _row_filter(height: int, out_height: int, rows: slice) -> tuple[Tensor, int]:
    """What each source row counts for in some rows of an image of another height.

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
