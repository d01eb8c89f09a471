"""Selective context with the coefficients written out: n_target x n_source of them.

The obvious version for everyday sizes, the only one for coefficients that a user supplies, and
the row-by-row fallback of the interpolated form.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scaseg.ops.activation import Activation, lift
from scaseg.ops.problem import Problem
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import empty_to_zero, strongest


def dense_context(problem: Problem) -> Tensor:
    """Give each target the mean of the sources, weighted by its coefficients: (B, target, M)."""
    problem = problem.hide_masked(score=0)
    coefficients = dense_coefficients(
        problem.target_score,
        problem.source_score,
        activation=problem.activation,
        channel_weight=problem.channel_weight,
        own=problem.own,
        source_mask=problem.source_mask,
    )
    return weighted_mean(problem.values, coefficients, signed=problem.activation.signed)


def dense_coefficients(
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: Activation,
    channel_weight: Tensor | None,
    own: Tensor | None,
    source_mask: Tensor | None,
) -> Tensor:
    """Write out a_ij = sum_r w_r phi(s_ir + t_jr), 0 at j = own and at masked sources.

    Shapes as in `Problem` -> (B, target, source). Rows that would under- or overflow are
    multiplied by a constant, which no weighted mean can see; exp rows always are, by 1 / max.
    """
    lifted, log_scale = target_score, None
    if activation.exponential_tail:
        top = strongest(source_score, source_mask)
        peak = top.score
        if own is not None:  # a target that is itself the strongest sees only the second strongest
            peak = torch.where(own == top.source, top.second_score, top.score)
        lifted, log_scale = lift(target_score, peak, activation)
    scale = row_scale(log_scale, channel_weight)  # (B or 1, R, target or 1) or None
    left_out = _left_out(own, source_mask, source_score.shape[-1])

    def channel(r: int) -> Tensor:
        score = lifted[:, r].unsqueeze(-1) + source_score[:, r].unsqueeze(-2)
        # phi(-inf) = 0 for all but the identity; taken out afterwards, an own score far above
        # the peak could overflow first
        if left_out is not None and not activation.signed:
            score = score.masked_fill(left_out, -torch.inf)
        term = activation.phi(score)
        return term if scale is None else term * scale[:, r].unsqueeze(-1)

    coefficients = channel(0)
    for r in range(1, source_score.shape[1]):
        coefficients = coefficients + channel(r)
    if left_out is not None and activation.signed:
        coefficients = coefficients.masked_fill(left_out, 0)
    return coefficients


def _left_out(own: Tensor | None, source_mask: Tensor | None, sources: int) -> Tensor | None:
    """Return True at (B or 1, target or 1, source) for each pair that must not count."""
    left_out = None if source_mask is None else ~source_mask.unsqueeze(1)
    if own is not None:
        is_own = own.unsqueeze(-1) == torch.arange(sources, device=own.device)
        left_out = is_own.unsqueeze(0) if left_out is None else left_out | is_own
    return left_out


def row_scale(log_scale: Tensor | None, channel_weight: Tensor | None) -> Tensor | None:
    """Weigh the channels of each row against each other: w_r times the factor `lift` took out.

    Channels of one row must be put on one scale before they are added up; what is common to
    them cancels in the mean. log_scale (B, R, target), channel_weight (R,) -> (B or 1, R, target
    or 1), None where every channel counts alike.
    """
    weight = None if channel_weight is None else channel_weight.view(1, -1, 1)
    if log_scale is None or log_scale.shape[1] == 1:
        return weight
    largest = log_scale.detach()
    if weight is not None:
        largest = largest.masked_fill(weight == 0, -torch.inf)  # it must not dwarf the others
    largest = empty_to_zero(largest.amax(1, keepdim=True))
    # only a channel of weight 0 can exceed the largest, and overflow: 0 * inf would be NaN
    most = math.log(torch.finfo(log_scale.dtype).max) - 20
    factor = torch.exp((log_scale - largest).clamp(max=most))
    return factor if weight is None else factor * weight


def weighted_mean(values: Tensor, coefficients: Tensor, *, signed: bool) -> Tensor:
    """Average values (B, source, M) with coefficients (B or 1, target, source)."""
    magnitude = coefficients.detach().abs().sum(-1) if signed else None
    inverse = reciprocal(coefficients.sum(-1), magnitude)  # (B, target)
    return (coefficients @ values) * inverse.unsqueeze(-1)
