"""Selective context in O(n) for phi = exp, sigmoid, softplus: interpolate between a few targets.

The context of a target is a smooth function of its score alone, analytic for |Im s| < pi. So it
is computed directly for a few virtual targets, the Chebyshev nodes, and interpolated for all real
ones. (For exp it is a constant: one node.) ops/README.md has the proof, the error bound and the
gradients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.activation import EXP, Activation, rescale, tail
from scaseg.ops.chunks import map_rows
from scaseg.ops.dense import dense_context, row_scale
from scaseg.ops.evaluation import Interpolate, Mix
from scaseg.ops.interpolation import (
    TOLERANCE,
    chebyshev_basis,
    chebyshev_nodes,
    chebyshev_transform,
    node_count,
)
from scaseg.ops.precision import wide_dtype
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import Sources, empty_to_zero, hide_masked, strongest

# Half the length of the shortest interval: equal scores need some length to be divided by
SHORTEST = 1.0


class Interval(NamedTuple):
    """The stretch of the score axis to interpolate on, one for each channel of each image."""

    middle: Tensor  # (B, R, 1), as are the next two
    half: Tensor
    ceiling: Tensor | None  # above it phi is its asymptote for every source
    nodes: int


class Table(NamedTuple):
    """What the virtual targets see, and how it changes with the score: Chebyshev coefficients."""

    context: Tensor  # (B, R, nodes, M)
    context_slope: Tensor
    log_total: Tensor  # (B, R, nodes), of the row sums; in the wide dtype
    log_total_slope: Tensor


class Row(NamedTuple):
    """One more virtual target for each channel, at a place of its own."""

    place: Tensor  # (B, R, 1)
    context: Tensor  # (B, R, M)
    total: Tensor  # (B, R, 1)
    log_scale: Tensor  # (B, R, 1)


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
    batch, channels, targets = target_score.shape
    first, top, second = strongest(sources.score, source_mask)  # (B, R, 1) each
    lifted, log_scale = rescale(target_score, first, activation)  # (B, R, target) each
    if activation is EXP:
        interval = Interval(-first, torch.ones_like(first), None, nodes=1)
    elif score_bound is not None:
        interval = _promised_interval(score_bound, like=first)
    else:
        interval = _measured_interval(lifted, sources)
        if interval.nodes >= targets:
            # the targets themselves are the better nodes
            return _one_by_one(sources, target_score, activation, channel_weight, own)

    asymptote = own_score = own_values = excluded = None
    if interval.ceiling is not None and not activation.saturates:
        asymptote = _asymptote(sources)
    if own is not None:
        # "total minus own" loses digits where the own share exceeds a half. phi is monotone, so
        # that can be only at the strongest source of a channel: that row is computed directly
        excluded = (target_score.gather(-1, top), top, second)
        own_values, own_score = sources.values, sources.score
        if source_mask is not None:  # phi(-inf) = 0: a masked source is not in the total either
            own_score = own_score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    table, top_row = _see(
        sources, first, activation, interval, excluded, slopes=lifted.requires_grad
    )

    def interpolate(
        lifted: Tensor,  # (B, R, target), as is log_scale
        log_scale: Tensor,
        own: Tensor | None,  # (target,)
        own_score: Tensor | None,  # (B, R, target)
        own_values: Tensor | None,  # (B, target, M)
    ) -> tuple[Tensor]:
        capped = lifted
        if interval.ceiling is not None:
            capped = torch.minimum(lifted, interval.ceiling)
        basis = _basis(capped, interval)
        log_total = Interpolate.apply(capped, basis, table.log_total, table.log_total_slope)
        total = torch.exp(log_total).to(capped.dtype)  # (B, R, target)
        fall = None
        if asymptote is not None:
            # select before dividing: below the ceiling, where fall is 1, this may be 0 / 0
            above = torch.where(lifted > interval.ceiling, lifted, interval.ceiling)
            fall = (interval.ceiling + asymptote.place) / (above + asymptote.place)
            total = total / fall

        others = total
        if own is not None:
            own_coefficient = activation.phi(lifted + own_score)
            is_top = own == top_row.place
            others = torch.where(is_top, top_row.total, total - own_coefficient)
            log_scale = torch.where(is_top, top_row.log_scale, log_scale)
        scale = row_scale(log_scale, channel_weight)
        row_total = (others if scale is None else others * scale).sum(1, keepdim=True)
        factor = reciprocal(row_total) if scale is None else reciprocal(row_total) * scale

        share = factor * total  # (B, R, target): how much of each channel's context
        extra, own_share = [], None  # shares of the rows that are not interpolated
        if own is not None:
            share = share.masked_fill(is_top, 0)
            extra.append((factor * top_row.total).masked_fill(~is_top, 0))
            own_share = (factor * own_coefficient).masked_fill(is_top, 0).sum(1).unsqueeze(-1)
        if fall is not None:
            extra.append(share * (1 - fall))
            share = share * fall
        context = Mix.apply(
            capped,
            basis.to(capped.dtype),
            share,
            table.context,
            table.context_slope,
            torch.cat(extra, dim=1).mT if extra else None,
            extra_rows,
            own_share,
            own_values,
        )
        return (context,)

    rows = [row.context for row in (top_row, asymptote) if row is not None]
    extra_rows = torch.cat(rows, dim=1) if rows else None  # (B, R * rows, M)
    (context,) = map_rows(
        interpolate,
        [(lifted, -1), (log_scale, -1), (own, -1), (own_score, -1), (own_values, 1)],
        row_elements=batch * channels * (interval.nodes + 2),
        dim=1,
    )
    return context


def _promised_interval(score_bound: float, *, like: Tensor) -> Interval:
    half = max(score_bound, SHORTEST)
    nodes = node_count(half, TOLERANCE[like.dtype])
    return Interval(torch.zeros_like(like), torch.full_like(like, half), None, nodes)


def _measured_interval(lifted: Tensor, sources: Sources) -> Interval:
    """Find the range of the target scores, up to where nothing changes any more."""
    weakest = -sources.score.detach()
    if sources.mask is not None:
        weakest = weakest.masked_fill(~sources.mask.unsqueeze(1), -torch.inf)
    ceiling = empty_to_zero(weakest.amax(-1, keepdim=True)) + tail(lifted.dtype)
    score = torch.minimum(lifted.detach(), ceiling)
    # one NaN score makes one NaN row: it must not take the range, and so all rows, with it
    low = score.nan_to_num(nan=torch.inf, posinf=torch.inf).amin(-1, keepdim=True)
    high = score.nan_to_num(nan=-torch.inf, neginf=-torch.inf).amax(-1, keepdim=True)
    half = ((high - low) / 2).clamp(min=SHORTEST)
    widest = float(half.max())  # the only place where a GPU must be waited for
    nodes = node_count(widest, TOLERANCE[lifted.dtype]) if math.isfinite(widest) else 1
    return Interval((high + low) / 2, half, ceiling, nodes)


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


def _basis(score: Tensor, interval: Interval) -> Tensor:
    """Evaluate the basis in the wide dtype: (B, R, target) -> (B, R, target, nodes)."""
    wide = wide_dtype(score)
    place = (score.to(wide) - interval.middle.to(wide)) / interval.half.to(wide)
    return chebyshev_basis(place, interval.nodes)


def _see(
    sources: Sources,
    peak: Tensor,
    activation: Activation,
    interval: Interval,
    excluded: tuple[Tensor, Tensor, Tensor] | None,
    *,
    slopes: bool,
) -> tuple[Table, Row | None]:
    """Compute the virtual targets: the nodes, and one that leaves a source out.

    `excluded`: the score (B, R, 1) of that one, the source it leaves out, and the score of the
    strongest source that remains. `slopes` only if a gradient will ask for them.
    """
    nodes = interval.nodes
    score = interval.middle + interval.half * chebyshev_nodes(nodes, interval.half)
    lifted, log_scale = rescale(score, peak, activation)  # (B, R, nodes)
    left_out = None
    if excluded is not None:
        own_lifted, own_log_scale = rescale(excluded[0], excluded[2], activation)
        lifted = torch.cat([lifted, own_lifted], dim=-1)
        # one more row, in which one source is left out: -1 for the others matches none
        left_out = torch.cat([torch.full_like(excluded[1], -1).expand_as(score), excluded[1]], -1)

    def see(lifted: Tensor, left_out: Tensor | None) -> tuple[Tensor, ...]:
        pair_score = lifted.unsqueeze(-1) + sources.score.unsqueeze(-2)  # (B, R, row, source)
        if left_out is not None:  # phi(-inf) = 0
            index = torch.arange(pair_score.shape[-1], device=left_out.device)
            pair_score = pair_score.masked_fill(left_out.unsqueeze(-1) == index, -torch.inf)
        context, total = sources.mean(activation.phi(pair_score))
        if not slopes:
            return context, total
        # the quotient rule for (sum phi c) / (sum phi), and phi' / phi for log (sum phi)
        change = activation.slope(pair_score) * reciprocal(total).unsqueeze(-1)
        growth = sources.total(change)
        return context, total, sources.weigh(change) - growth.unsqueeze(-1) * context, growth

    rows = map_rows(
        see, [(lifted, -1), (left_out, -1)], row_elements=sources.score.numel(), dim=2
    )
    context, total = rows[:2]
    row = None
    if excluded is not None:
        row = Row(excluded[1], context[:, :, -1], total[..., -1:], own_log_scale)
    context, total, *change = (x[:, :, :nodes] for x in rows)
    # an error in the log is a relative error of the row sum, however large the log
    wide = wide_dtype(total)
    log_total = total.masked_fill(total == 0, 1).to(wide).log() + log_scale
    context_slope, log_total_slope = change if slopes else (context, log_total)  # not used
    transform = chebyshev_transform(nodes, log_total)
    narrow = transform.to(context.dtype)
    table = Table(
        narrow @ context,
        narrow @ context_slope,
        log_total @ transform.T,
        log_total_slope.to(wide) @ transform.T,
    )
    return table, row


def _asymptote(sources: Sources) -> Row:
    """The target at infinity where phi(z) = z: from the ceiling on, the context approaches the
    plain mean like 1 / (s + mean score), and the row sum grows like s + mean score."""
    scores = sources.score.mT  # (B, source, R), averaged like values
    uniform = torch.ones_like(sources.score[:, :1]).unsqueeze(2)
    mean_score, _ = sources._replace(values=scores).mean(uniform)
    mean, total = sources.mean(uniform)
    place = mean_score.squeeze(1).mT  # (B, R, 1)
    context = mean.squeeze(2).expand(-1, place.shape[1], -1)
    return Row(place, context, total, torch.zeros_like(place))
