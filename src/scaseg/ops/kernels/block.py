"""A whole selective-context block in few launches: matrix products and the kernels beside it.

What nn.SelectiveContext computes layer by layer, for a map that is its own source:

    out = x W_d' + context(x W_c', scores(relu(... relu(x W_1' + b_1) ...)))

The matrix products are torch's, bias and ReLU in their epilogue; `scores` and `smooth` do the
rest. One autograd node instead of dozens: at the paper's sizes the block is bound by launches.
Large maps are bound by memory: beyond WHOLE neurons the backward pass goes through the map in
stretches, in which the predictor's features are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.kernels.flat import Layout, Matrix, layout_of
from scaseg.ops.kernels.launch import Piece
from scaseg.ops.kernels.operator import passes_of
from scaseg.ops.kernels.plan import Problem, kept_by, plan_of, prepare
from scaseg.ops.kernels.scores import LayerSums, lower, score, scores_of
from scaseg.ops.kernels.smooth import new_buffer
from scaseg.ops.kernels.support import CODES, check_differentiated_once

WHOLE = 1 << 17  # neurons of a batch whose features are all kept
STRETCH = 1 << 16
JOINED = 1 << 15  # neurons up to which a launch less counts more than memory


def _problem(
    x: Tensor,
    weights: Sequence[Tensor],
    w: Tensor | None,
    mask: Tensor | None,
    activation: int,
    bound: float,
    slopes: bool,
) -> Problem:
    batch, count, _ = x.shape
    features, pairs = weights[1].shape[0], weights[-1].shape[0]
    known = mask is not None, w is not None, slopes
    sizes = batch, count, count, features, pairs
    return Problem(*sizes, activation, bound, True, *known, x.dtype, x.device)


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
    batch, count, channels = x.shape
    rows = x.view(batch * count, channels)
    layout = layout_of(weights[:-1])
    plan = plan_of(_problem(x, weights, w, mask, activation, bound, slopes))
    flat = lower((*weights[:-1], *biases[:-1]), x.dtype)
    features = _features(rows, flat, layout, keep=slopes and len(rows) <= WHOLE)
    identity, context = layout.matrices[:2]
    width = identity.out
    out = None
    if len(rows) <= JOINED:  # one product for both, and half of it lies idle afterwards
        both = Matrix(0, 2 * width, channels).transposed(flat)
        joined = torch.mm(rows, both).view(batch, count, 2 * width)
        own, values = joined.split_with_sizes([width, width], 2)
    else:
        own = out = torch.mm(rows, identity.transposed(flat)).view(batch, count, width)
        values = torch.mm(rows, context.transposed(flat)).view(batch, count, width)
    scratch = new_buffer(plan.scratch.total, x)
    scores, pointers = score(plan, features[-1], weights[-1], biases[-1], mask, scratch)
    out, kept = passes_of(activation)[0](
        plan, values, pointers, w, mask, scratch=scratch, identity=own, out=out
    )
    return [out, values, scores, kept, flat, features]


def _features(rows: Tensor, flat: Tensor, layout: Layout, *, keep: bool) -> Tensor:
    """The features (layers, N, K) of all layers, or of the last alone (1, N, K)."""
    layers = layout.matrices[2:]
    found = rows.new_empty((len(layers), len(rows), layers[-1].out)) if keep else None
    for number, (layer, start) in enumerate(zip(layers, layout.biases, strict=True)):
        bias, weight = flat.narrow(0, start, layer.out), layer.transposed(flat)
        if found is None:
            rows = torch._addmm_activation(bias, rows, weight)
        else:
            rows = torch._addmm_activation(bias, rows, weight, out=found[number])
    return rows.unsqueeze(0) if found is None else found


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
    """Return the gradients of x, of the matrices, of the score and all biases, of w.

    Matrices one below the other where one product gave them, or one after the other: `_split`
    takes them apart. The gradients of the score's weight (R, 2K), its bias and the layers' biases
    are one vector; that of w is empty if w is None.
    """
    values, scores, kept, flat, features = saved
    batch, count, channels = x.shape
    layout = layout_of(weights[:-1])
    plan = plan_of(_problem(x, weights, w, mask, activation, bound, True))
    pairs = plan.problem.channels
    layers = layout.matrices[2:]
    width, depth, hidden = layout.matrices[0].out, len(layers), layers[0].out
    x = x.view(batch * count, channels)
    of_context = passes_of(activation)[1]
    grads = of_context(plan, grad, values, scores_of(plan, scores), w, mask, kept)
    grad_t = new_buffer(batch * count * pairs, x)
    stretches = _stretches(batch, count)
    most = max((b - a) * (stop - start) for a, b, start, stop in stretches)
    sums = LayerSums(plan, [hidden] * depth, len(stretches), most)
    # W_d, W_c and the first layer's weight lie one below the other: one product for all three,
    # if the gradient is copied beside those of values and features; that pays for small maps
    copied = width if batch * count <= min(JOINED, WHOLE) else 0
    identity = layout.matrices[0]
    below_it = Matrix(identity.out * channels, width + hidden, channels)
    joined = (Matrix(0, 2 * width + hidden, channels) if copied else below_it).of(flat)
    of_x = None
    of_weights: list[Tensor] = []
    for number, (first, last, start, stop) in enumerate(stretches):
        begin, end = first * count + start, (last - 1) * count + stop
        if batch * count <= WHOLE:
            x_here, top, made = x, features[-1], features[: depth - 1]
        else:
            below = Layout(layout.matrices[:-1], layout.biases[:-1], layout.total)
            x_here, top = x[begin:end], features[0, begin:end]
            made = _features(x_here, flat, below, keep=True) if depth > 1 else features[:0]
        # side by side: the gradient, that of the values, that of the first layer's features
        pulled = x.new_empty((end - begin, copied + width + hidden))
        of_values, of_first = pulled[:, copied:], pulled[:, copied + width :]
        copy = pulled if copied else None
        grads.sources(of_values, grad_t, (first, last), (start, stop), copy=copy)
        # gradients of the features: all of them where one product does for all weights, else in two
        # places by turns, the last in `pulled`
        stacked = x.new_empty((depth - 1 if copied else min(1, depth - 1), end - begin, hidden))
        places = [of_first, *stacked] if copied else [of_first, *stacked] * depth
        of_f = places[depth - 1]
        sums.score_backward(
            number,
            of_f,
            Piece.of(grads.buffer, grads.grad_s.offset + begin * pairs),
            Piece.of(grad_t, begin * pairs),
            Piece.of(scores, begin * 2 * pairs),
            top,
            weights[-1],
        )
        here: list[Tensor] = []
        for layer in range(depth - 1, 0, -1):
            if not copied:
                here.insert(0, _product(of_f.T, made[layer - 1]))
            of_f = torch.mm(of_f, layers[layer].of(flat), out=places[layer - 1])
            sums.relu_backward(number, layer - 1, of_f, made[layer - 1])
        if copied and depth > 1:
            here.append(_products(stacked.mT, made))
        del stacked, places, of_f
        here.insert(0, _product(pulled.T, x_here))
        if not copied:
            grad_here = grad.view(batch * count, width)[begin:end]
            here.insert(0, _product(grad_here.T, x_here))
        for total, one in zip(of_weights, here, strict=False):  # of_weights: empty at first
            total.add_(one)
        of_weights = of_weights or here
        if copied:
            of_x = torch.mm(pulled, joined)
        else:
            of_x = torch.empty_like(x) if of_x is None else of_x
            of_here = torch.mm(grad_here, identity.of(flat), out=of_x[begin:end])
            of_here.addmm_(pulled, joined)
    assert of_x is not None
    of_w = grads.of_weights()
    nothing = scores.new_empty(0) if of_w is None else of_w
    return [of_x.view(batch, count, channels), *of_weights, sums.totals(), nothing]


def _split(
    products: Sequence[Tensor], sums: Tensor, shapes: Sequence[torch.Size], depth: int
) -> list[Tensor]:
    """The gradients of all parameters, of these shapes, from those that `backward` gives."""
    found: list[Tensor] = []
    for product in products:
        shape = shapes[len(found)]
        if product.dim() == 3:  # of all layers but the first
            found += product.view(-1, *shape).unbind()
            continue
        below, rows = len(found), 0  # how many lie one below the other
        while rows < len(product):
            rows += shapes[below][0]
            below += 1
        sizes = [one[0] for one in shapes[len(found) : below]]
        found += product.view(-1, *shape[1:]).split_with_sizes(sizes)
    of_score, shapes_of_biases = shapes[depth + 2], shapes[depth + 3 :]
    widths = [one[0] for one in shapes_of_biases]
    score, score_bias, *biases = sums.split_with_sizes([of_score.numel(), widths[-1], *widths[:-1]])
    return [*found, score.view(of_score), *biases, score_bias]


def _stretches(batch: int, count: int) -> list[tuple[int, int, int, int]]:
    """Stretches of a map: first and last image, first and last neuron, the last ones excluded."""
    if batch * count <= WHOLE:
        return [(0, batch, 0, count)]
    images = max(1, STRETCH // count)
    return [
        (first, min(first + images, batch), start, min(start + STRETCH, count))
        for first in range(0, batch, images)
        for start in range(0, count, STRETCH)
    ]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32: the gradient of a weight is not rounded on its way to float32."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    return (a @ b).float()


def _products(a: Tensor, b: Tensor) -> Tensor:
    """`_product` of several pairs of matrices."""
    if a.dtype == torch.float32:
        return a @ b
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=torch.float32)
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
    problem = _problem(x, weights, w, mask, activation, bound, slopes)
    layout = layout_of(weights[:-1])
    keep = slopes and batch * count <= WHOLE
    layers, features = layout.matrices[2:], problem.features
    values = x.new_empty((batch, count, features))
    if batch * count <= JOINED:
        values = x.new_empty((batch, count, 2 * features))[..., features:]
    return [
        x.new_empty((batch, count, features)),
        values,
        x.new_empty((batch * count * 2 * problem.channels,), dtype=torch.float32),
        x.new_empty((kept_by(problem).total,), dtype=torch.float32),
        x.new_empty((layout.total,)),
        x.new_empty((len(layers) if keep else 1, batch * count, layers[-1].out)),
    ]


@torch.library.register_fake("scaseg::block_backward", lib=_LIBRARY)
def _(grad, x, weights, w, mask, saved, activation, bound):  # type: ignore[no-untyped-def]
    batch, count, channels = x.shape
    width, hidden, layers = len(weights[0]), len(weights[2]), weights[3:-1]
    shapes: list[tuple[int, ...]]
    if batch * count <= min(JOINED, WHOLE):
        shapes = [(2 * width + hidden, channels)]
        shapes += [(len(layers), hidden, hidden)] if layers else []
    else:
        shapes = [(width, channels), (width + hidden, channels), *[(hidden, hidden)] * len(layers)]
    shapes.append((weights[-1].numel() + sum(len(one) for one in weights[2:]),))
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
        # a registered operation is closed to the compiler, but costs a small call time
        compute = torch.ops.scaseg.block if torch.compiler.is_compiling() else forward
        out, *saved = compute(x, weights, biases, w, mask, activation, bound, slopes)
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
        of_x, *products, sums, of_w = compute(
            grad.contiguous(), x, weights, w, mask, saved, *ctx.options
        )
        return (
            of_x,
            None if w is None else of_w,
            None,
            None,
            None,
            None,
            *_split(products, sums, ctx.shapes, ctx.depth),
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
    mask = None if source_mask is None else source_mask.contiguous()  # not one row for all images
    bound = 0.0 if score_bound is None else float(score_bound)
    every = [*matrices, score_weight.float()], [*vectors, score_bias.float()]
    code = CODES[activation]
    if torch.compiler.is_compiling():
        prepare(code, bound, kind, x.device.index)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        depth = len(vectors)
        out = KernelBlock.apply(rows, w, mask, code, bound, depth, *every[0], *every[1])
    else:
        out = forward(rows, *every, w, mask, code, bound, slopes=False)[0]
    # views outside of the step of autograd: what follows may change the result in place
    return out.transpose(1, 2).unflatten(2, (height, width))
