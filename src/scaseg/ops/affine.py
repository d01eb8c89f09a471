"""Selective context in O(n) for phi = identity, the paper read literally: two moments do it all.

sum_j (s_i + t_j) c_j = s_i C + T,     C = sum_j c_j,     T = sum_j t_j c_j
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.precision import wide_dtype
from scaseg.ops.ramp import RampSum
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import hide_masked


def affine_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    channel_weight: Tensor | None,
    own: Tensor | None,
    source_mask: Tensor | None,
) -> Tensor:
    """Combine the two moments for every target; shapes as in `dense_context`."""
    values, source_score = hide_masked(values, source_score, source_mask)
    present = values.new_ones(values.shape[:2]) if source_mask is None else source_mask.to(values)
    # row sums near zero magnify every rounding error of the scores; widening n numbers is cheap
    wide = wide_dtype(values)
    target, source = _one_channel(
        target_score.to(wide), source_score.to(wide), channel_weight, source_mask
    )
    source = source * present  # (B, target), (B, source)

    count, score_sum = present.sum(1, keepdim=True).to(wide), source.sum(1, keepdim=True)
    total = target * count + score_sum
    magnitude = _sum_of_magnitudes(target, source, present.to(wide), total)
    moments = torch.stack([present, source.to(values.dtype)], 1) @ values  # (B, 2, M)
    own_coefficient = None
    if own is not None:
        # "total minus own" loses digits only where the own term is the largest of all
        top = source.detach().abs().argmax(1, keepdim=True)  # (B, 1)
        own_coefficient = (target + source) * present
        coefficients = ((target.gather(1, top) + source) * present).scatter(1, top, 0)
        total = (total - own_coefficient).scatter(1, top, coefficients.sum(1, keepdim=True))
        magnitude = (magnitude - own_coefficient.detach().abs()).scatter(
            1, top, coefficients.detach().abs().sum(1, keepdim=True)
        )
    inverse = reciprocal(total, magnitude)
    mix = torch.stack([target * inverse, inverse], -1).to(values.dtype)  # (B, target, 2)
    context = mix @ moments
    if own_coefficient is None:
        return context
    own_share = (own_coefficient * inverse).to(values.dtype).unsqueeze(-1)
    context = torch.addcmul(context, own_share, values, value=-1)
    direct = (coefficients * inverse.gather(1, top)).to(values.dtype).unsqueeze(1) @ values
    return context.scatter(1, top.unsqueeze(-1).expand_as(direct), direct)


def _one_channel(
    target_score: Tensor,
    source_score: Tensor,
    channel_weight: Tensor | None,
    source_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Join the channels: sum_r w_r (s_ir + t_jr) is itself a target's plus a source's score.

    (B, R, target), (B, R, source) -> (B, target), (B, source). The origin of each channel is moved
    into the middle of its sources first: s and t may be large numbers that cancel.
    """
    visible = source_score.detach()
    if source_mask is not None:
        visible = visible.masked_fill(~source_mask.unsqueeze(1), torch.nan)
    centre = visible.nanmedian(-1, keepdim=True).values
    centre = centre.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    target, source = target_score + centre, source_score - centre
    if channel_weight is not None:
        weight = channel_weight.to(target).view(1, -1, 1)
        target, source = target * weight, source * weight
    return target.sum(1), source.sum(1)


def _sum_of_magnitudes(target: Tensor, source: Tensor, present: Tensor, total: Tensor) -> Tensor:
    """Return sum_j |s_i + t_j| by |z| = 2 relu(z) - z; a constant to autograd, for the guard."""
    positive = RampSum.apply(target.detach(), source.detach(), present.unsqueeze(-1)).squeeze(-1)
    return 2 * positive - total.detach()
