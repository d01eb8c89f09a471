"""The average, and a selection that has to earn its share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.balanced import BalancedContext
from scaseg.nn.contexts.parts import neurons, softmax_over_sources
from scaseg.ops.checks import check_number


class GatedContext(BalancedContext):
    """average + g_i (selective - average), g_i in (0, 1) predicted for each neuron.

    Selective contexts fit the training images better than the average without generalizing better.
    So the average is always at hand, as one more channel whose sources all count alike; the gate
    g_i = sigmoid(u . x_i + b) starts near 1/8 (b = -2), low enough to begin at the average, high
    enough for gradients to reach the scores of `balanced`. In training, score_dropout sets scores
    of sources to 0, the even one: no single source can be relied upon.
    """

    reference = "Chen et al. 2018 with an average that stays"
    score_parts: tuple[str, ...] = (*BalancedContext.score_parts, "gate")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        pair_channels: int = 64,
        key_channels: int = 8,
        temperature: float = 10.0,
        score_dropout: float = 0.1,
        share_features: bool = False,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            pair_channels=pair_channels,
            key_channels=key_channels,
            temperature=temperature,
            share_features=share_features,
        )
        check_number("score_dropout", score_dropout, 0, 1)
        self.score_dropout = score_dropout
        self.gate = nn.Conv2d(in_channels, 1, kernel_size=1)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, -2.0)  # type: ignore[arg-type]

    def channel_scores(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        target_score, source_score = super().channel_scores(x, source, source_mask)
        if self.training and self.score_dropout:
            # without the usual scaling: a score that stays must keep its meaning
            stays = F.dropout(torch.ones_like(source_score), self.score_dropout) != 0
            source_score = source_score * stays
        return target_score, source_score

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        channel_share, source_share = super().factors(x, source, source_mask)
        gate = neurons(self.gate(x)).sigmoid()  # (B, n, 1)
        even = softmax_over_sources(torch.zeros_like(source_share[..., :1]), source_mask)
        return (
            torch.cat([gate * channel_share, 1 - gate], -1),
            torch.cat([source_share.mT, even.mT], 1).mT,  # as they lie in memory
        )
