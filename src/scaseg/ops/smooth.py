"""Selective context in O(n) for phi = exp, sigmoid, softplus: interpolate between a few targets.

The context of a target is a smooth function of its score alone, analytic for |Im s| < pi. So it
is computed directly for a few virtual targets, the Chebyshev nodes, and interpolated for all real
ones. (For exp it is a constant: one node.) ops/README.md has the proof, the error bound and the
gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.activation import EXP, Activation, lift
from scaseg.ops.chunks import map_rows
from scaseg.ops.dense import dense_context, row_scale
from scaseg.ops.evaluation import Interpolate, Mix
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import Sources, hide_masked, strongest
from scaseg.ops.virtual import Interval, TopRow, look, measured_interval, promised_interval


def smooth_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: Activation,
    channel_weight: Tensor | None,
    own: Tensor | None,
    source_mask: Tensor | None,
    score_bound: float | None,
) -> Tensor:
    """Interpolate the context of every target; shapes as in `dense_context`."""
    sources = Sources(*hide_masked(values, source_score, source_mask), source_mask)
    first, strongest_source, second = strongest(sources.score, source_mask)  # (B, R, 1) each
    lifted, log_scale = lift(target_score, first, activation)  # (B, R, target) each
    if activation is EXP:
        interval = Interval(-first, torch.ones_like(first), None, nodes=1)
    elif score_bound is not None:
        interval = promised_interval(score_bound, like=first)
    else:
        interval = measured_interval(lifted, sources)
        if interval.nodes >= target_score.shape[-1]:
            # the targets themselves are the better nodes
            return _one_by_one(sources, target_score, activation, channel_weight, own)

    top = own_score = mean_score = None
    if own is not None:
        top = TopRow(strongest_source, target_score.gather(-1, strongest_source), second)
        own_score = sources.score
        if source_mask is not None:  # phi(-inf) = 0: a masked source is not in the total either
            own_score = own_score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    if interval.ceiling is not None and not activation.saturates:
        mean_score = _mean_score(sources)
    virtual = look(
        sources,
        first,
        activation,
        interval,
        top=top,
        uniform=mean_score is not None,
        slopes=lifted.requires_grad,
    )
    seen_from_top = virtual.top

    def interpolate(
        lifted: Tensor,  # (B, R, target), as is log_scale
        log_scale: Tensor,
        own: Tensor | None,  # (target,)
        own_score: Tensor | None,  # (B, R, target)
        own_values: Tensor | None,  # (B, target, M), where they are not all the values
    ) -> tuple[Tensor]:
        capped = lifted
        if interval.ceiling is not None:
            capped = torch.minimum(lifted, interval.ceiling)
        basis = interval.basis(capped)
        log_total = Interpolate.apply(capped, basis, virtual.log_total, virtual.log_total_slope)
        total = torch.exp(log_total).to(capped.dtype)  # (B, R, target): sums of coefficients
        fall = None
        if mean_score is not None:
            assert interval.ceiling is not None
            # above the ceiling phi(z) = z: context - mean falls like 1 / (s + mean score), and
            # the sum grows like it. Select before dividing: below, this could be 0 / 0
            above = torch.where(lifted > interval.ceiling, lifted, interval.ceiling)
            fall = (interval.ceiling + mean_score) / (above + mean_score)
            total = total / fall

        others = total
        if seen_from_top is not None:
            assert own is not None
            assert own_score is not None
            own_coefficient = activation.phi(lifted + own_score)
            is_top = own == seen_from_top.source
            others = torch.where(is_top, seen_from_top.total, total - own_coefficient)
            log_scale = torch.where(is_top, seen_from_top.log_scale, log_scale)
        scale = row_scale(log_scale, channel_weight)
        row_total = (others if scale is None else others * scale).sum(1, keepdim=True)
        factor = reciprocal(row_total) if scale is None else reciprocal(row_total) * scale

        share = factor * total  # (B, R, target): how much of each channel's context
        extra, own_share = [], None  # shares of the rows that are not interpolated
        if seen_from_top is not None:
            share = share.masked_fill(is_top, 0)
            extra.append((factor * seen_from_top.total).masked_fill(~is_top, 0))
            own_share = (factor * own_coefficient).masked_fill(is_top, 0).sum(1).unsqueeze(-1)
        if fall is not None:
            extra.append(share * (1 - fall))
            share = share * fall
        context = Mix.apply(
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
        return (context,)

    if virtual.weights is not None:
        return interpolate(lifted, log_scale, own, own_score, None)[0]
    own_values = None if own is None else sources.values
    rows: list[tuple[Tensor | None, int]] = [
        (lifted, -1),
        (log_scale, -1),
        (own, -1),
        (own_score, -1),
        (own_values, 1),
    ]
    elements = lifted.shape[0] * lifted.shape[1] * interval.nodes
    return map_rows(interpolate, rows, row_elements=elements, dim=1)[0]


def _one_by_one(
    sources: Sources,
    target_score: Tensor,
    activation: Activation,
    channel_weight: Tensor | None,
    own: Tensor | None,
) -> Tensor:
    """Compute all targets directly, a slice at a time."""

    def directly(score: Tensor, own: Tensor | None) -> tuple[Tensor]:
        context = dense_context(
            sources.values,
            score,
            sources.score,
            activation=activation,
            channel_weight=channel_weight,
            own=own,
            source_mask=sources.mask,
        )
        return (context,)

    elements = sources.values.shape[0] * sources.values.shape[1]
    return map_rows(directly, [(target_score, -1), (own, -1)], row_elements=elements, dim=1)[0]


def _mean_score(sources: Sources) -> Tensor:
    """The mean score of the sources that count: (B, R, 1)."""
    if sources.mask is None:
        return sources.score.mean(-1, keepdim=True)
    count = sources.mask.sum(-1).clamp(min=1).view(-1, 1, 1)
    return sources.score.sum(-1, keepdim=True) / count  # masked scores are 0
