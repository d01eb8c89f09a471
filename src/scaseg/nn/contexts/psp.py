"""Pyramid pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import Grids, check_whole_numbers, convolution
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import reciprocal
from scaseg.ops.precision import without_autocast

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

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        there = x if source is None else source
        sizes = [grid * grid for grid in self.bins]
        grids = Grids(there, source_mask, self.bins)
        with without_autocast(x):
            cells = grids.cells()  # (B or 1, source, R)
            between = grids.between() if source is None else Grids(x, None, self.bins).between()
            if source_mask is not None:  # a cell without neurons has no share
                between = between * (cells.sum(1, keepdim=True) > 0)
                of_grids = between.split(sizes, -1)
                between = torch.cat(
                    [one * reciprocal(one.sum(-1)).unsqueeze(-1) for one in of_grids], -1
                )
            features = there.flatten(2).transpose(1, 2)
            pooled = cells.mT.to(features) @ features  # (B, R, C)
        # P before the interpolation, which is linear too: it then sees R cells, not n neurons
        weights = self.project.weight.flatten(1).chunk(len(self.bins), 1)
        found = []
        for level, own, weight in zip(self.levels, pooled.split(sizes, 1), weights, strict=True):
            assert isinstance(level, nn.Conv2d)
            reduced = F.linear(own, level.weight.flatten(1), level.bias).relu()
            found.append(F.linear(reduced, weight))
        values = torch.cat(found, 1)  # (B, R, M)
        return between.to(values) @ values
