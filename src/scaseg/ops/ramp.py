"""Selective context in O(n log n) for phi = relu: sort the sources once, then look sums up.

A target of score s hears the sources with t > -s: in descending order of t, the first few. So
its sums are prefix sums. They are anchored at the weakest source heard,
    sum (s + t_m) c_m = (s + t_k) sum c_m + sum (t_m - t_k) c_m,     m <= k,
so that every factor is a difference of neighbours, non-negative and exact: nothing cancels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.problem import Problem
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import strongest


class RampSum(Function):
    """N_i = sum_j relu(s_i + t_j) c_j: (B, target), (B, source), (B, source, M) -> (B, target, M).

    Its gradients are sums of the same kind with the roles swapped, hence any order is available.
    """

    @staticmethod
    def forward(target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:
        score, prefix, heard = _sorted_prefix(target_score, source_score, values)
        steps = (score[:, :-1] - score[:, 1:]).unsqueeze(-1) * prefix[:, :-1]
        anchored = F.pad(steps.cumsum(1), (0, 0, 1, 0))
        weakest = score.gather(1, (heard - 1).clamp(min=0))
        lift = (target_score + weakest).masked_fill(heard == 0, 0)
        return lift.unsqueeze(-1) * _look_up(prefix, heard) + _look_up(anchored, heard)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target_score, source_score, values = ctx.saved_tensors
        grad_target = grad_source = grad_values = None
        if ctx.needs_input_grad[0]:
            grad_target = (grad * StepSum.apply(target_score, source_score, values)).sum(-1)
        if ctx.needs_input_grad[1]:
            grad_source = (values * StepSum.apply(source_score, target_score, grad)).sum(-1)
        if ctx.needs_input_grad[2]:
            grad_values = RampSum.apply(source_score, target_score, grad)
        return grad_target, grad_source, grad_values


class StepSum(Function):
    """N_i = sum of c_j over the sources with s_i + t_j > 0; shapes as in RampSum."""

    @staticmethod
    def forward(target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:
        _, prefix, heard = _sorted_prefix(target_score, source_score, values)
        return _look_up(prefix, heard)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
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


def ramp_context(problem: Problem) -> Tensor:
    """Look up the context of every target: (B, target, M)."""
    problem = problem.hide_masked(score=0)
    channels = [_channel_sums(problem, r) for r in range(problem.source_score.shape[1])]
    weighted, total = (sum(sums[1:], start=sums[0]) for sums in zip(*channels, strict=True))
    # a NaN score has no place in the order: it could hide behind the sources it is compared with
    hidden_nan = problem.source_score.detach().isnan().flatten(1).any(1, keepdim=True)
    total = total.masked_fill(hidden_nan, torch.nan)
    return weighted * reciprocal(total).unsqueeze(-1)


def _channel_sums(problem: Problem, r: int) -> tuple[Tensor, Tensor]:
    """Sums of one channel, weighted: of coefficient times value (B, target, M), of coefficients."""
    values, present = problem.values, problem.present
    target, source = problem.target_score[:, r], problem.source_score[:, r]
    weighted = RampSum.apply(target, source, values)
    total = RampSum.apply(target, source, present.unsqueeze(-1)).squeeze(-1)
    if problem.own is not None:
        own = torch.relu(target + source) * present
        # "total minus own" loses digits only at the strongest source: that row directly
        top = strongest(problem.source_score[:, r : r + 1], problem.source_mask).source.squeeze(1)
        direct = (torch.relu(target.gather(1, top) + source) * present).scatter(1, top, 0)
        row = direct.unsqueeze(1) @ values  # (B, 1, M)
        weighted = torch.addcmul(weighted, own.unsqueeze(-1), values, value=-1)
        weighted = weighted.scatter(1, top.unsqueeze(-1).expand_as(row), row)
        total = (total - own).scatter(1, top, direct.sum(1, keepdim=True))
    if problem.channel_weight is None:
        return weighted, total
    return weighted * problem.channel_weight[r], total * problem.channel_weight[r]
