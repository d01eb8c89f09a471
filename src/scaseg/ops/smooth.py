"""Selective context in O(n) for phi = exp, sigmoid, softplus: interpolate between a few targets.

The context of a target is a smooth function of its score alone, analytic for |Im s| < pi. So it
is computed directly for a few virtual targets, the Chebyshev nodes, and interpolated for all real
ones. (For exp it is a constant: one node.) ops/README.md has the proof, the error bound and the
gradients.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.activation import lift, tail
from scaseg.ops.autograd import Interpolate, Mix, fits, map_rows
from scaseg.ops.chebyshev import TOLERANCE, cardinal_basis, chebyshev_nodes, node_count
from scaseg.ops.dense import dense_context, reciprocal, row_scale
from scaseg.ops.scores import Scores, Strongest, empty_to_zero, strongest, wide_dtype

# From here on a promised range is no better than computing the targets, if there are no more
MANY_NODES = 512
# Half the length of the shortest interval: equal scores need some length to be divided by
SHORTEST = 1.0


def smooth_context(values: Tensor, scores: Scores) -> Tensor:
    """Return each target's mean of the values (B, source, M): (B, target, M)."""
    activation, bound = scores.activation, scores.bound
    if bound is not None and activation.form == "interpolated":
        # a broken promise that nobody could check must not leave the interval
        target, source = scores.target.clamp(-bound, bound), scores.source.clamp(-bound, bound)
        scores = scores._replace(target=target, source=source)
    values, scores = scores.hide_masked(values, -torch.inf)  # phi(-inf) = 0
    top = strongest(scores.source, scores.source_mask)
    lifted, log_scale = lift(scores.target, top.score, activation)
    targets = lifted.shape[-1]
    if activation.form == "constant":
        interval = Interval(-top.score, torch.ones_like(top.score), None, nodes=1)
    elif bound is not None:
        interval = promised_interval(bound, like=top.score)
        if interval.nodes > MANY_NODES and interval.nodes >= targets:
            return _one_by_one(values, scores)
    else:
        interval = measured_interval(lifted, scores)
        if interval.nodes >= targets:  # the targets themselves are the better nodes
            return _one_by_one(values, scores)

    mean_score = None  # (B, R, 1), of the sources that count
    if interval.ceiling is not None and not activation.saturates:
        count = scores.present.sum(-1).clamp(min=1).view(-1, 1, 1)
        mean_score = empty_to_zero(scores.source).sum(-1, keepdim=True) / count
    samples = _sample(
        values,
        scores,
        interval,
        top,
        uniform=mean_score is not None,
        slopes=lifted.requires_grad and activation.slope is not None,
    )
    own_score = own_values = None
    if scores.own is not None:
        own_score = scores.source
        # with weights the values are at hand, and as many as the targets: one slice, all own
        own_values = None if samples.weights is not None else values
    return map_rows(
        partial(_interpolate, scores, interval, top, samples, mean_score),
        [(lifted, -1), (log_scale, -1), (scores.own, -1), (own_score, -1), (own_values, 1)],
        row_elements=lifted.shape[0] * lifted.shape[1] * interval.nodes,
        dim=1,
    )[0]


def _one_by_one(values: Tensor, scores: Scores) -> Tensor:
    """Compute all targets directly, a slice at a time: (B, target, M)."""
    return map_rows(
        lambda target, own: (dense_context(values, scores._replace(target=target, own=own)),),
        [(scores.target, -1), (scores.own, -1)],
        row_elements=values.shape[0] * values.shape[1],
        dim=1,
    )[0]


class Interval(NamedTuple):
    """The stretch of the score axis to interpolate on, one for each channel of each image."""

    middle: Tensor  # (B, R, 1), as are the next two
    half: Tensor
    ceiling: Tensor | None  # above it phi is its asymptote for every source
    nodes: int

    def basis(self, score: Tensor) -> Tensor:
        """Evaluate the interpolation basis: (B, R, target) -> (B, R, target, nodes), wide."""
        wide = wide_dtype(score)
        place = (score.to(wide) - self.middle.to(wide)) / self.half.to(wide)
        return cardinal_basis(place, self.nodes)


def promised_interval(score_bound: float, *, like: Tensor) -> Interval:
    """The interval that the caller promises, `like` (B, R, 1): no shape depends on data."""
    half = max(score_bound, SHORTEST)
    nodes = node_count(half, TOLERANCE[like.dtype])
    return Interval(torch.zeros_like(like), torch.full_like(like, half), None, nodes)


def measured_interval(lifted: Tensor, scores: Scores) -> Interval:
    """The range of the target scores (B, R, target), up to where nothing changes any more.

    It gets as many nodes as there are targets where interpolation would need more than that.
    """
    weakest = scores.source.detach()
    if scores.source_mask is not None:
        weakest = weakest.masked_fill(~scores.source_mask.unsqueeze(1), torch.inf)
    ceiling = tail(lifted.dtype) + empty_to_zero(-weakest.amin(-1, keepdim=True))
    score = torch.minimum(lifted.detach(), ceiling)
    # one NaN score makes one NaN row: it must not take the range, and so all rows, with it
    unknown = score.isnan()
    low = score.masked_fill(unknown, torch.inf).amin(-1, keepdim=True)
    high = score.masked_fill(unknown, -torch.inf).amax(-1, keepdim=True)
    half = ((high - low) / 2).clamp(min=SHORTEST)
    widest = float(half.max())  # the only place where a GPU must be waited for
    nodes = node_count(widest, TOLERANCE[lifted.dtype], at_most=lifted.shape[-1])
    return Interval((high + low) / 2, half, ceiling, nodes)


class Samples(NamedTuple):
    """Context and row sums of the virtual targets.

    These are the nodes of the interval, then the top row (where own entries are left out) and the
    uniform row (where phi grows without bound). They are kept as weights over the sources or,
    where those are too many to hold, as what they give: then weights is None, and values and
    slopes are the means, (B, R * row, M).
    """

    weights: Tensor | None  # (B, R, row, source), each row summing to 1
    slopes: Tensor | None  # derivatives of the nodes' weights in the score
    values: Tensor  # (B, source, M)
    log_total: Tensor  # (B, R, nodes): log of the sums of coefficients, in the wide dtype
    log_total_slope: Tensor | None
    top: tuple[Tensor, Tensor] | None  # (B, R, 1) each: the top row's sum, and its log_scale


def _sample(
    values: Tensor,
    scores: Scores,
    interval: Interval,
    top: Strongest,
    *,
    uniform: bool,
    slopes: bool,
) -> Samples:
    """Compute the virtual targets directly; the slopes only if a gradient will ask for them.

    Masked sources must have score -inf, so that phi is 0 there.
    """
    activation, nodes = scores.activation, interval.nodes
    dtype, wide = values.dtype, wide_dtype(values)
    half = interval.half.to(wide)
    place = interval.middle.to(wide) + half * chebyshev_nodes(nodes, half)
    score = place.to(dtype)
    lifted, log_scale = lift(score, top.score, activation)  # (B, R, nodes)
    # what rounding took from a node is added back after the source's score, which may cancel
    # most of the node's: else 300 would be known to five digits where its neighbour is 0.1 away
    rest = (place - score).to(dtype).masked_fill(lifted != score, 0)
    left_out = top_log_scale = None
    if scores.own is not None:
        # "Total minus own" loses digits where the own share exceeds a half. phi is monotone, so
        # that can happen only at a channel's strongest source: that row directly, without itself.
        own_target = scores.target.gather(-1, top.source)
        top_lifted, top_log_scale = lift(own_target, top.second_score, activation)
        lifted = torch.cat([lifted, top_lifted], dim=-1)
        rest = torch.cat([rest, torch.zeros_like(top_lifted)], dim=-1)
        nothing = torch.full_like(top.source, -1).expand_as(score)  # no source has this index
        left_out = torch.cat([nothing, top.source], dim=-1)
    batch, channels, sources = scores.source.shape
    few = fits(lifted.numel() * sources)

    def rows(lifted: Tensor, rest: Tensor, left_out: Tensor | None) -> tuple[Tensor, ...]:
        """Weights (or means) and row sums, then their derivatives in the score."""
        pair_score = lifted.unsqueeze(-1) + scores.source.unsqueeze(-2)  # (B, R, row, s)
        pair_score = pair_score + rest.unsqueeze(-1)
        if left_out is not None:  # phi(-inf) = 0
            index = torch.arange(pair_score.shape[-1], device=left_out.device)
            pair_score = pair_score.masked_fill(left_out.unsqueeze(-1) == index, -torch.inf)
        coefficients = activation.phi(pair_score)
        total = coefficients.sum(-1)
        inverse = reciprocal(total).unsqueeze(-1)
        # divide first: where one source has it all, its gradient then cancels to the last digit
        weights = coefficients * inverse
        found = [weights, total]
        if slopes:  # the quotient rule for phi / sum phi, and phi' / phi for log (sum phi)
            assert activation.slope is not None
            change = activation.slope(pair_score) * inverse
            growth = change.sum(-1)
            found += [change - growth.unsqueeze(-1) * weights, growth]
        if not few:
            found[::2] = [row @ values.unsqueeze(1) for row in found[::2]]
        return tuple(found)

    if few:
        weights, total, *derivatives = rows(lifted, rest, left_out)
    else:
        weights, total, *derivatives = map_rows(
            rows,
            [(lifted, -1), (rest, -1), (left_out, -1)],
            row_elements=batch * channels * sources,
            dim=2,
        )
    if uniform:
        # the target at infinity of a phi that grows like z: it weighs all sources alike
        alike = scores.present.view(batch, 1, 1, sources)
        alike = alike * reciprocal(alike.sum(-1, keepdim=True))
        row = alike if few else alike @ values.unsqueeze(1)
        weights = torch.cat([weights, row.expand(-1, channels, -1, -1)], dim=2)
    # an error in the log is a relative error of the row sum, however large the log
    node_total = total[..., :nodes]
    log_total = node_total.masked_fill(node_total == 0, 1).to(wide).log() + log_scale
    change = log_total_slope = None
    if slopes:
        change, log_total_slope = derivatives[0][:, :, :nodes], derivatives[1][..., :nodes].to(wide)
        change = change if few else change.flatten(1, 2)
    return Samples(
        weights=weights if few else None,
        slopes=change,
        values=values if few else weights.flatten(1, 2),
        log_total=log_total,
        log_total_slope=log_total_slope,
        top=None if top_log_scale is None else (total[..., -1:], top_log_scale),
    )


def _interpolate(
    scores: Scores,
    interval: Interval,
    top: Strongest,
    samples: Samples,
    mean_score: Tensor | None,
    lifted: Tensor,
    log_scale: Tensor,
    own: Tensor | None,
    own_score: Tensor | None,
    own_values: Tensor | None,
) -> tuple[Tensor]:
    """Mix the context of some targets from the samples: (B, target, M).

    lifted, log_scale, own_score (B, R, target); own (target,); own_values (B, target, M) where
    they are not all the values; mean_score (B, R, 1) if phi grows above the ceiling.
    """
    capped = lifted
    if interval.ceiling is not None:
        capped = torch.minimum(lifted, interval.ceiling)
    basis = interval.basis(capped)
    log_total = Interpolate.apply(capped, basis, samples.log_total, samples.log_total_slope)
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
    if samples.top is not None:
        assert own is not None
        assert own_score is not None
        top_total, top_log_scale = samples.top
        own_coefficient = scores.activation.phi(lifted + own_score)
        is_top = own == top.source
        others = torch.where(is_top, top_total, total - own_coefficient)
        log_scale = torch.where(is_top, top_log_scale, log_scale)
    scale = row_scale(log_scale, scores.channel_weight)
    row_total = (others if scale is None else others * scale).sum(1, keepdim=True)
    factor = reciprocal(row_total) if scale is None else reciprocal(row_total) * scale

    share = factor * total  # (B, R, target): how much of each channel's context
    extra, own_share = [], None  # shares of the rows that are not interpolated
    if samples.top is not None:
        share = share.masked_fill(is_top, 0)
        extra.append((factor * top_total).masked_fill(~is_top, 0))
        own_share = (factor * own_coefficient).masked_fill(is_top, 0).sum(1).unsqueeze(-1)
    if fall is not None:
        extra.append(share * (1 - fall))
        share = share * fall
    turned = (samples.values if own_values is None else own_values).stride(1) == 1
    context, _ = Mix.apply(
        capped,
        basis.to(capped.dtype),
        share,
        torch.stack(extra, dim=-1) if extra else None,
        own_share,
        samples.weights,
        samples.slopes,
        samples.values,
        own_values,
        turned,
    )
    return (context.mT if turned else context,)
