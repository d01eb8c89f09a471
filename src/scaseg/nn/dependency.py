"""The ways in which a neuron can depend on the others, behind one interface.

Each takes the features of targets and sources and answers two questions: what is the context of
all targets (without writing coefficients out), and what are the coefficients of these few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from scaseg.nn.predictor import DependencyPredictor
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.attention import dot_coefficients, dot_context
from scaseg.ops.checks import check_whole_number
from scaseg.ops.dense import dense_coefficients
from scaseg.ops.dispatch import check_backend, selective_context
from scaseg.ops.uniform import uniform_context


class Dependency(nn.Module, ABC):
    """How targets weigh sources."""

    keeps_own = False  # whether a neuron is part of its own context

    @abstractmethod
    def context(
        self,
        target: Tensor,
        source: Tensor | None,
        values: Tensor,
        source_mask: Tensor | None,
    ) -> Tensor:
        """Return the context of every target, (B, target, M), or (B, 1, M) if all have the same.

        target (B, C, H, W), source (B, C, H', W') or None for the same map, values (B, source, M),
        source_mask (B, source).
        """

    @abstractmethod
    def coefficients(
        self, target: Tensor, source: Tensor | None, index: Tensor, source_mask: Tensor | None
    ) -> Tensor:
        """Return the coefficients of the targets at `index` (rows,): (B, rows, source).

        Each row may be multiplied by a constant; own entries are there only if `keeps_own`,
        else 0.
        """


class PredictedDependency(Dependency):
    """The paper's: a small network predicts the coefficients from the image."""

    def __init__(self, predictor: DependencyPredictor, *, backend: str = "auto") -> None:
        super().__init__()
        check_backend(backend)
        self.predictor = predictor
        self.backend = backend

    def context(
        self,
        target: Tensor,
        source: Tensor | None,
        values: Tensor,
        source_mask: Tensor | None,
    ) -> Tensor:
        target_score, source_score = self.predictor(target, source)
        return selective_context(
            values,
            target_score,
            source_score,
            activation=self.predictor.activation,
            channel_weight=self.predictor.channel_weight,
            exclude_self=source is None,
            source_mask=source_mask,
            score_bound=self.predictor.score_bound,
            backend=self.backend,
        )

    def coefficients(
        self, target: Tensor, source: Tensor | None, index: Tensor, source_mask: Tensor | None
    ) -> Tensor:
        target_score, source_score = self.predictor(target, source)
        return dense_coefficients(
            target_score[:, index].transpose(1, 2),
            source_score.transpose(1, 2),
            activation=ACTIVATIONS[self.predictor.activation],
            channel_weight=self.predictor.channel_weight,
            own=index if source is None else None,
            source_mask=source_mask,
        )


class DotDependency(Dependency):
    """Ordinary attention: exp(q_i . k_j / sqrt(d)), own entry kept, dynamic by nature."""

    keeps_own = True

    def __init__(self, channels: int, *, key_channels: int = 64) -> None:
        super().__init__()
        check_whole_number("key_channels", key_channels, 1)
        # PyTorch's initialisation: scores well under 1, so that training starts near the average.
        # A bias of the key would add the same to all scores of a row, and cancel.
        self.query = nn.Conv2d(channels, key_channels, kernel_size=1)
        self.key = nn.Conv2d(channels, key_channels, kernel_size=1, bias=False)

    def _query_and_key(self, target: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor]:
        query = self.query(target).flatten(2).transpose(1, 2)
        key = self.key(target if source is None else source).flatten(2).transpose(1, 2)
        return query, key

    def context(
        self,
        target: Tensor,
        source: Tensor | None,
        values: Tensor,
        source_mask: Tensor | None,
    ) -> Tensor:
        query, key = self._query_and_key(target, source)
        return dot_context(query, key, values.to(query.dtype), source_mask=source_mask)

    def coefficients(
        self, target: Tensor, source: Tensor | None, index: Tensor, source_mask: Tensor | None
    ) -> Tensor:
        query, key = self._query_and_key(target, source)
        return dot_coefficients(query[:, index], key, source_mask=source_mask)


class UniformDependency(Dependency):
    """Every other neuron counts alike: the paper's baseline-ave."""

    def context(
        self,
        target: Tensor,
        source: Tensor | None,
        values: Tensor,
        source_mask: Tensor | None,
    ) -> Tensor:
        return uniform_context(values, exclude_self=source is None, source_mask=source_mask)

    def coefficients(
        self, target: Tensor, source: Tensor | None, index: Tensor, source_mask: Tensor | None
    ) -> Tensor:
        neurons = (target if source is None else source).flatten(2).shape[-1]
        ones = target.new_ones(target.shape[0], len(index), neurons)
        if source_mask is not None:
            ones = ones * source_mask.unsqueeze(1)
        if source is None:
            is_own = index.unsqueeze(-1) == torch.arange(neurons, device=index.device)
            ones = ones.masked_fill(is_own, 0)
        return ones
