"""Attention to a grid of cells, inside which the paper's own score decides."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import MOST_CELLS, Grids, neurons, query_and_key
from scaseg.ops.checks import check_number, check_whole_number
from scaseg.ops.dense import reciprocal
from scaseg.ops.precision import without_autocast


class CellsContext(FactoredContext):
    """a_ij ~ exp(t_j + q_i . k_r / sqrt(d)) for a source j in cell r of a grid.

    A score t_j for each source, as the paper's predictor has with exp, says what counts; a product
    of a target's query with the mean key of a cell, weighted by exp(t), says where it counts for
    whom. So the order of the sources is one inside a cell and the target's own between cells, which
    is what `sca` cannot have and `dot` has at O(n^2); here O(n R M), R = grid^2 cells. Without
    queries it is `sca` with exp and its own entries; without scores attention to a pooled map. A
    cell of a single neuron makes it `dot` with t_j added to the scores.

    The grid divides the real part of each image; a neuron on a border belongs to both cells by its
    area, and a cell without a source that counts has no share. identity_dropout: as in `dot`.
    """

    reference = (
        "the paper's score, and Zhu et al., Asymmetric non-local neural networks for semantic "
        "segmentation, ICCV 2019"
    )
    score_parts = ("query", "key", "score")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        grid: int = 8,
        key_channels: int = 64,
        identity_dropout: float = 0.0,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("grid", grid, 1, MOST_CELLS)
        check_number("identity_dropout", identity_dropout, 0, 1)
        self.identity_dropout = identity_dropout
        self.grid = grid
        self.query, self.key = query_and_key(in_channels, key_channels)
        self.score = nn.Conv2d(in_channels, 1, kernel_size=1, bias=False)  # a bias would cancel
        nn.init.normal_(self.score.weight, std=0.01)  # near the average at first

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        there = x if source is None else source
        query, key = neurons(self.query(x)), neurons(self.key(there))
        score = neurons(self.score(there))  # (B, source, 1)
        with without_autocast(x):
            least = torch.finfo(score.dtype).min
            if source_mask is not None:
                score = score.masked_fill(~source_mask.unsqueeze(-1), least)
            weight = (score - score.amax(1, keepdim=True)).exp()
            weight = weight * Grids(there, source_mask, [self.grid]).areas()  # (B, source, R)
            mass = weight.sum(1, keepdim=True)  # (B, 1, R)
            source_share = weight * reciprocal(mass)
            means = source_share.mT @ key  # (B, R, d)
            wanted = query @ means.mT * query.shape[-1] ** -0.5
            wanted = wanted + mass.clamp(min=torch.finfo(mass.dtype).tiny).log()
            return wanted.masked_fill(mass == 0, least).softmax(-1), source_share
