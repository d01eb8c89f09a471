"""Selective context with the coefficients written out: target x source of them.

The obvious version for everyday sizes, the only one for coefficients that a user supplies, and
the row-by-row fallback of the interpolated form.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scaseg.ops.activation import lift
from scaseg.ops.scores import Scores, empty_to_zero, strongest

# A row whose coefficients nearly cancel has no meaningful mean. The guard acts only where the
# sum is less than this share of the sum of magnitudes, so the context never exceeds
# max|values| / GUARD; rows of non-negative coefficients are never touched.
GUARD = 1e-3


def dense_context(values: Tensor, scores: Scores) -> Tensor:
    """Return each target's mean of the values (B, source, M): (B, target, M)."""
    values, scores = scores.hide_masked(values, 0)
    return weighted_mean(values, dense_coefficients(scores), signed=scores.activation.signed)


def dense_coefficients(scores: Scores) -> Tensor:
    """Return the coefficients (B, target, source), 0 at j = own and at masked sources.

    Rows that would under- or overflow are multiplied by a constant, which no weighted mean can
    see; exp rows always are, by 1 / max.
    """
    activation, own = scores.activation, scores.own
    lifted, log_scale = scores.target, None
    if activation.exponential_tail:
        top = strongest(scores.source, scores.source_mask)
        peak = top.score
        if own is not None:  # for the strongest source itself, the second strongest is the peak
            peak = torch.where(own == top.source, top.second_score, top.score)
        lifted, log_scale = lift(scores.target, peak, activation)
    scale = row_scale(log_scale, scores.channel_weight)  # (B or 1, R, target or 1) or None
    # (B or 1, target or 1, source): True for each pair that must not count
    left_out = None if scores.source_mask is None else ~scores.source_mask.unsqueeze(1)
    if own is not None:
        is_own = own.unsqueeze(-1) == torch.arange(scores.source.shape[-1], device=own.device)
        left_out = is_own.unsqueeze(0) if left_out is None else left_out | is_own

    def channel(r: int) -> Tensor:
        score = lifted[:, r].unsqueeze(-1) + scores.source[:, r].unsqueeze(-2)
        # phi(-inf) = 0 for all but the identity; taken out afterwards, an own score far above
        # the peak could overflow first
        if left_out is not None and not activation.signed:
            score = score.masked_fill(left_out, -torch.inf)
        term = activation.phi(score)
        return term if scale is None else term * scale[:, r].unsqueeze(-1)

    coefficients = channel(0)
    for r in range(1, scores.source.shape[1]):
        coefficients = coefficients + channel(r)
    if left_out is not None and activation.signed:
        coefficients = coefficients.masked_fill(left_out, 0)
    return coefficients


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


def reciprocal(total: Tensor, magnitude: Tensor | None = None) -> Tensor:
    """Return 1 / total, guarded, and 0 for rows in which nothing counts.

    `magnitude`, the sum of |coefficient| over the same row, is needed only where coefficients
    can be negative. Where |total| is below the floor GUARD * magnitude, 1 / total goes over into
    total / floor^2: the same at the floor, and 0, not infinite, where the sum vanishes. So values
    and gradients stay finite and continuous as a sum crosses zero.
    """
    if magnitude is None:
        empty = total == 0  # false for NaN: it must stay visible
        return (1 / total.masked_fill(empty, 1)).masked_fill(empty, 0)
    floor = GUARD * magnitude.detach()
    unsafe = (total.abs() < floor) | (total == 0)
    # select before dividing: what is not taken must not be infinite either, or 0 * inf is NaN
    divisor = floor.masked_fill(~unsafe | (floor == 0), 1)
    guarded = total / divisor / divisor  # not its square, which could underflow
    return torch.where(unsafe, guarded, 1 / total.masked_fill(unsafe, 1))
