"""An exported file against the model itself, on sizes that it was not traced with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg.errors import WorkError
from scaseg.inference.tta import predict_scores
from scaseg.models.segmenter import Segmenter, require_finite

# (batch, height, width): odd sides, either side longer, other batches than the traced one
SIZES = ((1, 96, 128), (2, 97, 131), (5, 64, 75), (1, 161, 90), (1, 203, 227))
TOLERANCE = 1e-4  # of the largest score, or of 1

# what a runtime makes of a batch: images -> scores or labels
Run = Callable[[NDArray[np.generic]], NDArray[np.generic]]


@dataclass(frozen=True)
class Comparison:
    """One batch, through the file and through the model.

    difference: of the scores, relative to the largest (or to 1, where all are smaller). For
    labels: the most by which a class that the file chose instead lies under the model's own, in
    probability. pixels: the share of pixels with another label; 0 for scores.
    """

    batch: int
    height: int
    width: int
    difference: float
    pixels: float = 0.0

    def __str__(self) -> str:
        other = f", another label at {100 * self.pixels:.2g} % of the pixels" if self.pixels else ""
        return f"{self.batch} x {self.height} x {self.width}: {self.difference:.1e}{other}"


@torch.no_grad()
def compare(model: Segmenter, run: Run, *, labels: bool) -> tuple[Comparison, ...]:
    """Run batches of noise through both; WorkError where they differ by more than TOLERANCE."""
    random = torch.Generator().manual_seed(0)
    found = []
    for batch, height, width in SIZES:
        shape = (batch, model.config.in_channels, height, width)
        pixels = _smooth_noise(model, shape, random)
        one = _labels(model, run, pixels) if labels else _scores(model, run, pixels)
        found.append(one)
        if not one.difference <= TOLERANCE:  # NaN neither
            problem = f"the exported graph differs from the model by {one.difference:.2g}"
            detail = f"{batch} x {height} x {width}"
            raise WorkError(model.origin, problem, f"{TOLERANCE:g} is allowed", detail)
    return tuple(found)


def _smooth_noise(model: Segmenter, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Patches of color with grain, as the model's images are stored."""
    coarse = torch.rand(*shape[:2], 6, 7, generator=random)
    pixels = torch.nn.functional.interpolate(coarse, size=shape[2:], mode="bilinear")
    pixels = (pixels + 0.1 * torch.rand(shape, generator=random)).clamp(0, 1)
    if model.config.dtype == "uint8":
        return (255 * pixels).round().to(torch.uint8)
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (model.config.mean, model.config.std))
    return mean + std * (4 * pixels - 2)


def _scores(model: Segmenter, run: Run, pixels: Tensor) -> Comparison:
    images = model.normalize(pixels)
    expected = require_finite(model, model(images)).cpu().numpy()
    found = run(images.cpu().numpy())
    largest = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(found - expected).max()) / largest
    return Comparison(len(pixels), pixels.shape[2], pixels.shape[3], difference)


def _labels(model: Segmenter, run: Run, pixels: Tensor) -> Comparison:
    found = run(pixels.permute(0, 2, 3, 1).contiguous().numpy()).astype(np.int64)
    expected = torch.stack([predict_scores(model, image.to(model.device)) for image in pixels])
    chosen = expected.gather(1, torch.from_numpy(found).to(model.device).unsqueeze(1)).squeeze(1)
    best, own = expected.max(1)
    differ = float((own.cpu().numpy() != found).mean())
    height, width = found.shape[1:]
    difference = float((best - chosen).max())
    return Comparison(len(found), height, width, difference, pixels=differ)
