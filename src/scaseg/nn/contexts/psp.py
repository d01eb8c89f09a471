"""Pyramid pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import (
    check_whole_numbers,
    convolution,
    grid_cells,
    hats,
    neurons,
    places,
    real_map,
)
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import reciprocal

MOST_BINS = 32  # a side


class PspContext(BranchContext):
    """Means over the cells of grids of 1, 2, 3 and 6 cells a side, spread over the map again.

    Each level: the mean of every cell, a 1x1 convolution to branch_channels, ReLU, and bilinear
    interpolation between the cells' centres. Cells divide the real part of each image into equal
    parts; a neuron on a border belongs to both by its area (in the paper cells are whole neurons).
    Its last 3x3 convolution is the head's first here. O(n R C), R cells in all.
    """

    input_dependent = False
    neuron_selective = True
    reference = "Zhao, Shi, Qi, Wang and Jia, Pyramid scene parsing network, CVPR 2017"

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        bins: Sequence[int] = (1, 2, 3, 6),
        branch_channels: int = 128,
    ) -> None:
        bins = check_whole_numbers("bins", bins, 1, MOST_BINS)
        check_whole_number("branch_channels", branch_channels, 1)
        super().__init__(in_channels, out_channels, channels=len(bins) * branch_channels)
        self.bins = bins
        self.levels = nn.ModuleList(convolution(in_channels, branch_channels) for _ in bins)

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        there = x if source is None else source
        counts = real_map(there, None, source_mask)
        extent = real_map(x, source, source_mask)
        found = []
        for grid, level in zip(self.bins, self.levels, strict=True):
            with torch.autocast(x.device.type, enabled=False):
                cells = grid_cells(counts, grid)  # (B, R, source)
                pooled = (cells @ neurons(there)).mT.unsqueeze(-1)  # (B, C, R, 1)
                between = interpolation(extent, grid) * (cells.sum(-1) > 0).unsqueeze(1)
                between = between * reciprocal(between.sum(-1)).unsqueeze(-1)
            reduced = level(pooled.to(x.dtype)).relu().squeeze(-1)  # (B, c, R)
            found.append(reduced @ between.mT.to(reduced))
        return torch.cat(found, 1).unflatten(2, x.shape[-2:])


def interpolation(real: Tensor, grid: int) -> Tensor:
    """Weigh the cells of a grid for each neuron, bilinearly between their centres.

    real (B, H, W): 1 where a neuron is real, whose part of the map the grid divides ->
    (B, n, grid^2), rows of sum 1.
    """

    def along(line: Tensor) -> Tensor:
        """line (B, length) -> (B, length, grid)."""
        place, count = places(line)
        return hats(((place + 0.5) * grid / count.clamp(min=1) - 0.5).clamp(0, grid - 1), grid)

    rows, columns = along(real.amax(2)), along(real.amax(1))
    return torch.einsum("bhr,bwc->bhwrc", rows, columns).flatten(3).flatten(1, 2)
