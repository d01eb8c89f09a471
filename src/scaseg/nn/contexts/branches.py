"""Contexts that are branches beside the map, concatenated and projected."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.nn.context import Context
from scaseg.ops.checks import check_whole_number


class BranchContext(Context):
    """h_i = W_d x_i + P [b_1; b_2; ...]_i, with branches b computed from the map.

    The papers concatenate x with the branches and convolve. A 1x1 convolution of a concatenation
    is the sum of one for each part, so W_d is the part of x. Branches pass a ReLU, and there is no
    single weight of a source: no coefficients, no maps. The papers' batch norms are left out: all
    contexts have to do without, and a batch's statistics would make its images each other's
    context.
    """

    def __init__(self, in_channels: int, out_channels: int | None, *, channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.context = None  # no parameter that nothing trains
        self.project = nn.Conv2d(channels, self.out_channels, kernel_size=1, bias=False)  # P
        nn.init.xavier_uniform_(self.project.weight)

    @abstractmethod
    def branches(self, x: Tensor, source: Tensor | None, source_mask: Tensor | None) -> Tensor:
        """Return the branches of every neuron of x, one after the other: (B, channels, H, W)."""

    def target_context(
        self, x: Tensor, source: Tensor | None, source_mask: Tensor | None
    ) -> Tensor:
        branches = self.project(self.branches(x, source, source_mask))
        return branches.flatten(2).transpose(1, 2)

    def values(self, x: Tensor) -> Tensor:
        problem = f"given to {type(self).__name__}, which is not a weighted mean"
        raise UserError("coefficients", problem, "use ContextAggregation, or another context")


def convolution(in_channels: int, out_channels: int, rate: int | None = None) -> nn.Conv2d:
    """1x1, or 3x3 with a dilation rate, as large a map out as in; made for the ReLU behind it."""
    size, rate, padding = (1, 1, 0) if rate is None else (3, rate, rate)
    layer = nn.Conv2d(in_channels, out_channels, size, padding=padding, dilation=rate)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def keep_counted(x: Tensor, source_mask: Tensor | None) -> Tensor:
    """Set neurons that do not count to 0, as a convolution does beyond the edge of an image."""
    if source_mask is None:
        return x
    return x.masked_fill(~source_mask.view(-1, 1, *x.shape[-2:]), 0)


def refuse_source(context: Context, source: Tensor | None) -> None:
    """Refuse another map as the source, where a neuron looks at the places around its own."""
    if source is not None:
        problem = f"given to {type(context).__name__}, which looks around each neuron's own place"
        raise UserError("source", problem, "use a context that does not: sca, dot, average")


def check_whole_numbers(name: str, values: object, least: int, most: int) -> tuple[int, ...]:
    """Raise UserError unless values are some whole numbers from `least` to `most`."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        fits = f"give a list of whole numbers from {least} to {most}"
        raise UserError(name, f"{values!r}", fits)
    for value in values:
        check_whole_number(name, value, least, most)
    return tuple(values)
