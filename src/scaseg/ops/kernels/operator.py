"""The operator by Triton kernels, as a function of autograd and an operation for torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.exact import one_channel
from scaseg.ops.kernels import relu, smooth, tiles
from scaseg.ops.kernels.plan import RELU, Problem, kept_by, plan_of, prepare
from scaseg.ops.kernels.smooth import Gradients, Scores
from scaseg.ops.kernels.support import CODES, check_differentiated_once
from scaseg.ops.scores import Scores as ScoreChannels


def passes_of(activation: int) -> tuple[Callable[..., tuple[Tensor, Tensor]], type[Gradients]]:
    """The forward and the backward pass of an activation."""
    if activation == RELU:
        return relu.forward, relu.SortedGradients
    return smooth.forward, Gradients


def problem_of(
    values: Tensor,
    s: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    activation: int,
    bound: float,
    own: bool,
    slopes: bool,
) -> Problem:
    """The problem of values (B, source, M) and target scores (B, target, R)."""
    batch, sources, features = values.shape
    targets, channels = s.shape[1:]
    options = activation, bound, own, mask is not None, w is not None, slopes
    return Problem(
        batch, targets, sources, features, channels, *options, values.dtype, values.device
    )


_LIBRARY = torch.library.Library("scaseg", "FRAGMENT")
_LIBRARY.define(
    "context(Tensor values, Tensor s, Tensor t, Tensor? w, Tensor? mask, int activation, "
    "float bound, bool own, bool slopes) -> (Tensor, Tensor)"
)
_LIBRARY.define(
    "context_backward(Tensor grad, Tensor values, Tensor s, Tensor t, Tensor? w, Tensor? mask, "
    "Tensor kept, int activation, float bound, bool own) -> (Tensor, Tensor, Tensor, Tensor)"
)


def _context(
    values: Tensor,
    s: Tensor,
    t: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    activation: int,
    bound: float,
    own: bool,
    slopes: bool,
) -> tuple[Tensor, Tensor]:
    plan = plan_of(problem_of(values, s, w, mask, activation, bound, own, slopes))
    scores = Scores(s, t, (*s.stride(), *t.stride()))
    forward, _ = passes_of(activation)
    return forward(plan, tiles.rows_contiguous(values), scores, w, mask)


def _context_backward(
    grad: Tensor,
    values: Tensor,
    s: Tensor,
    t: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    kept: Tensor,
    activation: int,
    bound: float,
    own: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    plan = plan_of(problem_of(values, s, w, mask, activation, bound, own, True))
    scores = Scores(s, t, (*s.stride(), *t.stride()))
    grad, values = tiles.rows_contiguous(grad), tiles.rows_contiguous(values)
    grads = passes_of(activation)[1](plan, grad, values, scores, w, mask, kept)
    batch, sources, features = values.shape
    grad_values = values.new_empty((batch, sources, features))
    grad_t = s.new_empty((batch, sources, s.shape[2]))
    grads.sources(grad_values.view(-1, features), grad_t, (0, batch), (0, sources))
    grad_w = grads.of_weights()
    of_s = grads.of_scores().clone()  # what is returned must not hold the whole buffer
    return grad_values, of_s, grad_t, s.new_empty(0) if grad_w is None else grad_w


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("context", _context, _device)
    _LIBRARY.impl("context_backward", _context_backward, _device)


@torch.library.register_fake("scaseg::context", lib=_LIBRARY)
def _(values, s, t, w, mask, activation, bound, own, slopes):  # type: ignore[no-untyped-def]
    """Shapes for torch.compile, to which the kernels are closed."""
    problem = problem_of(values, s, w, mask, activation, bound, own, slopes)
    out = values.new_empty((values.shape[0], s.shape[1], values.shape[2]))
    return out, s.new_empty((kept_by(problem).total,))


@torch.library.register_fake("scaseg::context_backward", lib=_LIBRARY)
def _(grad, values, s, t, w, mask, kept, activation, bound, own):  # type: ignore[no-untyped-def]
    grads = (values.new_empty(values.shape), s.new_empty(s.shape), s.new_empty(t.shape))
    return *grads, s.new_empty(s.shape[2:] if w is not None else (0,))


class KernelContext(Function):
    """`forward` with its gradients, once differentiable; second derivatives: backend="linear"."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        s: Tensor,
        t: Tensor,
        w: Tensor | None,
        mask: Tensor | None,
        activation: int,
        bound: float,
        own: bool,
    ) -> Tensor:
        slopes = any(ctx.needs_input_grad)
        # a registered operation is closed to the compiler, but doubles the time of a small call
        compute = torch.ops.scaseg.context if torch.compiler.is_compiling() else _context
        context, kept = compute(values, s, t, w, mask, activation, bound, own, slopes)
        ctx.save_for_backward(values, s, t, w, mask, kept)
        ctx.options = activation, bound, own
        return context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        check_differentiated_once()
        values, s, t, w, *rest = ctx.saved_tensors
        compiling = torch.compiler.is_compiling()
        compute = torch.ops.scaseg.context_backward if compiling else _context_backward
        grads = compute(grad, values, s, t, w, *rest, *ctx.options)
        grad_w = None if w is None else grads[3]
        return *grads[:3], grad_w, None, None, None, None


def kernel_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: str,
    channel_weight: Tensor | None,
    exclude_self: bool,
    source_mask: Tensor | None,
    score_bound: float | None,
) -> Tensor:
    """`selective_context` by these kernels, for what is not `unsupported`."""
    s, t = (x.unsqueeze(-1) if x.dim() == 2 else x for x in (target_score, source_score))
    w = None if channel_weight is None else channel_weight.float()
    mask = None if source_mask is None else source_mask.contiguous()  # not one row for all images
    if activation in ("identity", "relu") and (w is not None or s.shape[2] > 1):
        # both are homogeneous: a weight may go into the scores
        hidden = t if mask is None else t.masked_fill(~mask.unsqueeze(-1), 0)  # NaN, if anything
        channels = s.transpose(1, 2), hidden.transpose(1, 2), ACTIVATIONS[activation], w
        joined = one_channel(ScoreChannels(*channels, source_mask=mask))
        s, t = (one.unsqueeze(-1) for one in joined)
        w = None
    code, bound = CODES[activation], 0.0 if score_bound is None else float(score_bound)
    if torch.compiler.is_compiling():
        prepare(code, bound, values.device.type, values.device.index)
    return KernelContext.apply(values, s.float(), t.float(), w, mask, code, bound, exclude_self)
