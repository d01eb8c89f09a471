"""Gaussian filters in spaces of several dimensions, in linear time."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.errors import UserError


class PermutohedralLattice:
    """sum_j exp(-|f_i - f_j|^2 / 2) v_j for n points f of d dimensions, about, in O(n d).

    Space is divided into simplices of equal size. Each point gives its value to the d + 1 corners
    of the one that it lies in (splat), by its barycentric coordinates; the corners that are there
    exchange with their neighbours along each of d + 1 directions, 1/2, 1, 1/2 (blur); and each
    point reads its corners (slice). The result is that of the Gaussian up to one factor and some
    percent: normalize it by what it makes of ones. `gaussian_filter` is what it approximates.

    Adams, Baek and Davis, "Fast high-dimensional filtering using the permutohedral lattice", 2010.
    """

    def __init__(self, features: Tensor) -> None:
        """features (n, d), floating."""
        points, dimensions = features.shape
        corners, self.share = _simplices(features)  # (n, d + 1, d), (n, d + 1)
        # one whole number a corner, in which a step along a direction is the same everywhere
        least = corners.amin((0, 1)) - dimensions - 1
        extent = (corners.amax((0, 1)) + dimensions + 2 - least).tolist()
        if math.prod(extent) >= 2**63:
            problem = f"{points} points span too many cells of a filter"
            raise UserError("features", problem, "give wider kernels")
        stride = torch.ones(dimensions, dtype=torch.long)
        for axis in range(dimensions - 2, -1, -1):
            stride[axis] = stride[axis + 1] * extent[axis + 1]
        stride = stride.to(features.device)
        codes = ((corners - least) * stride).sum(-1).flatten()
        codes, self.corner = codes.unique(return_inverse=True)
        self.corners = len(codes)
        order = self.corner.argsort()
        self._point = order // (dimensions + 1)  # of each corner, one after the other
        self._splat_share = self.share.flatten()[order]
        count = torch.bincount(self.corner, minlength=self.corners)
        self._first = count.cumsum(0) - count
        self.corner = self.corner.view(points, dimensions + 1)
        steps = -torch.ones(dimensions + 1, dimensions, dtype=torch.long, device=features.device)
        steps[:dimensions] += (dimensions + 1) * torch.eye(dimensions).to(steps)
        self._neighbours = [
            [self._find(codes, codes + sign * step) for sign in (1, -1)]
            for step in (steps * stride).sum(-1)
        ]

    def _find(self, codes: Tensor, wanted: Tensor) -> Tensor:
        """Where corners stand; those that are not there, behind the last."""
        place = torch.searchsorted(codes, wanted).clamp(max=self.corners - 1)
        return torch.where(codes[place] == wanted, place, self.corners)

    def __call__(self, values: Tensor) -> Tensor:
        """Filter values (n, c), of the features' type -> (n, c)."""
        held = F.embedding_bag(
            self._point,
            values,
            self._first,
            mode="sum",
            per_sample_weights=self._splat_share,
        )
        for before, after in self._neighbours:
            around = F.pad(held, (0, 0, 0, 1))  # what is not there holds nothing
            held = held + 0.5 * (around[before] + around[after])
        return F.embedding_bag(self.corner, held, mode="sum", per_sample_weights=self.share)


def gaussian_filter(features: Tensor, values: Tensor) -> Tensor:
    """sum_j exp(-|f_i - f_j|^2 / 2) v_j, every pair: (n, d), (n, c) -> (n, c). Ground truth."""
    apart = (features.unsqueeze(1) - features).square().sum(-1)
    return (-0.5 * apart).exp() @ values


def _simplices(features: Tensor) -> tuple[Tensor, Tensor]:
    """The simplex of each point: its corners (n, d + 1, d), whole, and their shares (n, d + 1).

    Corners are points of the lattice in the plane x_0 + ... + x_d = 0 of d + 1 dimensions whose
    coordinates leave one remainder when divided by d + 1; the last one follows from the others.
    """
    dimensions = features.shape[1]
    size = dimensions + 1
    axis = torch.arange(1, size, dtype=features.dtype, device=features.device)
    # so that the blur, whose variance is known, has that of the Gaussian
    scaled = features * (size * math.sqrt(2 / 3) / (axis * (axis + 1)).sqrt())
    # onto the plane: x_k = (sum of what comes from axis k on) - k times that of axis k - 1
    after = F.pad(scaled.flip(1).cumsum(1).flip(1), (0, 1))
    lifted = after - F.pad(scaled * axis, (1, 0))
    # the nearest point of the lattice whose coordinates are multiples of d + 1, about
    nearest = (lifted / size).round() * size
    excess = (nearest.sum(1, keepdim=True) / size).round()
    # those that were rounded most come last; as many of them as there are too many go back
    rank = (lifted - nearest).argsort(dim=1, descending=True, stable=True)
    rank = rank.argsort(1) + excess.long()
    wrapped = (rank < 0).long() - (rank > dimensions).long()
    rank, nearest = rank + size * wrapped, nearest + size * wrapped
    # barycentric coordinates are the gaps between the sorted distances
    distance = (lifted - nearest) / size
    by_rank = torch.empty_like(distance).scatter_(1, rank, distance)  # falling
    gaps = by_rank - by_rank.roll(-1, 1)
    gaps[:, -1] += 1
    share = gaps.flip(1)  # of the corner with remainder 0, 1, ..., d
    remainder = torch.arange(size, device=features.device)
    # the corner with remainder k: k more in the coordinates of low rank, k - (d + 1) in the others
    low = rank.unsqueeze(1) <= dimensions - remainder.view(1, -1, 1)
    corners = nearest.long().unsqueeze(1) + remainder.view(1, -1, 1) - size * (~low).long()
    return corners[..., :dimensions], share.contiguous()
