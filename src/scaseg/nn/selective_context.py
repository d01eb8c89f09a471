"""The paper's block: context by coefficients that are predicted from the feature map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scaseg.nn.context import Context, MapFactors, Mask, Source, not_streamed
from scaseg.nn.convolution import watched
from scaseg.nn.predictor import SCORE_BOUND, DependencyPredictor
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.dense import dense_coefficients
from scaseg.ops.dispatch import check_backend, selective_context
from scaseg.ops.kernels.support import unsupported
from scaseg.ops.scores import Scores
from scaseg.ops.streaming import ExpSums, IdentitySums, SmoothSums, StreamedSums


class SelectiveContext(Context):
    """h_i = W_d x_i + sum_{j != i} a_ij W_c x_j / sum_{j != i} a_ij, a_ij predicted from x.

    layers, hidden, activation, pair_channels (more than 1 makes the coefficients dynamic),
    score_bound, score_std and score_bias are the predictor's: see DependencyPredictor. backend:
    see `scaseg.selective_context`. share_features: W_c = W_d.

    >>> import torch
    >>> block = SelectiveContext(64, hidden=32)
    >>> x = torch.randn(2, 64, 45, 60)
    >>> block(x).shape
    torch.Size([2, 64, 45, 60])
    >>> block.dependency_map(x, row=10, col=20).shape  # what that neuron depends on
    torch.Size([2, 45, 60])
    """

    reference = "the paper"
    score_parts = ("predictor",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        layers: int = 3,
        hidden: int = 512,
        activation: str = "sigmoid",
        pair_channels: int = 1,
        score_bound: float | None = SCORE_BOUND,
        score_std: float | None = None,
        score_bias: float | None = None,
        share_features: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_backend(backend)
        self.backend = backend
        self.predictor = DependencyPredictor(
            in_channels,
            layers=layers,
            hidden=hidden,
            activation=activation,
            pair_channels=pair_channels,
            score_bound=score_bound,
            score_std=score_std,
            score_bias=score_bias,
        )
        # a single channel gives all neurons one order: docs/single_channel.md
        self.neuron_selective = pair_channels > 1

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictor(x)

    def add_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        if source is not None or not self._has_kernels(x):
            return super().add_context(x, source, source_mask)
        # imported here: Triton is not everywhere
        from scaseg.ops.kernels.block import kernel_block

        predictor = self.predictor
        layers = self._layers()
        parameters: list[dict[str, Any]] = [
            layer._parameters for layer in layers if type(layer) is nn.Conv2d
        ]
        return kernel_block(
            x,
            [one["weight"] for one in parameters],
            [one["bias"] for one in parameters[2:]],
            channel_weight=predictor.channel_weight,
            source_mask=source_mask,
            activation=predictor.activation,
            score_bound=predictor.score_bound,
        )

    def _has_kernels(self, x: Tensor) -> bool:
        """Whether the whole block can be computed by kernels, and shall."""
        if self.backend not in ("auto", "triton") or (self.backend == "auto" and not x.is_cuda):
            return False
        predictor = self.predictor
        # what a subclass computes is its own
        if type(self) is not SelectiveContext or type(predictor) is not DependencyPredictor:
            return False
        if self.context is None or len(predictor.features) == 0 or predictor.guard is not None:
            return False
        device = x.device.type
        low = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if low else x.dtype
        kind = predictor.activation, predictor.score_bound, predictor.score.out_channels
        if x.numel() == 0 or unsupported(device, dtype, *kind) is not None:
            return False
        # layers that somebody replaced or watches are called as they are
        plain = (nn.Conv2d, nn.ReLU)
        return all(type(layer) in plain and not watched(layer) for layer in self._layers())

    def _layers(self) -> list[Any]:
        """W_d, W_c, the predictor's steps and its score; nn.Module's look-ups would take longer."""
        own: dict[str, Any] = self._modules
        predictor = own["predictor"]._modules
        steps = predictor["features"]._modules.values()
        return [own["identity"], own["context"], *steps, predictor["score"]]

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        values = self.values(x if source is None else source)
        target_score, source_score = self.predictor(x, source)
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

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        target_score, source_score = self.predictor(x, source)
        scores = Scores(
            target=target_score[:, targets].transpose(1, 2),
            source=source_score.transpose(1, 2),
            activation=ACTIVATIONS[self.predictor.activation],
            channel_weight=self.predictor.channel_weight,
            own=targets if source is None else None,
            source_mask=source_mask,
        )
        return dense_coefficients(scores)

    def map_factors(self, x: Tensor) -> MapFactors:
        target, source = (score[0] for score in self.predictor(x))
        weight = self.predictor.channel_weight
        weight = target.new_ones(target.shape[1]) if weight is None else weight
        return MapFactors("additive", target, source, weight, self.predictor.activation)

    def streamed_sums(self) -> StreamedSums:
        activation, bound = ACTIVATIONS[self.predictor.activation], self.predictor.score_bound
        weight = self.predictor.channel_weight
        if activation.form == "affine":
            return IdentitySums(weight)
        if activation.form == "constant":
            return ExpSums(weight)
        if activation.form == "interpolated" and bound is not None:
            return SmoothSums(activation, bound, weight)
        raise not_streamed(f"activation {activation.name} and score_bound {bound}")
