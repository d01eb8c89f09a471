"""A whole selective-context block in few launches: matrix products and the kernels beside it.

What nn.SelectiveContext computes layer by layer, for a map that is its own source:

    out = x W_d' + context(x W_c', scores(relu(... relu(x W_1' + b_1) ...)))

The matrix products are torch's, bias and ReLU in their epilogue; `scores` and `smooth` do the
rest. One autograd node instead of dozens: at the paper's sizes the block is bound by launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.kernels import smooth
from scaseg.ops.kernels.scores import score, score_backward
from scaseg.ops.kernels.smooth import Nodes, Sums
from scaseg.ops.kernels.support import CODES, check_differentiated_once


def _flat(parameters: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Bring parameters to a dtype with two launches for all of them; empty if they have it."""
    if parameters[0].dtype == dtype:
        return parameters[0].new_empty(0)
    return torch.cat([one.reshape(-1) for one in parameters]).to(dtype)


def _matrices(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The parameters again, from `flat` unless it is empty: matrices and vectors."""
    ones = parameters
    if flat.numel():
        ones = flat.split([one.numel() for one in parameters])
    shaped = zip(ones, parameters, strict=True)
    return [one.view(len(like), -1) if like.dim() > 1 else one for one, like in shaped]


def forward(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    w: Tensor | None,
    mask: Tensor | None,
    activation: int,
    bound: float,
    slopes: bool,
) -> list[Tensor]:
    """x (B, n, C) -> out (B, n, M), then what `backward` needs.

    weights: W_d, W_c, those of the predictor's layers and of its score (R, 2K), float32; biases:
    of the layers and of the score.
    """
    batch, count, _ = x.shape
    rows = x.reshape(batch * count, -1)
    lowered = [*weights[:-1], *biases[:-1]]
    flat = _flat(lowered, x.dtype)
    identity, context, *layers = _matrices(flat, lowered)
    depth = len(biases) - 1
    out, values = rows @ identity.T, rows @ context.T
    features = [rows]
    for weight, bias in zip(layers[:depth], layers[depth:], strict=True):
        features.append(torch._addmm_activation(bias, features[-1], weight.T))
    scores = score(features[-1], weights[-1].flatten(1), biases[-1], bound)
    s, t = scores.view(batch, count, -1).chunk(2, dim=2)
    out, values = (one.view(batch, count, -1) for one in (out, values))
    _, sums = smooth.forward(
        values, s, t, w, mask, activation, bound, True, slopes=slopes, identity=out, out=out
    )
    return [out, values, scores, *sums, flat, *features[1:]]


def backward(
    grad: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    w: Tensor | None,
    mask: Tensor | None,
    saved: Sequence[Tensor],
    activation: int,
    bound: float,
) -> list[Tensor]:
    """Return the gradients of x, of the weights, of the biases and of w (empty if None)."""
    values, scores, table, top, peaks, flat, *features = saved
    depth = len(features)
    lowered = weights[:-1]
    if flat.numel():
        flat = flat[: sum(one.numel() for one in lowered)]
    identity, context, *layers = _matrices(flat, lowered)
    batch, count, _ = x.shape
    rows = x.reshape(batch * count, -1)
    s, t = scores.view(batch, count, -1).chunk(2, dim=2)
    grad_values, grad_s, grad_t, grad_w = smooth.backward(
        grad, values, s, t, w, mask, Sums(table, top, peaks), activation, bound, True
    )
    grad_f, of_score, of_score_bias, of_bias = score_backward(
        grad_s.flatten(0, 1),
        grad_t.flatten(0, 1),
        scores,
        features[-1],
        weights[-1].flatten(1),
        bound,
    )
    of_weights, of_biases = [of_score], [of_score_bias]
    for place in reversed(range(depth)):
        of_biases.insert(0, of_bias)
        below = features[place - 1] if place else rows
        of_weights.insert(0, _product(grad_f.T, below))
        if place:
            grad_f = torch.ops.aten.threshold_backward(grad_f @ layers[place], below, 0)
            of_bias = grad_f.sum(0, dtype=torch.float32)
    grad, grad_values = (one.reshape(batch * count, -1) for one in (grad, grad_values))
    of_weights = [_product(grad.T, rows), _product(grad_values.T, rows), *of_weights]
    of_x = (grad @ identity).addmm_(grad_values, context).addmm_(grad_f, layers[0])
    nothing = scores.new_empty(0) if grad_w is None else grad_w
    return [of_x.view_as(x), *of_weights, *of_biases, nothing]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32: the gradient of a weight is not rounded on its way to float32."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()


_LIBRARY = torch.library.Library("scaseg", "FRAGMENT")
_LIBRARY.define(
    "block(Tensor x, Tensor[] weights, Tensor[] biases, Tensor? w, Tensor? mask, int activation, "
    "float bound, bool slopes) -> Tensor[]"
)
_LIBRARY.define(
    "block_backward(Tensor grad, Tensor x, Tensor[] weights, Tensor? w, Tensor? mask, "
    "Tensor[] saved, int activation, float bound) -> Tensor[]"
)
for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("block", forward, _device)
    _LIBRARY.impl("block_backward", backward, _device)


@torch.library.register_fake("scaseg::block", lib=_LIBRARY)
def _(x, weights, biases, w, mask, activation, bound, slopes):  # type: ignore[no-untyped-def]
    """Shapes for torch.compile, to which the kernels are closed."""
    batch, count, _ = x.shape
    depth, width, channels = len(biases) - 1, len(weights[1]), len(weights[-1])
    nodes = Nodes.of(activation, bound)
    exp = activation == smooth.EXP
    table = nodes.padded * (1 + (slopes and not exp)), width + 16 - width % 16
    lowered = [*weights[:-1], *biases[:-1]]
    flat = 0 if lowered[0].dtype == x.dtype else sum(one.numel() for one in lowered)
    return [
        x.new_empty((batch, count, width)),
        x.new_empty((batch, count, width)),
        x.new_empty((batch * count, 2 * channels), dtype=torch.float32),
        x.new_empty((batch * channels, *table), dtype=torch.float32),
        x.new_empty((batch, channels), dtype=torch.int64),
        x.new_empty((batch, channels, 2) if exp else (0,), dtype=torch.float32),
        x.new_empty((flat,)),
        *(x.new_empty((batch * count, len(bias))) for bias in biases[:depth]),
    ]


@torch.library.register_fake("scaseg::block_backward", lib=_LIBRARY)
def _(grad, x, weights, w, mask, saved, activation, bound):  # type: ignore[no-untyped-def]
    vectors = [(len(one),) for one in weights[2:]]
    shapes = [*((len(one), one[0].numel()) for one in weights), *vectors]
    shapes.append((0,) if w is None else w.shape)
    return [x.new_empty(x.shape), *(x.new_empty(one, dtype=torch.float32) for one in shapes)]


class KernelBlock(Function):
    """`forward` with its gradients, once differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor | None,
        mask: Tensor | None,
        activation: int,
        bound: float,
        depth: int,
        *parameters: Tensor,
    ) -> Tensor:
        weights, biases = parameters[: depth + 3], parameters[depth + 3 :]
        slopes = any(ctx.needs_input_grad)
        out, *saved = torch.ops.scaseg.block(x, weights, biases, w, mask, activation, bound, slopes)
        if slopes:
            ctx.save_for_backward(x, w, mask, *weights, *saved)
            ctx.options = activation, bound
            ctx.depth = depth
            ctx.shapes = [one.shape for one in parameters]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        check_differentiated_once()
        x, w, mask, *saved = ctx.saved_tensors
        weights, saved = saved[: ctx.depth + 3], saved[ctx.depth + 3 :]
        compiling = torch.compiler.is_compiling()
        compute = torch.ops.scaseg.block_backward if compiling else backward
        of_x, *of_parameters, of_w = compute(grad, x, weights, w, mask, saved, *ctx.options)
        shaped = zip(of_parameters, ctx.shapes, strict=True)
        return (
            of_x,
            None if w is None else of_w,
            None,
            None,
            None,
            None,
            *(one.view(shape) for one, shape in shaped),
        )


def kernel_block(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    *,
    channel_weight: Tensor | None,
    source_mask: Tensor | None,
    activation: str,
    score_bound: float | None,
) -> Tensor:
    """Add its context to every neuron of a map: (B, C, H, W) -> (B, M, H, W), channels last."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    height, width = x.shape[-2:]
    rows = x.flatten(2).transpose(1, 2).contiguous()  # free for channels_last maps
    *matrices, score_weight = weights
    *vectors, score_bias = biases
    w = None if channel_weight is None else channel_weight.float()
    bound = 0.0 if score_bound is None else float(score_bound)
    every = [*matrices, score_weight.float()], [*vectors, score_bias.float()]
    code = CODES[activation]
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        depth = len(vectors)
        out = KernelBlock.apply(rows, w, source_mask, code, bound, depth, *every[0], *every[1])
    else:
        out = forward(rows, *every, w, source_mask, code, bound, slopes=False)[0]
    return out.transpose(1, 2).unflatten(2, (height, width))
