"""Selective context in O(n log n) for phi = relu: sort the sources once, then look sums up.

A target of score s hears the sources with t > -s: in descending order of t, the first few. So
its sums are prefix sums. They are anchored at the weakest source heard,
    sum (s + t_m) c_m = (s + t_k) sum c_m + sum (t_m - t_k) c_m,     m <= k,
so that every factor is a difference of neighbours, non-negative and exact: nothing cancels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import hide_masked, strongest


class RampSum(Function):
    """N_i = sum_j relu(s_i + t_j) c_j: (B, target), (B, source), (B, source, M) -> (B, target, M).

    Its gradients are sums of the same kind with the roles swapped, hence any order is available.
    """

    @staticmethod
    def forward(ctx, target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(target_score, source_score, values)
        score, prefix, heard = _sorted_prefix(target_score, source_score, values)
        anchored = torch.zeros_like(prefix)
        steps = (score[:, :-1] - score[:, 1:]).unsqueeze(-1) * prefix[:, :-1]
        anchored[:, 1:] = steps.cumsum(1)
        weakest = score.gather(1, (heard - 1).clamp(min=0))
        lift = (target_score + weakest).masked_fill(heard == 0, 0)
        return lift.unsqueeze(-1) * _look_up(prefix, heard) + _look_up(anchored, heard)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        target_score, source_score, values = ctx.saved_tensors
        needs_target, needs_source, needs_values = ctx.needs_input_grad
        return (
            (grad * StepSum.apply(target_score, source_score, values)).sum(-1)
            if needs_target
            else None,
            (values * StepSum.apply(source_score, target_score, grad)).sum(-1)
            if needs_source
            else None,
            RampSum.apply(source_score, target_score, grad) if needs_values else None,
        )


class StepSum(Function):
    """N_i = sum of c_j over the sources with s_i + t_j > 0; shapes as in RampSum."""

    @staticmethod
    def forward(ctx, target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(target_score, source_score)
        _, prefix, heard = _sorted_prefix(target_score, source_score, values)
        return _look_up(prefix, heard)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        target_score, source_score = ctx.saved_tensors
        return None, None, StepSum.apply(source_score, target_score, grad)


def _sorted_prefix(
    target_score: Tensor, source_score: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the sources, strongest first: their scores, prefix sums, and how many a target hears.

    -> (B, source), (B, source, M), (B, target)
    """
    score, order = source_score.sort(dim=-1, descending=True)
    prefix = values.gather(1, order.unsqueeze(-1).expand_as(values)).cumsum(1)
    heard = torch.searchsorted(-score, target_score.contiguous())  # counts -t < s, strictly
    return score, prefix, heard


def _look_up(prefix: Tensor, heard: Tensor) -> Tensor:
    """Prefix sums of the first `heard` sources; 0 for none."""
    index = (heard - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, prefix.shape[-1])
    return prefix.gather(1, index).masked_fill((heard == 0).unsqueeze(-1), 0)


def ramp_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    channel_weight: Tensor | None,
    own: Tensor | None,
    source_mask: Tensor | None,
) -> Tensor:
    """Look up the context of every target; shapes as in `dense_context`."""
    values, source_score = hide_masked(values, source_score, source_mask)
    present = values.new_ones(values.shape[:2]) if source_mask is None else source_mask.to(values)
    _, top, _ = strongest(source_score, source_mask)  # (B, R, 1)
    weighted = total = torch.zeros((), dtype=values.dtype, device=values.device)
    for r in range(source_score.shape[1]):
        target, source = target_score[:, r], source_score[:, r]  # (B, target), (B, source)
        channel = RampSum.apply(target, source, values)
        channel_total = RampSum.apply(target, source, present.unsqueeze(-1)).squeeze(-1)
        if own is not None:
            own_coefficient = torch.relu(target + source) * present
            channel = torch.addcmul(channel, own_coefficient.unsqueeze(-1), values, value=-1)
            # the row where the own share may dominate is summed directly, as in smooth.py
            coefficients = torch.relu(target.gather(1, top[:, r]) + source) * present
            coefficients = coefficients.scatter(1, top[:, r], 0).unsqueeze(1)  # (B, 1, source)
            place = top[:, r].unsqueeze(-1).expand(-1, -1, values.shape[-1])
            channel = channel.scatter(1, place, coefficients @ values)
            channel_total = (channel_total - own_coefficient).scatter(
                1, top[:, r], coefficients.sum(-1)
            )
        if channel_weight is not None:
            channel, channel_total = channel * channel_weight[r], channel_total * channel_weight[r]
        weighted, total = (
            (channel, channel_total)
            if r == 0
            else (
                weighted + channel,
                total + channel_total,
            )
        )
    # a NaN score has no place in the order: it could hide behind the sources it is compared with
    hidden_nan = source_score.detach().isnan().flatten(1).any(1, keepdim=True)
    total = total.masked_fill(hidden_nan, torch.nan)
    return weighted * reciprocal(total).unsqueeze(-1)
