"""The base of every context module: one interface, the two features, checks and masks.

A new context is a file with a subclass of `Context` and a line in `scaseg.registry.CONTEXTS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.nn.convolution import PointwiseConv2d, watched
from scaseg.ops.checks import check_bool, check_tensor, check_whole_number
from scaseg.ops.dense import reciprocal
from scaseg.ops.dispatch import aggregate
from scaseg.ops.streaming import StreamedSums
from scaseg.system import available_memory, in_words

Source = Tensor | None  # (B, C, H', W'): the map that context comes from; None: the targets' own
Mask = Tensor | None  # (B, source): True where a source counts; None: all do


class MapFactors(NamedTuple):
    """What all coefficients of a map follow from: a_ij of source j for target i, both (n, R).

    form: "even" 1; "additive" sum_r weight_r phi(target_ir + source_jr) with `activation` phi;
    "dot" exp(sum_r target_ir source_jr); "mixture" sum_r target_ir source_jr; "matrix" target_ij
    itself, (n, n); "cross" rounds of target (rounds, n, W), what a neuron takes of its row, and
    source (rounds, n, H), of its column. Enough to compute any map elsewhere, as in a browser.
    """

    form: Literal["even", "additive", "dot", "mixture", "matrix", "cross"]
    target: Tensor | None = None
    source: Tensor | None = None
    weight: Tensor | None = None  # (R,), or (n, R): of each target its own
    activation: str | None = None


class Context(nn.Module, ABC):
    """h_i = W_d x_i + context of neuron i: (B, C, H, W) -> (B, M, H, W).

    A subclass computes the context of all targets (`target_context`). Where that is a weighted
    mean of the values W_c x_j, it also returns the weights (`coefficient_rows`), which
    `coefficients` and `dependency_map` show. Where it follows from a few sums over all sources
    (`streamed_sums`), an image may be gone through in windows.

    W_d and W_c are 1x1 convolutions without bias, as in the paper, and start as Xavier matrices:
    h then has about the size of x, since a mean is never larger than what it averages.
    share_features: W_c = W_d, one matrix for both.
    """

    exclude_self = True  # a neuron is not part of its own context
    identity_dropout = 0.0  # the part of the neurons that lose W_d x_i at each step of a training
    # what `scaseg contexts` says of it
    order = "n"  # how the cost grows with the number n of neurons
    receptive_field = "the whole map"  # how far a neuron sees through it
    input_dependent = True  # the coefficients follow from the features
    neuron_selective = False  # neurons of one image may rank the sources in different orders
    reference = "?"  # where it comes from
    not_exported = ""  # why no graph of it can leave the size of the map open
    # names of the modules and parameters that the coefficients follow from
    score_parts: tuple[str, ...] = ()

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, share_features: bool = False
    ) -> None:
        super().__init__()
        out_channels = in_channels if out_channels is None else out_channels
        check_whole_number("in_channels", in_channels, 1)
        check_whole_number("out_channels", out_channels, 1)
        check_bool("share_features", share_features)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.identity = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)  # W_d
        context = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)  # W_c
        nn.init.xavier_uniform_(self.identity.weight)
        nn.init.xavier_uniform_(context.weight)
        self.context = None if share_features else context

    @abstractmethod
    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor | None:
        """Return the context of every neuron of x.

        x (B, C, H, W) -> (B, n, M), or (B, 1, M) if it is the same for all; None for no context.
        """

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        """Return the coefficients of the neurons `targets` (rows,) of x: (B, rows, source).

        Each row may be multiplied by a constant. With exclude_self, own entries are 0.
        """
        raise UserError(
            "context",
            f"{type(self).__name__} is not a weighted mean: it has no coefficients",
            "use sca, or another context that has",
        )

    @property
    def has_maps(self) -> bool:
        """Whether it is a weighted mean, with coefficients to show."""
        return type(self).coefficient_rows is not Context.coefficient_rows

    def map_factors(self, x: Tensor) -> MapFactors:
        """Return what the coefficients of all neurons of a map x (1, C, H, W) follow from.

        Here the matrix itself, which every context with coefficients has; own entries are 0 with
        exclude_self. Contexts with less than that say so.
        """
        everyone = torch.arange(x.shape[-2] * x.shape[-1], device=x.device)
        return MapFactors("matrix", target=len(everyone) * self.shares(x, everyone)[0])

    def score_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that coefficients follow from, for a learning rate of their own.

        >>> import torch, scaseg
        >>> block = scaseg.SelectiveContext(16, hidden=8)
        >>> scores = {id(one) for one in block.score_parameters()}
        >>> rest = [one for one in block.parameters() if id(one) not in scores]
        >>> optimizer = torch.optim.AdamW(
        ...     [{"params": block.score_parameters(), "lr": 3e-4}, {"params": rest}], lr=3e-3
        ... )
        """
        return [
            one for name, one in self.named_parameters() if name.split(".")[0] in self.score_parts
        ]

    def streamed_sums(self) -> StreamedSums | None:
        """Return the sums from which the context of a whole image follows; None: needs none.

        They are fed with `values` and `scores`; see `scaseg.nn.streaming.StreamedContext`.
        """
        raise not_streamed(type(self).__name__)

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the neurons of x (B, C, H, W) as targets and as sources.

        -> (B, n, R) each, for `streamed_sums`; here 0.
        """
        zeros = x.new_zeros(x.shape[0], x.shape[-2] * x.shape[-1], 1)
        return zeros, zeros

    def values(self, x: Tensor) -> Tensor:
        """Return the context features W_c x_j of a map: (B, C, H, W) -> (B, n, M)."""
        layer = self.identity if self.context is None else self.context
        return layer(x).flatten(2).transpose(1, 2)  # free for channels_last maps

    def combine(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Add a context (B, n or 1, M) to the identity features of x: (B, M, H, W)."""
        identity = self.identity(x)
        if context is None:
            return identity
        if self.training and self.identity_dropout:
            identity = identity * F.dropout(torch.ones_like(identity[:, :1]), self.identity_dropout)
        height, width = x.shape[-2:]
        if context.shape[1] == 1:
            height = width = 1  # the same for all: broadcast
        context = context.transpose(1, 2).unflatten(2, (height, width)).to(identity.dtype)
        ours = type(self.identity) in (nn.Conv2d, PointwiseConv2d)
        if ours and not watched(self.identity):
            return identity.add_(context)  # nobody else has it: a large map saved
        return identity + context

    def add_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        """Return identity features plus context: (B, M, H, W); arguments as in target_context."""
        return self.combine(x, self.target_context(x, source, source_mask))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        coefficients: Tensor | None = None,
    ) -> Tensor:
        """Add its context to every neuron: (B, C, H, W) -> (B, M, H, W).

        mask (B, H, W), of the map that context comes from: False keeps padding out of everyone's
        context. source (B, C, H', W'): take the context from that map; then nothing is a neuron's
        own. coefficients (B or 1, n, source): weigh the sources by these.
        """
        x, source, source_mask = self._check(x, source, mask)
        if coefficients is None:
            return self.add_context(x, source, source_mask)
        neurons, hint = x.shape[-2] * x.shape[-1], "a row for each neuron of x"
        check_tensor("coefficients", coefficients, "B", neurons, "source", hint=hint)
        context = aggregate(
            self.values(x if source is None else source),
            coefficients,
            exclude_self=self.exclude_self and source is None,
            source_mask=source_mask,
        )
        return self.combine(x, context)

    def coefficients(
        self, x: Tensor, *, mask: Tensor | None = None, source: Tensor | None = None
    ) -> Tensor:
        """Return all coefficients: (B, n, source); row i is what neuron i depends on.

        The paper's matrix A, with a_ii = 1 on its diagonal (DotContext keeps its own entries, and
        its rows sum to 1). A row may be scaled where it would under- or overflow, which no mean
        can see: exp rows always are. UserError where the matrix does not fit in memory;
        `dependency_map` gives a row of it at any size.
        """
        x, source, source_mask = self._check(x, source, mask)
        there = x if source is None else source
        targets, sources = (side.shape[-2] * side.shape[-1] for side in (x, there))
        needed = max(4, x.element_size()) * x.shape[0] * targets * sources
        free = available_memory(x.device)
        # scores, coefficients and masks stand side by side while the matrix is made
        if free is not None and 3 * needed > free:
            raise UserError(
                "x",
                f"{x.shape[0]} x {targets} x {sources} coefficients take {in_words(needed)} and as "
                f"much again twice to make, but {in_words(free)} are free on {x.device}",
                "use dependency_map for single neurons, or a smaller map",
            )
        everyone = torch.arange(targets, device=x.device)
        rows = self.coefficient_rows(x, source, everyone, source_mask)
        if source is None and self.exclude_self:
            rows = rows.masked_fill(torch.eye(targets, dtype=torch.bool, device=x.device), 1)
        return rows

    def shares(
        self,
        x: Tensor,
        targets: Tensor,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
    ) -> Tensor:
        """Return the coefficients of the neurons `targets` (rows,), normalized to sum 1.

        -> (B, rows, source). Own entries are 0 with exclude_self; a row without any context is 0.
        """
        x, source, source_mask = self._check(x, source, mask)
        rows = self.coefficient_rows(x, source, targets, source_mask)
        return rows * reciprocal(rows.sum(-1), rows.abs().sum(-1)).unsqueeze(-1)

    def dependency_map(
        self,
        x: Tensor,
        row: int,
        col: int,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
    ) -> Tensor:
        """Return what the neuron at (row, col) of the feature map depends on: (B, H, W).

        Its coefficients as `shares` gives them. With `source`, a map over that: (B, H', W').
        """
        self._check(x, source, mask)
        height, width = x.shape[-2:]
        row, col = index(row), index(col)  # NumPy's whole numbers too
        if not (0 <= row < height and 0 <= col < width):
            raise UserError(
                "(row, col)",
                f"({row}, {col}) is outside the feature map of {height} x {width}",
                "give feature-map coordinates, not pixels",
            )
        target = torch.tensor([row * width + col], device=x.device)
        there = x if source is None else source
        share = self.shares(x, target, mask=mask, source=source)
        return share.squeeze(1).unflatten(1, there.shape[-2:])

    def _check(
        self, x: Tensor, source: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Raise UserError unless the arguments fit; return them, the mask as (B, source).

        What it leaves out becomes 0: NaN * 0 is NaN, in the backward pass of a convolution too.
        """
        check_tensor("x", x, "B", self.in_channels, "H", "W")
        if source is not None:
            check_tensor("source", source, x.shape[0], self.in_channels, "H", "W")
            if source.dtype != x.dtype:
                problem = f"dtype {source.dtype}, but x has {x.dtype}"
                raise UserError("source", problem, "convert one")
        if mask is None:
            return x, source, None
        if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[1] == 1:
            mask = mask.squeeze(1)
        there = x if source is None else source
        hint = "True where a neuron counts, the mask of an image resized to the feature map"
        check_tensor("mask", mask, len(there), *there.shape[-2:], kind="bool", hint=hint)
        # not masked_fill: it would undo channels_last
        cleaned = torch.where(mask.unsqueeze(1), there, 0)
        return (cleaned, None, mask.flatten(1)) if source is None else (x, cleaned, mask.flatten(1))


def not_streamed(name: str) -> UserError:
    """The error for a context that does not follow from a few sums over its sources."""
    return UserError(
        "context_scope",
        f"image does not work for a model with {name}",
        "use window, or a model with context none, average, or sca with activation exp, "
        "identity, or sigmoid or softplus with a score_bound",
    )
