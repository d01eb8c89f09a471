"""Selective context in O(n) or O(n log n), exactly: identity, relu, and the plain average.

(exp, exact too, is a special case of smooth.py.) ops/README.md derives each form.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.autograd import product_like
from scaseg.ops.checks import check_values
from scaseg.ops.dense import reciprocal
from scaseg.ops.precision import without_autocast
from scaseg.ops.scores import Scores, strongest, wide_dtype, working_dtype

SCAN = 256  # rows that one thread of a GPU adds up


def uniform_context(
    values: Tensor, *, exclude_self: bool = True, source_mask: Tensor | None = None
) -> Tensor:
    """Return the plain mean of the sources: every coefficient is 1 (the paper's baseline-ave).

    values (B, source, M), source_mask (B, source) -> (B, source, M), or (B, 1, M), the same for
    every target, with exclude_self=False.
    """
    check_values(values, source_mask)
    with without_autocast(values):
        dtype = working_dtype(values)
        if source_mask is not None:
            values = values.masked_fill(~source_mask.unsqueeze(-1), 0)
        total = values.sum(1, keepdim=True, dtype=dtype)
        present = values.new_ones((1, values.shape[1]), dtype=dtype)
        present = present if source_mask is None else source_mask.to(dtype)
        count = present.sum(1, keepdim=True)
        if exclude_self:
            total, count = total - values, count - present
        context = total * reciprocal(count).unsqueeze(-1)
    return context.to(values.dtype)


def identity_context(values: Tensor, scores: Scores) -> Tensor:
    """Return the context for phi = identity, the paper read literally: (B, target, M).

    Two moments are enough: sum_j (s_i + t_j) c_j = s_i sum_j c_j + sum_j t_j c_j.
    """
    values, scores = scores.hide_masked(values, 0)
    present = scores.present
    target, source = one_channel(scores)  # (B, target), (B, source), wide
    count, score_sum = present.sum(1, keepdim=True).to(source), source.sum(1, keepdim=True)
    # sum_j |s_i + t_j| by |z| = 2 relu(z) - z; a constant to autograd, for the guard
    fixed, of = target.detach(), source.detach()
    positive = RampSum.apply(fixed, of, present.to(source).unsqueeze(-1)).squeeze(-1)
    magnitude = 2 * positive - (fixed * count + of.sum(1, keepdim=True))
    if scores.own is None:
        inverse = reciprocal(target * count + score_sum, magnitude)
        mix = torch.stack([target * inverse, inverse], -1).to(values.dtype)  # (B, target, 2)
        moments = torch.stack([present, source.to(values.dtype)], 1) @ values
        return product_like(values, mix, moments)

    # Leave the own term out of each moment by itself: their sum may nearly vanish. A moment
    # without its own term loses digits only where that term is the largest: that row directly.
    top = source.detach().abs().argmax(1, keepdim=True)  # (B, 1)
    direct = ((target.gather(1, top) + source) * present).scatter(1, top, 0)  # (B, source)
    total = target * (count - present) + (score_sum - source)
    total = total.scatter(1, top, direct.sum(1, keepdim=True))
    magnitude = magnitude - ((target + source) * present).detach().abs()
    magnitude = magnitude.scatter(1, top, direct.detach().abs().sum(1, keepdim=True))
    inverse = reciprocal(total, magnitude)
    # s_i inverse_i (C - c_i) + inverse_i (T - t_i c_i), C and T the moments: each of them is
    # mixed into all targets by one product, and own terms go in one step
    mix = torch.stack([target * inverse, inverse], -1).to(values.dtype)  # (B, target, 2)
    moments = torch.stack([present, source.to(values.dtype)], 1) @ values  # (B, 2, M)
    own = ((target + source) * present * inverse).to(values.dtype).unsqueeze(-1)
    context = torch.addcmul(product_like(values, mix, moments), own, values, value=-1)
    row = (direct * inverse.gather(1, top)).to(values.dtype).unsqueeze(1) @ values
    return context.scatter_(1, top.unsqueeze(-1).expand_as(row), row)


def one_channel(scores: Scores) -> tuple[Tensor, Tensor]:
    """Join the channels: sum_r w_r (s_ir + t_jr) is itself a target's plus a source's score.

    -> (B, target), (B, source), 0 at masked sources, in the wide dtype: row sums near zero magnify
    every rounding error of the scores, and widening n numbers is cheap. The origin of each channel
    is moved into the middle of its sources first: s and t may be large numbers that cancel.
    """
    wide = wide_dtype(scores.source)
    visible = scores.source.detach().to(wide)
    if scores.source_mask is not None:
        visible = visible.masked_fill(~scores.source_mask.unsqueeze(1), torch.nan)
    center = visible.nanmedian(-1, keepdim=True).values  # (B, R, 1)
    center = center.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    target, source = scores.target.to(wide) + center, scores.source.to(wide) - center
    if scores.channel_weight is not None:
        weight = scores.channel_weight.to(wide).view(1, -1, 1)
        target, source = target * weight, source * weight
    return target.sum(1), source.sum(1) * scores.present


def relu_context(values: Tensor, scores: Scores) -> Tensor:
    """Return the context for phi = relu by sorting the sources once: (B, target, M)."""
    values, scores = scores.hide_masked(values, 0)
    channels = [_relu_sums(values, scores, r) for r in range(scores.source.shape[1])]
    weighted, total = (sum(sums[1:], start=sums[0]) for sums in zip(*channels, strict=True))
    # a NaN score has no place in the order: it could hide behind the sources it is compared with
    hidden_nan = scores.source.detach().isnan().flatten(1).any(1, keepdim=True)
    total = total.masked_fill(hidden_nan, torch.nan)
    return weighted * reciprocal(total).unsqueeze(-1)


def _relu_sums(values: Tensor, scores: Scores, r: int) -> tuple[Tensor, Tensor]:
    """Sums of one channel, weighted: of a_ij c_j (B, target, M) and of a_ij (B, target)."""
    target, source, present = scores.target[:, r], scores.source[:, r], scores.present
    weighted = RampSum.apply(target, source, values)
    total = RampSum.apply(target, source, present.unsqueeze(-1)).squeeze(-1)
    if scores.own is not None:
        own = torch.relu(target + source) * present
        # "total minus own" loses digits only at the strongest source: that row directly
        top = strongest(source.unsqueeze(1), scores.source_mask).source.squeeze(1)
        direct = (torch.relu(target.gather(1, top) + source) * present).scatter(1, top, 0)
        row = direct.unsqueeze(1) @ values  # (B, 1, M)
        weighted = torch.addcmul(weighted, own.unsqueeze(-1), values, value=-1)
        weighted = weighted.scatter(1, top.unsqueeze(-1).expand_as(row), row)
        total = (total - own).scatter(1, top, direct.sum(1, keepdim=True))
    if scores.channel_weight is None:
        return weighted, total
    return weighted * scores.channel_weight[r], total * scores.channel_weight[r]


class RampSum(Function):
    """N_i = sum_j relu(s_i + t_j) c_j: (B, target), (B, source), (B, source, M) -> (B, target, M).

    The sources with t > -s are the first few in descending order of t, so sums over them are
    prefix sums. Anchored at the weakest of them,
        sum (s + t_m) c_m = (s + t_k) sum c_m + sum (t_m - t_k) c_m,     m <= k,
    every factor is a difference of neighbours, non-negative and exact: nothing cancels. Gradients
    are sums of the same kind with the roles swapped, hence any order is available.
    """

    @staticmethod
    def forward(target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:
        return _ramp(target_score, *_sorted_prefix(target_score, source_score, values))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target_score, source_score, values = ctx.saved_tensors
        grad_target = grad_source = grad_values = None
        if ctx.needs_input_grad[0]:
            grad_target = (grad * StepSum.apply(target_score, source_score, values)).sum(-1)
        if all(ctx.needs_input_grad) and not torch.is_grad_enabled():  # both from one sorting
            swapped = _sorted_prefix(source_score, target_score, grad)
            grad_source = (values * _first(swapped[1], swapped[2])).sum(-1)
            return grad_target, grad_source, _ramp(source_score, *swapped)
        if ctx.needs_input_grad[1]:
            grad_source = (values * StepSum.apply(source_score, target_score, grad)).sum(-1)
        if ctx.needs_input_grad[2]:
            grad_values = RampSum.apply(source_score, target_score, grad)
        return grad_target, grad_source, grad_values


class StepSum(Function):
    """N_i = sum of c_j over the sources with s_i + t_j > 0; shapes as in RampSum."""

    @staticmethod
    def forward(target_score: Tensor, source_score: Tensor, values: Tensor) -> Tensor:
        _, prefix, active = _sorted_prefix(target_score, source_score, values)
        return _first(prefix, active)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target_score, source_score = ctx.saved_tensors
        return None, None, StepSum.apply(source_score, target_score, grad)


def _sorted_prefix(target: Tensor, source: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """Sort the sources, strongest first: their scores (B, source), prefix sums (B, source, M).

    And how many of them each target adds up, (B, target): those with t > -s.
    """
    score, order = source.sort(dim=-1, descending=True)
    prefix = prefix_sums(_rows(values, order))
    active = torch.searchsorted(-score, target.contiguous())  # counts -t < s, strictly
    return score, prefix, active


def _ramp(target: Tensor, score: Tensor, prefix: Tensor, active: Tensor) -> Tensor:
    """RampSum from what `_sorted_prefix` gives."""
    # the first step is 0: so is what a target without active sources finds there
    falls = (score[:, :-1] - score[:, 1:]).unsqueeze(-1)
    if torch.compiler.is_compiling():
        steps = F.pad(falls * prefix[:, :-1], (0, 0, 1, 0))
    else:  # the same without a copy
        steps = torch.empty_like(prefix)
        steps[:, :1] = 0
        torch.mul(falls, prefix[:, :-1], out=steps[:, 1:])
    anchored = prefix_sums(steps)
    last = (active - 1).clamp(min=0)
    above = (target + score.gather(1, last)).masked_fill(active == 0, 0)
    return torch.addcmul(_rows(anchored, last), above.unsqueeze(-1), _rows(prefix, last))


def prefix_sums(x: Tensor) -> Tensor:
    """Add up along the rows: (B, n, M) -> (B, n, M)."""
    # a GPU gives each column to one thread, which goes through all n rows
    few = x.shape[1] <= 2 * SCAN
    if not x.is_cuda or few or torch.compiler.is_compiling():
        return x.cumsum(1)
    return blocked_prefix_sums(x)


def blocked_prefix_sums(x: Tensor) -> Tensor:
    """`prefix_sums`, within blocks of SCAN rows first, then over the blocks."""
    count = x.shape[1]
    if count % SCAN:
        x = F.pad(x, (0, 0, 0, -count % SCAN))
    sums = x.unflatten(1, (-1, SCAN)).cumsum(2)
    before = sums[:, :-1, -1].cumsum(1).unsqueeze(2)  # (B, blocks - 1, 1, M)
    sums[:, 1:] += before
    return sums.flatten(1, 2)[:, :count]


def _first(prefix: Tensor, count: Tensor) -> Tensor:
    """Return prefix sums (B, source, M) of the first `count` sources: (B, target, M)."""
    return _rows(prefix, (count - 1).clamp(min=0)).masked_fill((count == 0).unsqueeze(-1), 0)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows `index` (B, k) of x (B, n, M): (B, k, M)."""
    first = torch.arange(len(x), device=x.device).unsqueeze(1) * x.shape[1]
    # whole rows are copied: gather would take them element by element
    found = x.flatten(0, 1).index_select(0, (index + first).flatten())
    return found.view(*index.shape, x.shape[2])
