"""Interpolants at many targets, with a backward pass that keeps its digits and bounds its memory.

An interpolant is basis @ samples. Its derivative in the score is interpolated in its own right,
from samples of the derivative: differentiating the basis would multiply the rounding errors of
the samples by nodes^2. So `score` takes the gradient, and `basis`, a function of the score, gets
none, nor do the sampled slopes; a second backward pass differentiates both as it should.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

# Elements of one intermediate: 64 MiB in float32, and large enough that the loop costs nothing.
LIMIT = 1 << 24


class Interpolate(Function):
    """Interpolate one number for each target.

    score (B, R, target), basis (B, R, target, nodes), samples and slopes (B, R, nodes)
    -> (B, R, target). Without slopes it is a constant in the score, here and in Mix.
    """

    @staticmethod
    def forward(score: Tensor, basis: Tensor, samples: Tensor, slopes: Tensor | None) -> Tensor:
        return (basis @ samples.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        score, basis, _, slopes = inputs
        ctx.save_for_backward(basis, slopes)
        ctx.dtype = score.dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        basis, slopes = ctx.saved_tensors
        if slopes is None:
            grad_score = torch.zeros_like(grad)
        else:
            grad_score = grad * (basis @ slopes.unsqueeze(-1)).squeeze(-1)
        return grad_score.to(ctx.dtype), None, (grad.unsqueeze(2) @ basis).squeeze(2), None


class Mix(Function):
    """Mix the context of every target from that of a few virtual targets.

    Virtual targets are rows of `weights` (B, R, nodes + E, source): their means weights @ values
    are the samples, `slopes` (B, R, nodes, source) those of the weights' derivatives. A target
    takes basis * share of the nodes and `extra` of the last E rows:

        sum_r [basis_r share_r, extra_r] @ (weights_r @ values) - own_share * own

    score, share (B, R, target); basis (B, R, target, nodes); extra (B, R, target, E); own_share
    (B, target, 1); own (B, target, M), by default the values -> (B, target, M), and the samples,
    which are not differentiable. With weights=None the products are done: values are the samples,
    flat (B, R * (nodes + E), M), slopes likewise. One function, because each product passes
    through all of (n, M): memory is what it costs. turned: give the context as (B, M, target), for
    own values that lie so in memory; turned here, it would be a view that nobody may change.
    """

    @staticmethod
    def forward(
        score: Tensor,
        basis: Tensor,
        share: Tensor,
        extra: Tensor | None,
        own_share: Tensor | None,
        weights: Tensor | None,
        slopes: Tensor | None,
        values: Tensor,
        own: Tensor | None,
        turned: bool,
    ) -> tuple[Tensor, Tensor]:
        samples = values.clone() if weights is None else weights.flatten(1, 2) @ values
        mix = _mix(basis, share, extra)
        context = samples.mT @ mix.mT if turned else mix @ samples
        if own_share is not None:
            own_values = values if own is None else own
            (context.mT if turned else context).addcmul_(own_share, own_values, value=-1)
        return context, samples

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[1:-1], output[1])
        ctx.turned = inputs[-1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 10
        grad = grad.mT if ctx.turned else grad
        basis, share, extra, own_share, weights, slopes, values, own, samples = ctx.saved_tensors
        if torch.is_grad_enabled():  # as saved the samples are cut off from what they depend on
            samples = values if weights is None else weights.flatten(1, 2) @ values
        channels, nodes = basis.shape[1], basis.shape[3]
        rows, count = samples, samples.shape[1]
        needs_score = ctx.needs_input_grad[0] and slopes is not None
        if needs_score:
            sampled = slopes if weights is None else slopes.flatten(1, 2) @ values
            rows = torch.cat([rows, sampled], dim=1)
        # a product with 63 columns takes twice the time of one with 64
        rows = F.pad(rows, (0, 0, 0, -rows.shape[1] % 4))
        projected = grad @ rows.mT  # (B, target, R * (nodes + E) [+ R * nodes] + padding)

        by_row = _by_channel(projected[..., :count], channels)
        grad_share = (basis * by_row[..., :nodes]).sum(-1)
        grad_extra = None if extra is None else by_row[..., nodes:]
        grad_score = None
        if needs_score:
            by_slope = _by_channel(projected[..., count : count + channels * nodes], channels)
            grad_score = share * (basis * by_slope).sum(-1)

        grad_weights = grad_own_share = grad_own = None
        grad_values = grad_samples = _mix(basis, share, extra).mT @ grad
        if weights is not None:
            grad_weights = (grad_samples @ values.mT).unflatten(1, weights.shape[1:3])
            grad_values = product_like(grad, weights.flatten(1, 2).mT, grad_samples)
        if own_share is not None:
            own_values = values if own is None else own
            grad_own_share = -torch.einsum("btm,btm->bt", grad, own_values).unsqueeze(-1)
            if own is None:
                grad_values.addcmul_(own_share, grad, value=-1)
            else:
                grad_own = -own_share * grad
        grads = grad_score, None, grad_share, grad_extra, grad_own_share, grad_weights
        return *grads, None, grad_values, grad_own, None


def product_like(like: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """left @ right (B, n, M), laid out in memory as `like`, (B, n, M).

    In an ordinary map the neurons of a channel lie side by side, in a channels_last map the
    channels of a neuron: adding one to the other takes ten times as long as two of a kind.
    """
    return (right.mT @ left.mT).mT if like.stride(1) == 1 else left @ right


def _mix(basis: Tensor, share: Tensor, extra: Tensor | None) -> Tensor:
    """The share of every virtual target in every target: (B, target, R * (nodes + E))."""
    columns = basis * share.unsqueeze(-1)
    if extra is not None:
        columns = torch.cat([columns, extra], dim=-1)
    return columns.transpose(1, 2).flatten(2)


def _by_channel(projected: Tensor, channels: int) -> Tensor:
    """(B, target, R * k) -> (B, R, target, k)."""
    return projected.unflatten(2, (channels, -1)).transpose(1, 2)


def fits(elements: int) -> bool:
    """Whether an intermediate of this size may exist; a compiled graph plans its own."""
    return torch.compiler.is_compiling() or elements <= LIMIT


def map_rows(
    compute: Callable[..., tuple[Tensor, ...]],
    rows: Sequence[tuple[Tensor | None, int]],
    *,
    row_elements: int,
    dim: int,
) -> tuple[Tensor, ...]:
    """Apply `compute` to slices of `rows`, (tensor, axis to slice); join along `dim`.

    `row_elements` is the size of the largest intermediate for one row. Slices are recomputed in
    the backward pass: kept, they would add up to what slicing is there to avoid.
    """
    first, axis = rows[0]
    assert first is not None
    count = first.shape[axis]
    size = max(1, LIMIT // row_elements)
    if fits(count * row_elements):
        return compute(*(row for row, _ in rows))
    pieces = []
    for start in range(0, count, size):
        length = min(size, count - start)
        part = [None if row is None else row.narrow(axis, start, length) for row, axis in rows]
        if torch.is_grad_enabled():
            piece = checkpoint(compute, *part, use_reentrant=False, preserve_rng_state=False)
        else:
            piece = compute(*part)
        pieces.append(piece)
    return tuple(torch.cat(piece, dim=dim) for piece in zip(*pieces, strict=True))
