"""A grid of pooled queries between targets and sources."""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import (
    MOST_CELLS,
    Grids,
    counted,
    neurons,
    query_and_key,
    softmax_over_sources,
)
from scaseg.ops.checks import check_whole_number
from scaseg.ops.precision import without_autocast


class AgentContext(FactoredContext):
    """The queries of a grid of cells, pooled, ask all sources; targets ask the cells.

    k_jr ~ exp(g_r . k_j / sqrt(d)), b_ir ~ exp(q_i . g_r / sqrt(d)), where agent g_r is the mean of
    the queries q in cell r of a grid x grid division of the image. Two softmaxes of thin products
    stand for the one of `dot`: agents follow from the image itself, so nothing about it has to be
    learned beforehand, as with prototypes. O(n R M), R = grid^2 agents.

    Padding belongs to no cell: the grid divides the real part of each image. A cell without a
    neuron that counts asks nothing, and nobody asks it.
    """

    reference = (
        "Han et al., Agent attention: on the integration of softmax and linear attention, ECCV 2024"
    )
    score_parts = ("query", "key")

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
        self.grid = grid
        self.query, self.key = query_and_key(in_channels, key_channels)

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        query, key = neurons(self.query(x)), neurons(self.key(x if source is None else source))
        mask = source_mask if source is None else None  # of the targets
        with without_autocast(x):
            cells = Grids(x, mask, [self.grid]).cells()  # (B or 1, n, R)
            agents = cells.mT @ counted(query, mask) * query.shape[-1] ** -0.5
            source_share = softmax_over_sources(key @ agents.mT, source_mask)
            score = query @ agents.mT
            if mask is not None:
                is_empty = cells.sum(1, keepdim=True) == 0
                score = score.masked_fill(is_empty, torch.finfo(score.dtype).min)
            return score.softmax(-1), source_share
