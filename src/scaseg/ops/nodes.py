"""Virtual targets: the few scores at which context is computed directly, and what they see."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.activation import lift, tail
from scaseg.ops.chunks import fits, map_rows
from scaseg.ops.interpolation import TOLERANCE, cardinal_basis, chebyshev_nodes, node_count
from scaseg.ops.precision import wide_dtype
from scaseg.ops.problem import Problem
from scaseg.ops.row_sum import reciprocal
from scaseg.ops.sources import empty_to_zero

# Half the length of the shortest interval: equal scores need some length to be divided by
SHORTEST = 1.0


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
    """The interval that the caller vouches for: its node count depends on no data."""
    half = max(score_bound, SHORTEST)
    nodes = node_count(half, TOLERANCE[like.dtype])
    return Interval(torch.zeros_like(like), torch.full_like(like, half), None, nodes)


def measured_interval(lifted: Tensor, problem: Problem) -> Interval:
    """Find the range of the target scores, up to where nothing changes any more.

    It gets as many nodes as there are targets where interpolation would need more than that.
    """
    weakest = problem.source_score.detach()
    if problem.source_mask is not None:
        weakest = weakest.masked_fill(~problem.source_mask.unsqueeze(1), torch.inf)
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


class TopRow(NamedTuple):
    """The target that is its channel's strongest source; (B, R, 1) each.

    "Total minus own" loses digits where the own share exceeds a half. phi is monotone, so that
    can happen only here: this row is computed directly, its own entry left out.
    """

    source: Tensor  # which one it is
    score: Tensor  # as a target
    peak: Tensor  # the strongest source that it sees


class TopSums(NamedTuple):
    """What the top row sees; (B, R, 1) each."""

    source: Tensor
    total: Tensor
    log_scale: Tensor


class VirtualTargets(NamedTuple):
    """The nodes of an interval, then the top row and the uniform row where they are needed.

    As weights over the sources or, where those are too many to hold, as what they give: then
    weights is None, and values and slopes are the means, (B, R * row, M).
    """

    weights: Tensor | None  # (B, R, row, source), each row summing to 1
    slopes: Tensor | None  # derivatives of the nodes' weights in the score
    values: Tensor  # (B, source, M)
    log_total: Tensor  # (B, R, nodes): log of the sums of coefficients, in the wide dtype
    log_total_slope: Tensor | None
    top: TopSums | None


def look(
    problem: Problem,
    peak: Tensor,
    interval: Interval,
    *,
    top: TopRow | None,
    uniform: bool,
    slopes: bool,
) -> VirtualTargets:
    """Compute what the virtual targets see; the slopes only if a gradient will ask for them.

    Masked sources must have score -inf, so that phi is 0 there.
    """
    activation, values, nodes = problem.activation, problem.values, interval.nodes
    wide = wide_dtype(peak)
    half = interval.half.to(wide)
    place = interval.middle.to(wide) + half * chebyshev_nodes(nodes, half)
    score = place.to(peak.dtype)
    lifted, log_scale = lift(score, peak, activation)  # (B, R, nodes)
    # what rounding took from a node is added back after the source's score, which may cancel
    # most of the node's: else 300 would be known to five digits where its neighbour is 0.1 away
    rest = (place - score).to(peak.dtype).masked_fill(lifted != score, 0)
    left_out = top_log_scale = None
    if top is not None:
        top_lifted, top_log_scale = lift(top.score, top.peak, activation)
        lifted = torch.cat([lifted, top_lifted], dim=-1)
        rest = torch.cat([rest, torch.zeros_like(top_lifted)], dim=-1)
        nothing = torch.full_like(top.source, -1).expand_as(score)  # no source has this index
        left_out = torch.cat([nothing, top.source], dim=-1)

    def see(lifted: Tensor, rest: Tensor, left_out: Tensor | None) -> tuple[Tensor, ...]:
        pair_score = lifted.unsqueeze(-1) + problem.source_score.unsqueeze(-2)  # (B, R, row, s)
        pair_score = pair_score + rest.unsqueeze(-1)
        if left_out is not None:  # phi(-inf) = 0
            index = torch.arange(pair_score.shape[-1], device=left_out.device)
            pair_score = pair_score.masked_fill(left_out.unsqueeze(-1) == index, -torch.inf)
        coefficients = activation.phi(pair_score)
        total = coefficients.sum(-1)
        inverse = reciprocal(total).unsqueeze(-1)
        # divide first: where one source has it all, its gradient then cancels to the last digit
        weights = coefficients * inverse
        if not slopes:
            return weights, total
        # the quotient rule for phi / sum phi, and phi' / phi for log (sum phi)
        assert activation.slope is not None
        change = activation.slope(pair_score) * inverse
        growth = change.sum(-1)
        return weights, total, change - growth.unsqueeze(-1) * weights, growth

    def see_values(lifted: Tensor, rest: Tensor, left_out: Tensor | None) -> tuple[Tensor, ...]:
        weights, total, *changes = see(lifted, rest, left_out)
        if not changes:
            return weights @ values.unsqueeze(1), total
        return weights @ values.unsqueeze(1), total, changes[0] @ values.unsqueeze(1), changes[1]

    batch, channels, sources = problem.source_score.shape
    few = fits(lifted.numel() * sources)
    if few:
        seen = see(lifted, rest, left_out)
    else:
        rows: list[tuple[Tensor | None, int]] = [(lifted, -1), (rest, -1), (left_out, -1)]
        seen = map_rows(see_values, rows, row_elements=batch * channels * sources, dim=2)
    weights, total = seen[:2]
    top_sums = None
    if top is not None and top_log_scale is not None:
        top_sums = TopSums(top.source, total[..., -1:], top_log_scale)
    if uniform:
        # the target at infinity of a phi that grows like z: it weighs all sources alike
        alike = problem.present.view(batch, 1, 1, sources)
        alike = alike * reciprocal(alike.sum(-1, keepdim=True))
        row = alike if few else alike @ values.unsqueeze(1)
        weights = torch.cat([weights, row.expand(-1, channels, -1, -1)], dim=2)
    # an error in the log is a relative error of the row sum, however large the log
    node_total = total[..., :nodes]
    log_total = node_total.masked_fill(node_total == 0, 1).to(wide).log() + log_scale
    change = log_total_slope = None
    if slopes:
        change, log_total_slope = seen[2][:, :, :nodes], seen[3][..., :nodes].to(wide)
        change = change if few else change.flatten(1, 2)
    return VirtualTargets(
        weights=weights if few else None,
        slopes=change,
        values=values if few else weights.flatten(1, 2),
        log_total=log_total,
        log_total_slope=log_total_slope,
        top=top_sums,
    )
