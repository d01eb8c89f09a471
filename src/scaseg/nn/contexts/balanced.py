"""Pair channels that compete on equal terms."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import neurons, softmax_over_sources
from scaseg.ops.checks import MOST_PAIRS, check_number, check_whole_number
from scaseg.ops.precision import without_autocast


class BalancedContext(FactoredContext):
    """Pair channels with exp, each normalized by itself: k = softmax over j, b = softmax over r.

    a_ij = sum_r b_ir k_jr with b_ir ~ exp(tau cos(q_i, p_r)) and k_jr ~ exp(tau' cos(k_j, p_r)).
    With one common denominator (`sca` with activation exp), the channel with the sharpest t has
    the largest sum over j and wins for every target, so that the predictor falls back to a static
    one. Here each channel has sum 1, and a target alone decides between them. p_r are learned
    prototypes, the same for targets and sources: a pair that is close to one prototype counts from
    the start. q and k are normalized, so that no feature can grow past the others; the
    temperatures tau and tau' are learned, from `temperature` on. O(n R M).

    key_channels is small on purpose: R prototypes cover a sphere in 8 dimensions, so that every
    pair has some near it; in 64 dimensions all are about equally far from everything, and look-ups
    are hardly learned. The papers have neither prototypes, normalization nor temperature.
    """

    reference = "Chen et al. 2018 (double attention), Shen et al. 2021 (efficient attention)"
    score_parts: tuple[str, ...] = ("query", "key", "prototypes", "temperature")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        pair_channels: int = 64,
        key_channels: int = 8,
        temperature: float = 10.0,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("pair_channels", pair_channels, 1, MOST_PAIRS)
        check_whole_number("key_channels", key_channels, 1)
        check_number("temperature", temperature, 0.01, 1000)
        self.query = nn.Conv2d(in_channels, key_channels, kernel_size=1)
        self.key = nn.Conv2d(in_channels, key_channels, kernel_size=1)
        self.prototypes = nn.Parameter(torch.empty(pair_channels, key_channels))
        self.temperature = nn.Parameter(torch.empty(2))  # logarithms, of targets and sources
        nn.init.normal_(self.prototypes)
        nn.init.constant_(self.temperature, math.log(temperature))
        self.add_layers(key_channels)

    def add_layers(self, key_channels: int) -> None:
        """What a subclass with the same options has beside these."""

    def query_and_key(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        """Return what is compared with the prototypes: (B, n, d), (B, source, d)."""
        return neurons(self.query(x)), neurons(self.key(x if source is None else source))

    def channel_scores(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        """Return tau cos(q_i, p_r) (B, n, R) and tau' cos(k_j, p_r) (B, source, R)."""
        query, key = self.query_and_key(x, source, source_mask)
        with without_autocast(x):
            prototypes = F.normalize(self.prototypes.to(query.dtype), dim=-1)
            target_scale, source_scale = self.temperature.to(query.dtype).exp()
            return (
                F.linear(F.normalize(query, dim=-1), target_scale * prototypes),
                F.linear(F.normalize(key, dim=-1), source_scale * prototypes),
            )

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        target_score, source_score = self.channel_scores(x, source, source_mask)
        return target_score.softmax(-1), softmax_over_sources(source_score, source_mask)
