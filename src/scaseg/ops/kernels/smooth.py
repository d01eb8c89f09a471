"""The interpolated context by Triton kernels: bounded sigmoid and softplus, and exp.

The same mathematics as ops/smooth.py, with fixed nodes: in one pass over the sources to the
nodes, in one over the targets; the backward pass takes three. Nothing depends on data, so nothing
waits for the GPU. Parts of a sum are added up in a fixed order: the same inputs give the same
bits. What does not depend on data is worked out once for a size (`Plan`): at small sizes the time
of the host is the time of the block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.kernels import device_backward, device_forward, tiles
from scaseg.ops.kernels.launch import Piece, Pointer, launch
from scaseg.ops.kernels.plan import EXP, Plan, Problem, kept_by, node_table, plan_of, prepare
from scaseg.ops.kernels.support import CODES, check_differentiated_once


class Scores(NamedTuple):
    """Scores of targets and sources where they lie, float32, with strides of image, row, channel.

    peaks, places: what `strongest` gives, if it was done with the scores.
    """

    s: Pointer
    t: Pointer
    strides: tuple[int, ...]
    peaks: Piece | None = None
    places: Piece | None = None


def forward(
    plan: Plan,
    values: Tensor,
    scores: Scores,
    w: Tensor | None,
    mask: Tensor | None,
    *,
    scratch: Tensor | None = None,
    identity: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the context (B, target, M), plus `identity`, and what to keep.

    values (B, source, M), its features side by side; w (R,); mask (B, source). out may be
    `identity` itself.
    """
    problem, nodes = plan.problem, plan.nodes
    batch, targets, sources, features, channels = problem[:5]
    if scratch is None:
        scratch = new_buffer(plan.scratch.total, values)
    kept = new_buffer(plan.kept.total, values)
    totals, means, top, peaks = plan.kept.of(kept)
    parts, part_peaks, part_places = plan.scratch.of(scratch)
    table = node_table(nodes, values.device)
    masked = values if mask is None else mask.view(torch.uint8)
    dtypes = (values.dtype,)
    if scores.peaks is None and (problem.own or problem.activation == EXP):
        launch(
            device_forward.strongest,
            (plan.blocks, batch * channels, 1),
            (part_peaks, part_places, scores.t, masked),
            (),
            (sources, plan.blocks, *scores.strides[3:]),
            plan.constants["strongest"],
            dtypes=(masked.dtype,),
        )
    pairs = batch * channels
    chunks, chunk = plan.source_chunks
    launch(
        device_forward.sources_to_nodes,
        (chunks, plan.source_tiles, pairs),
        (parts, top, peaks, values, scores.s, scores.t, masked, part_peaks, part_places, table),
        (features, plan.padded, *values.stride()[:2]),
        (sources, nodes.used, chunk, plan.blocks, *scores.strides, problem.bound),
        plan.constants["sources_to_nodes"],
        dtypes=dtypes,
        **plan.shape_of("sources_to_nodes"),
    )
    launch(
        device_forward.finish_sums,
        (nodes.padded, pairs, -(-features // plan.finish)),
        (means, totals, parts),
        (features, plan.padded),
        (chunks,),
        plan.constants["finish"],
        dtypes=(plan.table_dtype,),
    )
    if out is None:
        out = values.new_empty((batch, targets, features))
    added = out if identity is None else identity
    launch(
        device_forward.nodes_to_targets,
        (-(-targets // plan.tiles["nodes_to_targets"].rows), batch, 1),
        (out, added, values, scores.s, scores.t, masked, top, peaks, scores.s if w is None else w,
         table, totals, means),
        (features, plan.padded, *out.stride()[:2], *added.stride()[:2], *values.stride()[:2]),
        (targets, nodes.used, *scores.strides, nodes.half, problem.bound),
        plan.adding[identity is not None],
        dtypes=dtypes,
        **plan.shape_of("nodes_to_targets"),
    )  # fmt: skip
    return out, kept


class Gradients:
    """The backward pass: of scores and weights at once, of values a stretch of rows at a time."""

    def __init__(
        self,
        plan: Plan,
        grad: Tensor,
        values: Tensor,
        scores: Scores,
        w: Tensor | None,
        mask: Tensor | None,
        kept: Tensor,
    ) -> None:
        problem, nodes = plan.problem, plan.nodes
        batch, targets, _, features, channels = problem[:5]
        totals, means, top, peaks = plan.kept.of(kept)
        self.buffer = buffer = new_buffer(plan.gradient.total, values)
        grad_s, share, pull, own_grad_t, grad_w, left_out, parts, pulls, shifts = plan.gradient.of(
            buffer
        )
        table = node_table(nodes, values.device)
        masked = values if mask is None else mask.view(torch.uint8)
        self.dtypes = values.dtype, grad.dtype
        lines, grad_lines = values.stride()[:2], grad.stride()[:2]
        launch(
            device_backward.target_gradients,
            (-(-targets // plan.tiles["target_gradients"].rows), batch, 1),
            (grad_s, own_grad_t, grad_w, share, pull, left_out, grad, values, scores.s, scores.t,
             masked, top, peaks, scores.s if w is None else w, table, totals, means),
            (features, plan.padded, *grad_lines, *lines),
            (targets, nodes.used, *scores.strides, nodes.half, problem.bound),
            plan.constants["target_gradients"],
            dtypes=self.dtypes,
            **plan.shape_of("target_gradients"),
        )  # fmt: skip
        pairs, chunks = batch * channels, plan.target_chunks[0]
        launch(
            device_backward.targets_to_nodes,
            (chunks, plan.target_tiles, pairs),
            (parts, grad, scores.s, share, pull, top, table),
            (features, plan.padded, *grad_lines),
            (targets, nodes.used, plan.target_chunks[1], *scores.strides[:3], nodes.half,
             problem.bound),
            plan.constants["targets_to_nodes"],
            dtypes=self.dtypes,
            **plan.shape_of("targets_to_nodes"),
        )  # fmt: skip
        launch(
            device_backward.finish_pulls,
            (nodes.padded, pairs, 1),
            (pulls, shifts, parts, totals, means),
            (features, plan.padded),
            (chunks,),
            plan.constants["finish_pulls"],
            dtypes=(plan.table_dtype,),
            warps=8,
        )
        self.plan, self.grad_s, self.of_w = plan, grad_s, grad_w
        self.pointers = (own_grad_t, left_out, grad, values, scores.s, scores.t, masked, top,
                         peaks, table, pulls, shifts)  # fmt: skip
        self.lines = *grad_lines, *lines
        self.strides = scores.strides

    def sources(
        self,
        grad_values: Tensor,
        grad_t: Tensor,
        images: tuple[int, int],
        rows: tuple[int, int],
        copy: Tensor | None = None,
    ) -> None:
        """Write the gradients of the sources `rows` of `images`: from, to.

        grad_values (rows, M), its features side by side; grad_t (B, source, R), all of it. copy:
        where the gradient of the context is copied to, as wide as grad_values.
        """
        plan, problem = self.plan, self.plan.problem
        lines = -(-(rows[1] - rows[0]) // plan.tiles["source_gradients"].rows)
        start = images[0] * problem.sources + rows[0]
        launch(
            device_backward.source_gradients,
            (lines, images[1] - images[0], 1),
            (grad_values, grad_values if copy is None else copy, grad_t, *self.pointers),
            (problem.features, plan.padded, grad_values.stride(0), *self.lines),
            (problem.sources, plan.nodes.used, *rows, images[0], start, *self.strides,
             problem.bound),
            plan.copying[copy is not None],
            dtypes=self.dtypes,
            **plan.shape_of("source_gradients"),
        )  # fmt: skip

    def of_scores(self) -> Tensor:
        """(B, target, R)."""
        problem = self.plan.problem
        shape = problem.batch, problem.targets, problem.channels
        return self.grad_s.tensor()[: math.prod(shape)].view(shape)

    def of_weights(self) -> Tensor | None:
        """(R,)."""
        problem = self.plan.problem
        if not problem.weighted:
            return None
        shape = problem.batch * problem.targets, problem.channels
        return self.of_w.tensor()[: math.prod(shape)].view(shape).sum(0)


def new_buffer(count: int, like: Tensor) -> Tensor:
    """Uninitialized float32 memory."""
    return torch.empty(count, dtype=torch.float32, device=like.device)


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
    grads = Gradients(plan, grad, values, scores, w, mask, kept)
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
    code, bound = CODES[activation], 0.0 if score_bound is None else float(score_bound)
    mask = None if source_mask is None else source_mask.contiguous()  # not one row for all images
    if torch.compiler.is_compiling():
        prepare(code, bound, values.device.type, values.device.index)
    return KernelContext.apply(values, s.float(), t.float(), w, mask, code, bound, exclude_self)
