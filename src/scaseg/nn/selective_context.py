"""The block: a feature map in, the same map aware of its global context out."""

from __future__ import annotations

from operator import index

import torch
from torch import Tensor

from scaseg.nn.aggregation import ContextAggregation, flat_mask
from scaseg.nn.dependency import Dependency, DotDependency, PredictedDependency, UniformDependency
from scaseg.nn.predictor import SCORE_BOUND, DependencyPredictor
from scaseg.ops.row_sum import reciprocal
from scaseg.system import available_memory, in_words

DEPENDENCIES = ("predicted", "dot", "average", "none")


class SelectiveContext(ContextAggregation):
    """h_i = W_d x_i + sum_{j != i} a_ij W_c x_j / sum_{j != i} a_ij, a_ij predicted from x.

    dependency: "predicted" (the paper's predictor; pair_channels > 1 makes it dynamic), "dot"
    (ordinary attention, its own entry kept), "average" (all a_ij = 1, the paper's baseline-ave),
    "none" (no context, baseline-no: a 1x1 convolution). layers, hidden, activation,
    pair_channels, score_bound, score_std, score_bias and backend concern "predicted" (see
    DependencyPredictor), key_channels "dot". share_features: W_c = W_d.

    >>> import torch
    >>> block = SelectiveContext(64, hidden=32)
    >>> x = torch.randn(2, 64, 45, 60)
    >>> block(x).shape
    torch.Size([2, 64, 45, 60])
    >>> block.dependency_map(x, row=10, col=20).shape  # what that neuron depends on
    torch.Size([2, 45, 60])
    """

    def __init__(
        self,
        channels: int,
        out_channels: int | None = None,
        *,
        dependency: str = "predicted",
        layers: int = 3,
        hidden: int = 512,
        activation: str = "sigmoid",
        pair_channels: int = 1,
        score_bound: float | None = SCORE_BOUND,
        score_std: float | None = None,
        score_bias: float | None = None,
        share_features: bool = False,
        key_channels: int = 64,
        backend: str = "auto",
    ) -> None:
        super().__init__(channels, out_channels, share_features=share_features)
        self.dependency: Dependency | None
        if dependency == "predicted":
            predictor = DependencyPredictor(
                channels,
                layers=layers,
                hidden=hidden,
                activation=activation,
                pair_channels=pair_channels,
                score_bound=score_bound,
                score_std=score_std,
                score_bias=score_bias,
            )
            self.dependency = PredictedDependency(predictor, backend=backend)
        elif dependency == "dot":
            self.dependency = DotDependency(channels, key_channels=key_channels)
        elif dependency == "average":
            self.dependency = UniformDependency()
        elif dependency == "none":
            self.dependency = None
            self.context = None  # no parameter that nothing trains
        else:
            raise ValueError(
                f"dependency is {dependency!r}; choose one of {', '.join(DEPENDENCIES)}"
            )

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        coefficients: Tensor | None = None,
        mask: Tensor | None = None,
        source: Tensor | None = None,
    ) -> Tensor:
        """Add its context to every neuron: (B, C, H, W) -> (B, out_channels, H, W).

        coefficients (B or 1, H * W, sources): use these instead of the predictor. mask (B, H, W),
        of the map that context comes from: False keeps padding out of everyone's context.
        source (B, C, H', W'): take the context from that map; then nothing is a neuron's own.
        """
        self._check(x, source)
        source_mask = flat_mask(mask, x if source is None else source)
        if mask is not None:  # NaN * 0 is NaN, in the backward pass of a convolution too
            hidden = ~mask.view(-1, 1, *mask.shape[-2:])
            if source is None:
                x = x.masked_fill(hidden, 0)
            else:
                source = source.masked_fill(hidden, 0)
        if self.dependency is None:
            if coefficients is not None:
                raise ValueError(
                    "coefficients were given to a block with dependency='none', which has no "
                    "context feature; use ContextAggregation, or another dependency"
                )
            return self.identity(x)
        if coefficients is not None:
            return super().forward(
                x,
                coefficients,
                source=source,
                mask=mask,
                exclude_self=source is None and not self.dependency.keeps_own,
            )
        return self._add(
            x, self.dependency.context(x, source, self._values(x, source), source_mask)
        )

    def coefficients(
        self, x: Tensor, *, mask: Tensor | None = None, source: Tensor | None = None
    ) -> Tensor:
        """Write all coefficients out: (B, H * W, sources); row i is what neuron i depends on.

        The paper's matrix A: a_ii = 1 on its diagonal ("dot" keeps its own entries, and gives
        rows that sum to 1). A row may be scaled where it would under- or overflow, which no mean
        can see: exp rows always are. Raises ValueError where the matrix does not fit in memory;
        `dependency_map` gives a row of it at any size.
        """
        self._check(x, source)
        targets = x.shape[-2] * x.shape[-1]
        sources = targets if source is None else source.shape[-2] * source.shape[-1]
        _check_memory(x, targets, sources)
        everyone = torch.arange(targets, device=x.device)
        rows = self._rows(x, source, everyone, mask, sources)
        if source is None and (self.dependency is None or not self.dependency.keeps_own):
            rows = rows.masked_fill(torch.eye(targets, dtype=torch.bool, device=x.device), 1)
        return rows

    def dependency_map(
        self,
        x: Tensor,
        row: int,
        col: int,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
    ) -> Tensor:
        """Show what the neuron at (row, col) of the feature map depends on: (B, H, W).

        Its coefficients, normalised to sum 1, its own entry 0 (but for "dot"); all 0 where
        there is no context to depend on. With `source`, a map over that: (B, H', W').
        """
        self._check(x, source)
        height, width = x.shape[-2:]
        try:  # NumPy's whole numbers too
            row, col = index(row), index(col)
        except TypeError as fault:
            raise ValueError(f"(row, col) = ({row!r}, {col!r}); give whole numbers") from fault
        if not (0 <= row < height and 0 <= col < width):
            raise ValueError(
                f"(row, col) = ({row}, {col}) lies outside the feature map of {height} x {width}; "
                "feature-map coordinates are wanted, not pixels"
            )
        place = torch.tensor([row * width + col], device=x.device)
        there = x if source is None else source
        rows = self._rows(x, source, place, mask, there.shape[-2] * there.shape[-1])
        share = rows * reciprocal(rows.sum(-1), rows.abs().sum(-1)).unsqueeze(-1)
        return share.squeeze(1).unflatten(1, there.shape[-2:])

    def _rows(
        self, x: Tensor, source: Tensor | None, targets: Tensor, mask: Tensor | None, sources: int
    ) -> Tensor:
        source_mask = flat_mask(mask, x if source is None else source)
        if self.dependency is None:
            return x.new_zeros(x.shape[0], len(targets), sources)
        return self.dependency.coefficients(x, source, targets, source_mask)


def _check_memory(x: Tensor, targets: int, sources: int) -> None:
    needed = max(4, x.element_size()) * x.shape[0] * targets * sources
    available = available_memory(x.device)
    # scores, coefficients and masks stand side by side while the matrix is made
    if available is not None and 3 * needed > available:
        raise ValueError(
            f"{x.shape[0]} x {targets} x {sources} coefficients take {in_words(needed)} and as "
            f"much again twice to make, but {in_words(available)} are free on {x.device}; "
            "use dependency_map for single neurons, or a smaller map"
        )
