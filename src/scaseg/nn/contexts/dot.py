"""Ordinary attention as a context."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from scaseg.nn.context import Context, MapFactors, Mask, Source
from scaseg.nn.contexts.parts import query_and_key
from scaseg.ops.attention import dot_coefficients, dot_context
from scaseg.ops.checks import check_number


class DotContext(Context):
    """h_i = W_d x_i + the mean of W_c x_j weighted by exp(q_i . k_j / sqrt(d)); j = i counts too.

    q and k are 1x1 convolutions of x to d = key_channels. O(n^2) time, O(n) memory.

    identity_dropout: in training, that part of the neurons has no W_d x_i, the others 1 / (1 - it)
    of theirs. What a neuron is must then come from its sources too: maps turn to those that tell,
    and decisions depend on them. Without it a network whose features say all may ignore its maps.

    sharpness: weights are exp(sharpness cos(q_i, k_j)) instead, so one source counts at most
    exp(2 sharpness) times another: maps stay spread over the image. Those that shrink to a
    neuron's own class cost little where they are cut, for what is left of them says the same.
    """

    exclude_self = False  # so that PyTorch's fused attention applies
    order = "n^2"
    neuron_selective = True
    reference = "Wang, Girshick, Gupta and He, Non-local neural networks, CVPR 2018"
    score_parts = ("query", "key")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        key_channels: int = 64,
        identity_dropout: float = 0.0,
        sharpness: float | None = None,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_number("identity_dropout", identity_dropout, 0, 1)
        self.identity_dropout = identity_dropout
        if sharpness is not None:
            check_number("sharpness", sharpness, 0)
        self.sharpness = sharpness
        self.query, self.key = query_and_key(in_channels, key_channels)

    def _query_and_key(self, x: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, C, H, W), (B, C, H', W') -> (B, n, d), (B, source, d)."""
        query = self.query(x).flatten(2).transpose(1, 2)
        key = self.key(x if source is None else source).flatten(2).transpose(1, 2)
        if self.sharpness is None:
            return query, key
        # half of the factor each, and sqrt(d), by which products are divided
        length = (self.sharpness * query.shape[-1] ** 0.5) ** 0.5
        return length * F.normalize(query, dim=-1), length * F.normalize(key, dim=-1)

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        values = self.values(x if source is None else source)
        query, key = self._query_and_key(x, source)
        return dot_context(query, key, values.to(query.dtype), source_mask=source_mask)

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        query, key = self._query_and_key(x, source)
        return dot_coefficients(query[:, targets], key, source_mask=source_mask)

    def map_factors(self, x: Tensor) -> MapFactors:
        query, key = self._query_and_key(x, None)
        return MapFactors("dot", query[0] / query.shape[-1] ** 0.5, key[0])
