"""Contexts whose coefficients are a product of two thin matrices: dynamic at linear cost."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from scaseg.nn.context import Context, MapFactors


class FactoredContext(Context):
    """h_i = W_d x_i + sum_r b_ir m_r, m_r = sum_j k_jr W_c x_j: a_ij = sum_r b_ir k_jr.

    R channels stand between targets and sources. Each is a mean m_r of the sources, and each
    target a mixture of channels; so the order of the sources differs between targets, at O(n R M).
    A subclass gives b and k. The own entry is kept, as in `dot`.
    """

    exclude_self = False
    neuron_selective = True

    @abstractmethod
    def factors(
        self, x: Tensor, source: Tensor | None, source_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return b (B, n, R), which sums to 1 over r, and k (B, source, R), 1 over j.

        Arguments as in `target_context`. k is 0 for sources that do not count.
        """

    def target_context(
        self, x: Tensor, source: Tensor | None, source_mask: Tensor | None
    ) -> Tensor:
        values = self.values(x if source is None else source)
        channel_share, source_share = self.factors(x, source, source_mask)
        return channel_share.to(values) @ (source_share.mT.to(values) @ values)

    def coefficient_rows(
        self, x: Tensor, source: Tensor | None, targets: Tensor, source_mask: Tensor | None
    ) -> Tensor:
        channel_share, source_share = self.factors(x, source, source_mask)
        return channel_share[:, targets] @ source_share.mT

    def map_factors(self, x: Tensor) -> MapFactors:
        channel_share, source_share = self.factors(x, None, None)
        return MapFactors("mixture", channel_share[0], source_share[0])


def neurons(x: Tensor) -> Tensor:
    """The neurons of a map in float32 at least: (B, C, H, W) -> (B, n, C)."""
    return x.flatten(2).transpose(1, 2).to(torch.promote_types(x.dtype, torch.float32))


def softmax_over_sources(score: Tensor, source_mask: Tensor | None) -> Tensor:
    """Softmax of (B, source, R) over the sources that count; 0 for the others."""
    if source_mask is None:
        return score.softmax(1)
    counts = source_mask.unsqueeze(-1)
    # not -inf: an image without any source would give NaN
    return score.masked_fill(~counts, torch.finfo(score.dtype).min).softmax(1) * counts


def real_map(x: Tensor, source: Tensor | None, source_mask: Tensor | None) -> Tensor:
    """Which neurons of x are real, as far as the mask of the sources tells: (B, H, W), 0 or 1."""
    real = x.new_ones(x.shape[0], *x.shape[-2:], dtype=torch.promote_types(x.dtype, torch.float32))
    if source is None and source_mask is not None:
        real = source_mask.to(real).unflatten(1, x.shape[-2:])
    return real


def places(line: Tensor) -> tuple[Tensor, Tensor]:
    """Number the rows (or columns) of a map, and say how many are real.

    line (B, length): 1 where a row has a real neuron -> (length,), (B, 1); padding lies behind.
    """
    place = torch.arange(line.shape[1], device=line.device, dtype=line.dtype)
    return place, (line * (place + 1)).amax(1, keepdim=True)
