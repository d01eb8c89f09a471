"""One map for all neurons, and a bottleneck."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.context import Context, MapFactors, Mask, Source
from scaseg.nn.contexts.parts import neurons, softmax_over_sources
from scaseg.ops.checks import check_whole_number

LEAST = 8  # channels of the bottleneck: its layer norm makes 0 of one


class GcnetContext(Context):
    """h_i = W_d x_i + T(sum_j a_j x_j), a_j ~ exp(w . x_j): the same sources for every neuron.

    Maps of non-local networks were found to be nearly the same for all neurons; here they are, at
    the cost of an average. T is a bottleneck of C / reduction channels with layer norm and ReLU.
    O(n). In the paper T starts at 0, and x_i itself stands for W_d x_i.
    """

    exclude_self = False
    reference = (
        "Cao, Xu, Lin, Wei and Hu, GCNet: non-local networks meet squeeze-excitation networks "
        "and beyond, ICCV workshops 2019"
    )
    score_parts = ("score",)

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, reduction: int = 16
    ) -> None:
        super().__init__(in_channels, out_channels)
        check_whole_number("reduction", reduction, 1)
        self.context = None  # T takes the place of W_c
        self.score = nn.Conv2d(in_channels, 1, kernel_size=1, bias=False)  # a bias would cancel
        nn.init.normal_(self.score.weight, std=0.01)  # training starts near the average
        narrow = max(in_channels // reduction, LEAST)
        self.transform = nn.Sequential(
            nn.Linear(in_channels, narrow),
            nn.LayerNorm(narrow),
            nn.ReLU(),
            nn.Linear(narrow, self.out_channels),
        )

    def values(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)  # averaged first: T comes after

    def _share(self, there: Tensor, source_mask: Mask) -> Tensor:
        """The share of each source: (B, source, 1)."""
        return softmax_over_sources(neurons(self.score(there)), source_mask)

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        there = x if source is None else source
        share, values = self._share(there, source_mask), self.values(there)
        return share.mT.to(values) @ values

    def combine(self, x: Tensor, context: Tensor | None) -> Tensor:
        return super().combine(x, None if context is None else self.transform(context))

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        share = self._share(x if source is None else source, source_mask)
        return share.mT.expand(-1, len(targets), -1)

    def map_factors(self, x: Tensor) -> MapFactors:
        share = self._share(x, None)[0]
        return MapFactors("mixture", torch.ones_like(share), share)
