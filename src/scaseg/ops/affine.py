"""Selective context in O(n) for phi = identity, the paper read literally: two moments do it all.

sum_j (s_i + t_j) c_j = s_i C + T,     C = sum_j c_j,     T = sum_j t_j c_j
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.precision import wide_dtype
from scaseg.ops.problem import Problem
from scaseg.ops.ramp import RampSum
from scaseg.ops.row_sum import reciprocal


def affine_context(problem: Problem) -> Tensor:
    """Combine the two moments for every target: (B, target, M)."""
    problem = problem.hide_masked(score=0)
    values, present = problem.values, problem.present
    target, source = _one_channel(problem)  # (B, target), (B, source), wide
    count, score_sum = present.sum(1, keepdim=True).to(source), source.sum(1, keepdim=True)
    magnitude = _sum_of_magnitudes(target, source, present.to(source), count)
    if problem.own is None:
        inverse = reciprocal(target * count + score_sum, magnitude)
        mix = torch.stack([target * inverse, inverse], -1).to(values.dtype)  # (B, target, 2)
        return mix @ (torch.stack([present, source.to(values.dtype)], 1) @ values)

    # Leave the own term out of each moment by itself: their sum may nearly vanish. A moment
    # without its own term loses digits only where that term is the largest: that row directly.
    top = source.detach().abs().argmax(1, keepdim=True)  # (B, 1)
    direct = ((target.gather(1, top) + source) * present).scatter(1, top, 0)  # (B, source)
    total = target * (count - present) + (score_sum - source)
    total = total.scatter(1, top, direct.sum(1, keepdim=True))
    magnitude = magnitude - ((target + source) * present).detach().abs()
    magnitude = magnitude.scatter(1, top, direct.detach().abs().sum(1, keepdim=True))
    inverse = reciprocal(total, magnitude)
    first, second = ((x * inverse).to(values.dtype).unsqueeze(-1) for x in (target, 1))
    narrow = source.to(values.dtype)
    other_values = values.sum(1, keepdim=True) - values
    other_moment = narrow.unsqueeze(1) @ values - narrow.unsqueeze(-1) * values
    context = first * other_values + second * other_moment
    row = (direct * inverse.gather(1, top)).to(values.dtype).unsqueeze(1) @ values
    return context.scatter(1, top.unsqueeze(-1).expand_as(row), row)


def _one_channel(problem: Problem) -> tuple[Tensor, Tensor]:
    """Join the channels: sum_r w_r (s_ir + t_jr) is itself a target's plus a source's score.

    -> (B, target), (B, source), 0 at masked sources, in the wide dtype: row sums near zero magnify
    every rounding error of the scores, and widening n numbers is cheap. The origin of each channel
    is moved into the middle of its sources first: s and t may be large numbers that cancel.
    """
    wide = wide_dtype(problem.values)
    visible = problem.source_score.detach().to(wide)
    if problem.source_mask is not None:
        visible = visible.masked_fill(~problem.source_mask.unsqueeze(1), torch.nan)
    center = visible.nanmedian(-1, keepdim=True).values  # (B, R, 1)
    center = center.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    target, source = problem.target_score.to(wide) + center, problem.source_score.to(wide) - center
    if problem.channel_weight is not None:
        weight = problem.channel_weight.to(wide).view(1, -1, 1)
        target, source = target * weight, source * weight
    return target.sum(1), source.sum(1) * problem.present


def _sum_of_magnitudes(target: Tensor, source: Tensor, present: Tensor, count: Tensor) -> Tensor:
    """Return sum_j |s_i + t_j| by |z| = 2 relu(z) - z; a constant to autograd, for the guard."""
    target, source = target.detach(), source.detach()
    positive = RampSum.apply(target, source, present.unsqueeze(-1)).squeeze(-1)
    return 2 * positive - (target * count + source.sum(1, keepdim=True))
