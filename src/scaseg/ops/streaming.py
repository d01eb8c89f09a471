"""Selective context from sums over the sources, gathered piece by piece.

A photograph too large for one pass is gone through twice: the first time every source is added to
a few sums, the second time each target's context is computed from them. The sums are those of the
linear forms (ops/README.md, section 9), in float64, so that a target's own entry can be
subtracted from them. One image, no gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.activation import Activation
from scaseg.ops.chebyshev import TOLERANCE, cardinal_basis, chebyshev_nodes, node_count
from scaseg.ops.dense import reciprocal
from scaseg.ops.scores import wide_dtype


class Neurons(NamedTuple):
    """Some neurons of an image."""

    values: Tensor  # (n, M)
    target_score: Tensor  # (n, R)
    source_score: Tensor  # (n, R)


class StreamedSums(ABC):
    """Sums over all sources of an image, and the context of targets from them."""

    @abstractmethod
    def add(self, sources: Neurons) -> None:
        """Add some more sources to the sums."""

    @abstractmethod
    def context(self, targets: Neurons, counted: Tensor) -> Tensor:
        """Return the context of each target, the mean of all sources but itself: (n, M).

        counted (n,): whether just these neurons were added, so that they must be left out again.
        """


class IdentitySums(StreamedSums):
    """phi = identity: two moments, and all scores t, for the guard against vanishing sums."""

    def __init__(self, channel_weight: Tensor | None) -> None:
        self.weight = channel_weight
        self.moments: Tensor | None = None  # (2, M): sums of c and of t c
        self.scores: list[Tensor] = []
        self.sorted: tuple[Tensor, Tensor] | None = None  # t, ascending, and its sums so far

    def add(self, sources: Neurons) -> None:
        wide = wide_dtype(sources.values)
        score = self._one_channel(sources.source_score.to(wide))
        moments = torch.stack([torch.ones_like(score), score]) @ sources.values.to(wide)
        self.moments = moments if self.moments is None else self.moments + moments
        self.scores.append(score)
        self.sorted = None

    def context(self, targets: Neurons, counted: Tensor) -> Tensor:
        assert self.moments is not None
        wide = self.moments.dtype
        target = self._one_channel(targets.target_score.to(wide))
        source = self._one_channel(targets.source_score.to(wide))
        own = counted.to(wide)
        if self.sorted is None:
            score = torch.cat(self.scores).sort().values
            self.sorted = score, torch.cat([score.new_zeros(1), score.cumsum(0)])
        score, so_far = self.sorted
        below = torch.searchsorted(score, -target)  # sources whose coefficient is negative
        negative = target * below + so_far[below]
        row = target * len(score) + so_far[-1]
        magnitude = row - 2 * negative - own * (target + source).abs()
        inverse = reciprocal(row - own * (target + source), magnitude)
        own_moments = torch.stack([own, own * source]).unsqueeze(-1) * targets.values.to(wide)
        others = self.moments.unsqueeze(1) - own_moments  # (2, n, M)
        mean = (target.unsqueeze(-1) * others[0] + others[1]) * inverse.unsqueeze(-1)
        return mean.to(targets.values.dtype)

    def _one_channel(self, score: Tensor) -> Tensor:
        return (score if self.weight is None else score * self.weight.to(score)).sum(-1)


class ExpSums(StreamedSums):
    """phi = exp: one sum a channel, relative to the strongest source so far.

    With scores of 0 every coefficient is 1: the plain average.
    """

    def __init__(self, channel_weight: Tensor | None = None) -> None:
        self.weight = channel_weight
        self.peak: Tensor | None = None  # (R,)
        self.sums: Tensor | None = None  # (R, M + 1): sums of e^(t - peak) c, and of e^(t - peak)

    def add(self, sources: Neurons) -> None:
        score = sources.source_score.to(wide_dtype(sources.values)).T  # (R, n)
        peak = score.amax(-1)
        if self.peak is not None:
            peak = torch.maximum(peak, self.peak)
        sums = torch.exp(score - peak.unsqueeze(-1)) @ _with_one(sources.values.to(score))
        if self.sums is not None and self.peak is not None:
            sums = sums + self.sums * torch.exp(self.peak - peak).unsqueeze(-1)
        self.peak, self.sums = peak, sums

    def context(self, targets: Neurons, counted: Tensor) -> Tensor:
        assert self.peak is not None
        assert self.sums is not None
        # (n, R); what is common to a row cancels
        log_factor = targets.target_score.to(self.sums) + self.peak
        if self.weight is not None:
            log_factor = log_factor + self.weight.to(self.sums).log()
        factor = torch.exp(log_factor - log_factor.amax(-1, keepdim=True))
        own = torch.exp(targets.source_score.to(self.sums) - self.peak)
        own = own * counted.to(own).unsqueeze(-1)
        return _mean(factor @ self.sums, (factor * own).sum(-1, keepdim=True), targets.values)


class SmoothSums(StreamedSums):
    """phi = sigmoid, softplus with bounded scores: the sums at the virtual targets.

    With the tolerance of float64 whatever comes in: an own entry that is most of a sum leaves few
    digits of it.
    """

    def __init__(self, activation: Activation, bound: float, channel_weight: Tensor | None) -> None:
        self.phi = activation.phi
        self.bound = bound
        self.half = max(bound, 1.0)
        self.nodes = node_count(self.half, TOLERANCE[torch.float64])
        self.weight = channel_weight
        self.sums: Tensor | None = None  # (R, nodes, M + 1)

    def add(self, sources: Neurons) -> None:
        score = self._bounded(sources.source_score).T.unsqueeze(1)  # (R, 1, n)
        node = (self.half * chebyshev_nodes(self.nodes, score)).unsqueeze(-1)
        sums = self.phi(node + score) @ _with_one(sources.values.to(score))
        self.sums = sums if self.sums is None else self.sums + sums

    def context(self, targets: Neurons, counted: Tensor) -> Tensor:
        assert self.sums is not None
        target = self._bounded(targets.target_score)  # (n, R)
        own = self.phi(target + self._bounded(targets.source_score))
        own = own * counted.to(own).unsqueeze(-1)
        if self.weight is not None:
            own = own * self.weight.to(own)
        rows = own.new_zeros(())
        for channel, sums in enumerate(self.sums):
            basis = cardinal_basis(target[:, channel] / self.half, self.nodes)
            total = torch.exp(basis @ sums[:, -1:].log())  # of the logarithm: relative errors
            if self.weight is not None:
                total = total * self.weight[channel].to(total)
            rows = rows + total * (basis @ (sums / sums[:, -1:]))
        return _mean(rows, own.sum(-1, keepdim=True), targets.values)

    def _bounded(self, score: Tensor) -> Tensor:
        return score.to(wide_dtype(score)).clamp(-self.bound, self.bound)


def _with_one(values: Tensor) -> Tensor:
    """(n, M) -> (n, M + 1): a last column that counts."""
    return torch.cat([values, values.new_ones(len(values), 1)], dim=-1)


def _mean(sums: Tensor, own: Tensor, values: Tensor) -> Tensor:
    """Divide sums (n, M + 1) of a c and of a, own coefficients (n, 1) left out: (n, M).

    0 where a neuron is alone, or outweighs all others 10^8 times: only rounding would be left.
    """
    rest = sums[:, -1:] - own
    alone = rest <= 1e-8 * sums[:, -1:]
    mean = (sums[:, :-1] - own * values) * reciprocal(rest.masked_fill(alone, 0))
    return mean.to(values.dtype)
