"""The paper's two baselines: no context, and the average of all others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.errors import UserError
from scaseg.nn.auxiliary import AuxiliaryClassifier
from scaseg.nn.context import Context, MapFactors, Mask, Source
from scaseg.ops.checks import check_bool, check_whole_number
from scaseg.ops.exact import uniform_context
from scaseg.ops.precision import without_autocast
from scaseg.ops.streaming import ExpSums, StreamedSums


class NoContext(Context):
    """h_i = W_d x_i: a 1x1 convolution, all coefficients 0 (baseline-no)."""

    receptive_field = "the neuron itself"
    input_dependent = False
    reference = "the paper's baseline-no"

    def __init__(self, in_channels: int, out_channels: int | None = None) -> None:
        super().__init__(in_channels, out_channels)
        self.context = None  # no parameter that nothing trains

    def values(self, x: Tensor) -> Tensor:
        raise UserError(
            "coefficients",
            "given to NoContext, which has no context feature",
            "use ContextAggregation, or another context",
        )

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> None:
        return None

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        there = x if source is None else source
        return x.new_zeros(x.shape[0], len(targets), there.shape[-2] * there.shape[-1])

    def streamed_sums(self) -> None:
        return None


class EvenContext(Context):
    """A context in which all sources count alike."""

    input_dependent = False

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        there = x if source is None else source
        everyone = torch.arange(there.shape[-2] * there.shape[-1], device=targets.device)
        ones = x.new_ones(x.shape[0], len(targets), len(everyone))
        if source_mask is not None:
            ones = ones * source_mask.unsqueeze(1)
        if self.exclude_self and source is None:
            ones = ones.masked_fill(targets.unsqueeze(-1) == everyone, 0)
        return ones

    def map_factors(self, x: Tensor) -> MapFactors:
        return MapFactors("even")


class AverageContext(EvenContext):
    """h_i = W_d x_i + the mean of W_c x_j over all j != i: every a_ij is 1 (baseline-ave).

    auxiliary: with the auxiliary loss of `object`, to tell its effect from that of the context.
    """

    reference = "the paper's baseline-ave; Liu et al. 2015 (ParseNet)"

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        share_features: bool = False,
        auxiliary: bool = False,
        classes: int | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_bool("auxiliary", auxiliary)
        self.classifier = None
        if auxiliary:
            check_whole_number("classes", classes, 1)
            assert classes is not None
            self.classifier = AuxiliaryClassifier(in_channels, classes)

    def add_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        if self.classifier is not None and self.training:
            self.classifier(x if source is None else source)  # its scores have a loss of their own
        neurons = x.shape[-2] * x.shape[-1]
        others = source is not None or source_mask is not None or type(self) is not AverageContext
        if not x.is_cuda or others or neurons < 2:
            return super().add_context(x, source, source_mask)
        # Both are linear, so average first: W_c sees one mean, and a neuron's own share of it is
        # taken out of W_d. A GPU waits for memory here: one product over the map, not two.
        return self.averaged_first(x)

    def averaged_first(self, x: Tensor) -> Tensor:
        """Return W_d x_i + W_c (sum_j x_j - x_i) / (n - 1): (B, C, H, W) -> (B, M, H, W)."""
        rows = x.flatten(2).transpose(1, 2)  # (B, n, C)
        others = rows.shape[1] - 1
        identity = self.identity.weight.flatten(1)
        context = (identity if self.context is None else self.context.weight.flatten(1)) / others
        with without_autocast(x):
            total = rows.sum(1, dtype=torch.promote_types(x.dtype, torch.float32))  # (B, C)
            shared = F.linear(total.to(context.dtype), context)  # (B, M)
        out = F.linear(rows, identity - context)
        out = out + shared.unsqueeze(1).to(out.dtype)
        return out.transpose(1, 2).unflatten(2, x.shape[-2:])

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        values = self.values(x if source is None else source)
        return uniform_context(values, exclude_self=source is None, source_mask=source_mask)

    def streamed_sums(self) -> StreamedSums:
        return ExpSums()  # of scores that are all 0
