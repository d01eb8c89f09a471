"""A block whose context is gathered from a whole image before any part of it is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.dependency import PredictedDependency, UniformDependency
from scaseg.nn.selective_context import SelectiveContext
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.streaming import (
    AffineSums,
    ExponentialSums,
    InterpolatedSums,
    StreamedSums,
    UniformSums,
)


class StreamedContext:
    """The context of one image, in two passes over parts of it: `add` all, then ask.

    Every neuron must be added once, from whichever part; that part leaves its own entry out of
    its context, as the block does. A neuron seen again in another part (an overlap) has a twin
    among the sources, which stays in: one of n.

    ValueError for a block whose context is not a matter of a few sums.
    """

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        self.sums = _sums(block)

    def add(self, features: Tensor) -> None:
        """Count the neurons of a part (1, C, h, w) as sources."""
        if self.sums is None:
            return
        values, _, source_score = self._scores(features)
        with torch.autocast(features.device.type, enabled=False):
            self.sums.add(values, source_score)

    def __call__(self, features: Tensor, counted: Tensor) -> Tensor:
        """Add the whole image's context to a part (1, C, h, w): (1, out_channels, h, w).

        counted (h, w): which of its neurons were added from this very part.
        """
        assert isinstance(self.block, SelectiveContext)
        if self.sums is None:
            return self.block(features)
        values, target_score, source_score = self._scores(features)
        with torch.autocast(features.device.type, enabled=False):
            context = self.sums.context(target_score, values, source_score, counted.flatten())
        return self.block._add(features, context.unsqueeze(0))

    def _scores(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (n, M), and the neurons' scores as targets and as sources, (n, R)."""
        assert isinstance(self.block, SelectiveContext)
        values = self.block._values(features, None)[0]
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        if isinstance(self.block.dependency, PredictedDependency):
            target_score, source_score = self.block.dependency.predictor(features)
            return values, target_score[0], source_score[0]
        nothing = values.new_zeros(len(values), 0)
        return values, nothing, nothing


def _sums(block: nn.Module) -> StreamedSums | None:
    """The sums that a block's context needs; None: it has no context."""
    if isinstance(block, SelectiveContext):
        dependency = block.dependency
        if dependency is None:
            return None
        if isinstance(dependency, UniformDependency):
            return UniformSums()
        if isinstance(dependency, PredictedDependency):
            predictor = dependency.predictor
            activation = ACTIVATIONS[predictor.activation]
            weight = predictor.channel_weight
            if activation.form == "affine":
                return AffineSums(weight)
            if activation.form == "constant":
                return ExponentialSums(weight)
            if activation.form == "interpolated" and predictor.score_bound is not None:
                return InterpolatedSums(activation, predictor.score_bound, weight)
    raise ValueError(
        f"context_scope: image does not work for a model with {_called(block)}; use window, or a "
        "model with context none, average, or sca with activation exp, identity, or sigmoid or "
        "softplus with a score_bound"
    )


def _called(block: nn.Module) -> str:
    dependency = getattr(block, "dependency", block)
    if not isinstance(dependency, PredictedDependency):
        return type(dependency).__name__
    bound = dependency.predictor.score_bound
    return f"activation {dependency.predictor.activation} and score_bound {bound}"
