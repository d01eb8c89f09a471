"""Contexts that are branches beside the map, concatenated and projected."""

from __future__ import annotations

from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.nn.context import Context, Mask, Source


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

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        """Return the branches of every neuron of x, one after the other: (B, channels, H, W)."""
        raise NotImplementedError("give these, or target_context itself")

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        branches = self.project(self.branches(x, source, source_mask))
        return branches.flatten(2).transpose(1, 2)

    def values(self, x: Tensor) -> Tensor:
        problem = f"given to {type(self).__name__}, which is not a weighted mean"
        raise UserError("coefficients", problem, "use ContextAggregation, or another context")
