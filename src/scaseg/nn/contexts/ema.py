"""Expectation-maximization attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import counted, neurons
from scaseg.ops.checks import MOST_PAIRS, check_whole_number
from scaseg.ops.dense import reciprocal
from scaseg.ops.precision import without_autocast


class EmaContext(FactoredContext):
    """R bases are fitted to the image by expectation-maximization; neurons meet in them.

    z_jr = softmax over r of f_j . p_r says which basis neuron j belongs to (E-step), p_r ~ sum_j
    z_jr f_j fits the bases to them (M-step, |p_r| = 1); after `steps` E-steps, b_ir = z_ir and
    k_jr = z_jr / sum_j z_jr. f is a 1x1 convolution. O(n R M), R = pair_channels.

    In the paper the first bases are a running mean of the last ones; here they are learned by
    gradients, so that a forward pass changes nothing and all processes of a training agree. There f
    is gathered, here W_c x, as in all contexts.
    """

    reference = (
        "Li et al., Expectation-maximization attention networks for semantic segmentation "
        "(EMANet), ICCV 2019"
    )
    score_parts = ("feature", "bases")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        pair_channels: int = 64,
        key_channels: int = 64,
        steps: int = 3,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("pair_channels", pair_channels, 1, MOST_PAIRS)
        check_whole_number("key_channels", key_channels, 1)
        check_whole_number("steps", steps, 1, 100)
        self.steps = steps
        self.feature = nn.Conv2d(in_channels, key_channels, kernel_size=1)
        self.bases = nn.Parameter(torch.empty(pair_channels, key_channels))
        # smaller features would belong to all bases alike, and the M-step make these the same
        nn.init.kaiming_normal_(self.feature.weight)
        nn.init.normal_(self.bases)

    def fit(self, feature: Tensor, source_mask: Mask, m_steps: int) -> Tensor:
        """Fit the bases to features (B, source, d) that count: (B, R, d), of length 1."""
        bases = F.normalize(self.bases.to(feature.dtype), dim=-1).expand(feature.shape[0], -1, -1)
        for _ in range(m_steps):
            belongs = counted((feature @ bases.mT).softmax(-1), source_mask)
            bases = F.normalize(belongs.mT @ feature, dim=-1)
        return bases

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        own = neurons(self.feature(x))
        feature = own if source is None else neurons(self.feature(source))
        feature = counted(feature, source_mask)
        with without_autocast(x):
            bases = self.fit(feature, source_mask, self.steps - 1)
            belongs = counted((feature @ bases.mT).softmax(-1), source_mask)
            source_share = belongs * reciprocal(belongs.sum(1)).unsqueeze(1)
            return (own @ bases.mT).softmax(-1), source_share
