"""Contexts whose coefficients are a product of two thin matrices: dynamic at linear cost."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from scaseg.nn.context import Context, MapFactors, Mask, Source


class FactoredContext(Context):
    """h_i = W_d x_i + sum_r b_ir m_r, m_r = sum_j k_jr W_c x_j: a_ij = sum_r b_ir k_jr.

    R channels stand between targets and sources. Each is a mean m_r of the sources, and each
    target a mixture of channels; so the order of the sources differs between targets, at O(n R M).
    A subclass gives b and k. The own entry is kept, as in `dot`.
    """

    exclude_self = False
    neuron_selective = True

    @abstractmethod
    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        """Return b (B, n, R), which sums to 1 over r, and k (B, source, R), 1 over j.

        Arguments as in `target_context`. k is 0 for sources that do not count.
        """

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        features = (x if source is None else source).flatten(2).transpose(1, 2)
        channel_share, source_share = self.factors(x, source, source_mask)
        means = source_share.mT.to(features) @ features  # (B, R, C)
        values = self.values(means.mT.unsqueeze(-1))  # W_c after the means: both are linear
        return channel_share.to(values) @ values

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        channel_share, source_share = self.factors(x, source, source_mask)
        return channel_share[:, targets] @ source_share.mT

    def map_factors(self, x: Tensor) -> MapFactors:
        channel_share, source_share = self.factors(x, None, None)
        return MapFactors("mixture", channel_share[0], source_share[0])
