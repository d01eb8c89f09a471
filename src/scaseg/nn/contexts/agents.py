"""A grid of pooled queries between targets and sources."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.contexts.factored import (
    FactoredContext,
    neurons,
    places,
    real_map,
    softmax_over_sources,
)
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import reciprocal


class AgentContext(FactoredContext):
    """The queries of a grid of cells, pooled, ask all sources; targets ask the cells.

    k_jr ~ exp(g_r . k_j / sqrt(d)), b_ir ~ exp(q_i . g_r / sqrt(d)), where agent g_r is the mean of
    the queries q in cell r of a grid x grid division of the image. Two softmaxes of thin products
    stand for the one of `dot`: agents follow from the image itself, so nothing about it has to be
    learned beforehand, as with prototypes. O(n R M), R = grid^2 agents.

    Padding belongs to no cell: the grid divides the real part of each image. A cell without a
    neuron that counts asks nothing, and nobody asks it.

    Han et al., "Agent attention: on the integration of softmax and linear attention", 2024.
    """

    reference = (
        "Han et al., Agent attention: on the integration of softmax and linear attention, ECCV 2024"
    )

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        grid: int = 7,
        key_channels: int = 64,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("grid", grid, 1, MOST_CELLS)
        check_whole_number("key_channels", key_channels, 1)
        self.grid = grid
        self.query = nn.Conv2d(in_channels, key_channels, kernel_size=1)
        self.key = nn.Conv2d(in_channels, key_channels, kernel_size=1, bias=False)

    def factors(
        self, x: Tensor, source: Tensor | None, source_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        query, key = neurons(self.query(x)), neurons(self.key(x if source is None else source))
        real = real_map(x, source, source_mask)
        with torch.autocast(x.device.type, enabled=False):
            cells = grid_cells(real, self.grid)  # (B, R, n)
            agents = cells @ query.masked_fill(real.flatten(1).unsqueeze(-1) == 0, 0)
            scale = query.shape[-1] ** -0.5
            source_share = softmax_over_sources(key @ agents.mT * scale, source_mask)
            is_empty = (cells.sum(-1) == 0).unsqueeze(1)  # (B, 1, R)
            score = (query @ agents.mT * scale).masked_fill(is_empty, torch.finfo(query.dtype).min)
            return score.softmax(-1), source_share


MOST_CELLS = 64  # a side: as many agents as neurons would be no saving


def grid_cells(real: Tensor, grid: int) -> Tensor:
    """Divide the real part of each map into grid x grid cells of equal size.

    real (B, H, W): 1 where a neuron counts -> (B, grid^2, n): the share of each neuron in each
    cell's mean, 0 where a cell has none. A neuron on a border belongs to both by its area.
    """

    def overlap(line: Tensor) -> Tensor:
        """line (B, length): 1 where a row counts -> (B, grid, length): parts of it in each cell."""
        place, count = places(line)
        extent = count.unsqueeze(-1)
        cell = torch.arange(grid, device=line.device, dtype=line.dtype).view(-1, 1)
        low, high = cell * extent / grid, (cell + 1) * extent / grid
        return (torch.minimum(place + 1, high) - torch.maximum(place, low)).clamp(min=0)

    rows, columns = overlap(real.amax(2)), overlap(real.amax(1))
    parts = (rows.unsqueeze(2).unsqueeze(-1) * columns.unsqueeze(1).unsqueeze(3)).flatten(1, 2)
    area = (parts * real.unsqueeze(1)).flatten(2)  # (B, R, n)
    return area * reciprocal(area.sum(-1)).unsqueeze(-1)
