"""Selective context in O(n) for phi = exp, sigmoid, softplus: interpolate between a few targets.

The context of a target is a smooth function of its score alone, analytic for |Im s| < pi. So it
is computed directly for a few virtual targets, the Chebyshev nodes, and interpolated for all real
ones. (For exp it is a constant: one node.) ops/README.md has the proof, the error bound and the
gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.activation import lift
from scaseg.ops.autograd import Interpolate, Mix
from scaseg.ops.chunks import map_rows
from scaseg.ops.dense import dense_context, row_scale
from scaseg.ops.nodes import (
    Interval,
    TopRow,
    VirtualTargets,
    look,
    measured_interval,
    promised_interval,
)
from scaseg.ops.problem import Problem
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import empty_to_zero, strongest

# From here on a promised range is no better than computing the targets, if there are no more
MANY_NODES = 512


def smooth_context(problem: Problem) -> Tensor:
    """Interpolate the context of every target: (B, target, M)."""
    bound = problem.score_bound
    if bound is not None and problem.activation.form == "interpolated":
        # a broken promise that nobody could check must not leave the interval
        problem = problem._replace(
            target_score=problem.target_score.clamp(-bound, bound),
            source_score=problem.source_score.clamp(-bound, bound),
        )
    problem = problem.hide_masked(score=-torch.inf)  # phi(-inf) = 0
    first = strongest(problem.source_score, problem.source_mask)
    lifted, log_scale = lift(problem.target_score, first.score, problem.activation)
    targets = lifted.shape[-1]
    if problem.activation.form == "constant":
        interval = Interval(-first.score, torch.ones_like(first.score), None, nodes=1)
    elif bound is not None:
        interval = promised_interval(bound, like=first.score)
        if interval.nodes > MANY_NODES and interval.nodes >= targets:
            return _one_by_one(problem)
    else:
        interval = measured_interval(lifted, problem)
        if interval.nodes >= targets:  # the targets themselves are the better nodes
            return _one_by_one(problem)

    top = mean_score = None
    if problem.own is not None:
        own_target = problem.target_score.gather(-1, first.source)
        top = TopRow(first.source, own_target, first.second_score)
    if interval.ceiling is not None and not problem.activation.saturates:
        mean_score = _mean_score(problem)
    virtual = look(
        problem,
        first.score,
        interval,
        top=top,
        uniform=mean_score is not None,
        slopes=lifted.requires_grad and problem.activation.slope is not None,
    )

    def interpolate(
        lifted: Tensor,
        log_scale: Tensor,
        own: Tensor | None,
        own_score: Tensor | None,
        own_values: Tensor | None,
    ) -> tuple[Tensor]:
        return (
            _interpolate(
                problem._replace(own=own),
                virtual,
                interval,
                lifted,
                log_scale,
                own_score,
                own_values,
                mean_score,
            ),
        )

    own_score = own_values = None
    if problem.own is not None:
        own_score = problem.source_score
        # with weights the values are at hand, and as many as the targets: one slice, all own
        own_values = None if virtual.weights is not None else problem.values
    rows: list[tuple[Tensor | None, int]] = [
        (lifted, -1),
        (log_scale, -1),
        (problem.own, -1),
        (own_score, -1),
        (own_values, 1),
    ]
    elements = lifted.shape[0] * lifted.shape[1] * interval.nodes
    return map_rows(interpolate, rows, row_elements=elements, dim=1)[0]


def _interpolate(
    problem: Problem,
    virtual: VirtualTargets,
    interval: Interval,
    lifted: Tensor,
    log_scale: Tensor,
    own_score: Tensor | None,
    own_values: Tensor | None,
    mean_score: Tensor | None,
) -> Tensor:
    """Mix the context of some targets from what the virtual ones see: (B, target, M).

    lifted, log_scale, own_score (B, R, target); problem.own (target,); own_values (B, target, M)
    where they are not all the values; mean_score (B, R, 1) if phi grows above the ceiling.
    """
    capped = lifted
    if interval.ceiling is not None:
        capped = torch.minimum(lifted, interval.ceiling)
    basis = interval.basis(capped)
    log_total = Interpolate.apply(capped, basis, virtual.log_total, virtual.log_total_slope)
    total = torch.exp(log_total).to(capped.dtype)  # (B, R, target): sums of coefficients
    fall = None
    if mean_score is not None:
        # above the ceiling phi(z) = z: context - mean falls like 1 / (s + mean score), and the
        # sum grows like it; written so that below, where growth is 1, all derivatives are 0
        assert interval.ceiling is not None
        over = (lifted - interval.ceiling).clamp(min=0)
        growth = 1 + over / (interval.ceiling + mean_score)
        total, fall = total * growth, 1 / growth

    others = total
    top = virtual.top
    if top is not None:
        assert problem.own is not None
        assert own_score is not None
        own_coefficient = problem.activation.phi(lifted + own_score)
        is_top = problem.own == top.source
        others = torch.where(is_top, top.total, total - own_coefficient)
        log_scale = torch.where(is_top, top.log_scale, log_scale)
    scale = row_scale(log_scale, problem.channel_weight)
    row_total = (others if scale is None else others * scale).sum(1, keepdim=True)
    factor = reciprocal(row_total) if scale is None else reciprocal(row_total) * scale

    share = factor * total  # (B, R, target): how much of each channel's context
    extra, own_share = [], None  # shares of the rows that are not interpolated
    if top is not None:
        share = share.masked_fill(is_top, 0)
        extra.append((factor * top.total).masked_fill(~is_top, 0))
        own_share = (factor * own_coefficient).masked_fill(is_top, 0).sum(1).unsqueeze(-1)
    if fall is not None:
        extra.append(share * (1 - fall))
        share = share * fall
    context, _ = Mix.apply(
        capped,
        basis.to(capped.dtype),
        share,
        torch.stack(extra, dim=-1) if extra else None,
        own_share,
        virtual.weights,
        virtual.slopes,
        virtual.values,
        own_values,
    )
    return context


def _one_by_one(problem: Problem) -> Tensor:
    """Compute all targets directly, a slice at a time."""

    def directly(score: Tensor, own: Tensor | None) -> tuple[Tensor]:
        return (dense_context(problem._replace(target_score=score, own=own)),)

    rows: list[tuple[Tensor | None, int]] = [(problem.target_score, -1), (problem.own, -1)]
    elements = problem.values.shape[0] * problem.values.shape[1]
    return map_rows(directly, rows, row_elements=elements, dim=1)[0]


def _mean_score(problem: Problem) -> Tensor:
    """The mean score of the sources that count: (B, R, 1)."""
    count = problem.present.sum(-1).clamp(min=1).view(-1, 1, 1)
    return empty_to_zero(problem.source_score).sum(-1, keepdim=True) / count
