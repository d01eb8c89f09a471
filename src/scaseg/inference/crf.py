"""Refine labels by a dense conditional random field over the pixels of the photograph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial

import torch
from torch import Tensor

from scaseg.errors import UserError
from scaseg.ops.permutohedral import PermutohedralLattice, gaussian_filter

Filter = Callable[[Tensor], Tensor]
# Bytes for a pixel, measured: while a lattice of five dimensions is built, then it and each class
BUILD_BYTES, LATTICE_BYTES, CLASS_BYTES = 1600, 400, 20


@dataclass(frozen=True)
class DenseCrf:
    """Mean field with two Gaussian kernels: of pixels that are near, and of near ones alike.

    Q_i(l) ~ p_i(l) exp(sum_k w_k sum_j g_k(i, j) Q_j(l)), `steps` times, from the network's
    probabilities p. near, near_weight: size in pixels and weight of the kernel of places alone;
    far, color, weight: of the kernel of places and colors (of 256 levels). Kernels are normalized
    on both sides by the root of their sums. Linear in the number of pixels
    (`scaseg.ops.permutohedral`).

    Kraehenbuehl and Koltun, "Efficient inference in fully connected CRFs with Gaussian edge
    potentials", 2011. The sizes are those of their public code; its weights, 3 and 10, are stronger
    than what served the built-in model (docs/rivals.md).
    """

    steps: int = 5
    near: float = 3.0
    near_weight: float = 1.0
    far: float = 80.0
    color: float = 13.0
    weight: float = 3.0

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise UserError("steps", f"{self.steps!r}", "give a whole number >= 1")
        if self.steps > 100:
            raise UserError("steps", f"{self.steps}", "give at most 100")
        for name in ("near", "far", "color"):
            if not 0.1 <= getattr(self, name) <= 1e6:
                raise UserError(name, f"{getattr(self, name)}", "give a number from 0.1 to 1e6")
        for name in ("near_weight", "weight"):
            if not 0 <= getattr(self, name) <= 1000:
                raise UserError(name, f"{getattr(self, name)}", "give a number from 0 to 1000")

    def __str__(self) -> str:
        """As `read_crf` reads it."""
        return ",".join(f"{name}={value:g}" for name, value in asdict(self).items())

    def memory(self, pixels: int, classes: int) -> int:
        """About how many bytes an image takes."""
        return pixels * max(BUILD_BYTES, LATTICE_BYTES + CLASS_BYTES * classes)

    @torch.no_grad()
    def refine(self, probabilities: Tensor, image: Tensor, *, exact: bool = False) -> Tensor:
        """Refine the probabilities (classes, H, W) of a photograph, uint8 (3, H, W).

        exact: by every pair of pixels, the ground truth; for small images.
        """
        if image.dtype != torch.uint8 or image.shape[0] != 3:
            problem = f"an image of {image.shape[0]} bands, {image.dtype}"
            raise UserError("crf", problem, "leave it out: it compares colors of photographs")
        size = image.shape[-2:]
        rows, columns = (torch.arange(length, device=image.device) for length in size)
        # across, then down: a lattice has preferred directions, and the public code has these
        place = torch.cartesian_prod(rows, columns).float().flip(1)  # (n, 2)
        colors = image.flatten(1).mT.float() / self.color
        kernels = (
            (self.near_weight, place / self.near),
            (self.weight, torch.cat([place / self.far, colors], 1)),
        )
        filters = [(weight, _normalized(one, exact)) for weight, one in kernels if weight]
        smallest = torch.finfo(torch.float32).tiny
        unary = probabilities.flatten(1).mT.float().clamp(min=smallest).log()  # (n, classes)
        share = unary.softmax(1)
        for _ in range(self.steps if filters else 0):
            found = unary
            for weight, smooth in filters:
                found = torch.add(found, smooth(share), alpha=weight)
            share = found.softmax(1)
        return share.mT.reshape(probabilities.shape)


def _normalized(features: Tensor, exact: bool) -> Filter:
    """A Gaussian filter of points (n, d), divided on both sides by the root of its sums."""
    smooth: Filter = partial(gaussian_filter, features) if exact else PermutohedralLattice(features)
    norm = smooth(torch.ones_like(features[:, :1])).rsqrt()
    return lambda values: norm * smooth(norm * values)


def read_crf(text: str) -> DenseCrf:
    """Read "color=5,steps=10"; UserError names a setting that there is not, or that does not fit.

    >>> str(read_crf("color=5,steps=10"))
    'steps=10,near=3,near_weight=1,far=80,color=5,weight=3'
    """
    names = [one.name for one in fields(DenseCrf)]
    settings: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in names:
            raise UserError("", repr(part), f"give NAME=NUMBER, NAME one of {', '.join(names)}")
        try:
            settings[name] = int(value) if name == "steps" else float(value)
        except ValueError as error:
            raise UserError("", repr(part), "give a number") from error
    return DenseCrf(**settings)  # type: ignore[arg-type]
