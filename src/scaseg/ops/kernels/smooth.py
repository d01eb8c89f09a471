"""The interpolated context by Triton kernels: bounded sigmoid and softplus, and exp.

The same mathematics as ops/smooth.py, with fixed nodes: in one pass over the sources to the
nodes, in one over the targets; the backward pass takes three. Nothing depends on data, so nothing
waits for the GPU. In between torch adds up the parts of the table, in a fixed order: the same
inputs give the same bits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.chebyshev import TOLERANCE, node_count
from scaseg.ops.kernels import device
from scaseg.ops.kernels.launch import launch
from scaseg.ops.kernels.support import CODES, check_differentiated_once
from scaseg.ops.kernels.tiles import (
    BLOCK,
    chunks_of,
    features_of_a_tile,
    is_split,
    rows_contiguous,
)

EXP = CODES["exp"]


class Nodes(NamedTuple):
    """The nodes of a bound: how many, padded to a power of two with room for the top row."""

    used: int
    padded: int
    half: float

    @staticmethod
    @lru_cache
    def of(activation: int, bound: float) -> Nodes:
        half = max(bound, 1.0)
        count = 1 if activation == EXP else node_count(half, TOLERANCE[torch.float32])
        return Nodes(count, max(16, 1 << count.bit_length()), half)


@lru_cache(maxsize=64)
def _node_table(nodes: Nodes, place: torch.device) -> Tensor:
    """Nodes in two float32 parts, barycentric weights, scores: (4, padded)."""
    angle = (torch.arange(nodes.padded, dtype=torch.float64) + 0.5) * (math.pi / nodes.used)
    used = torch.arange(nodes.padded) < nodes.used
    node = torch.where(used, torch.cos(angle), 2.0)
    sign = 1 - 2 * (torch.arange(nodes.padded) % 2)
    weight = torch.where(used, torch.sin(angle) * sign, 0.0)
    high = node.float()
    parts = [high, (node - high.double()).float(), weight.float(), (node * nodes.half).float()]
    return torch.stack(parts).to(place)


class Sums(NamedTuple):
    """What the forward pass leaves for the backward pass."""

    table: Tensor  # (B * R, rows, MP)
    top: Tensor  # (B, R): the strongest source
    peaks: Tensor  # (B, R, 2): the two largest scores; for exp


def forward(
    values: Tensor,
    s: Tensor,
    t: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    activation: int,
    bound: float,
    own: bool,
    *,
    slopes: bool,
    identity: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Sums]:
    """Return the context (B, target, M), plus `identity`, and the table.

    values (B, source, M); s (B, target, R), t (B, source, R), float32; w (R,); mask (B, source).
    slopes: whether a backward pass will follow. out may be identity itself.
    """
    batch, sources, features = values.shape
    targets, channels = s.shape[1:]
    nodes = Nodes.of(activation, bound)
    values = rows_contiguous(values)
    slopes = slopes and activation != EXP
    top = peaks = s.new_empty(0)  # not read unless needed
    if own or activation == EXP:
        score = t if mask is None else t.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        if activation == EXP:
            few = min(2, sources)
            peaks, place = score.topk(few, dim=1)
            peaks = torch.nn.functional.pad(peaks.transpose(1, 2), (0, 2 - few))
            peaks = peaks.masked_fill(peaks == -torch.inf, 0).contiguous()
            top = place[:, 0].contiguous()
        else:
            top = score.argmax(1)
    shared = _shared(activation, own, mask, channels, nodes)
    scores = (*s.stride(), *t.stride())
    padded = features + 16 - features % 16
    rows = nodes.padded * (1 + slopes)
    block_m = features_of_a_tile(features)
    tiles = -(-features // block_m)
    chunks, chunk = chunks_of(sources, tiles * batch * channels)
    parts = s.new_empty((chunks, batch * channels, rows, padded))
    table = _node_table(nodes, values.device)
    masked = values if mask is None else mask.view(torch.uint8)
    how: dict[str, Any] = {
        "dtypes": (values.dtype, top.dtype),
        "warps": 8 if nodes.padded > 16 else 4,
    }
    lines = values.stride()[:2]
    launch(
        device.sources_to_nodes,
        (chunks, tiles, batch * channels),
        (parts, values, s, t, masked, top, peaks, table),
        (features, padded, *lines),
        (sources, nodes.used, chunk, *scores, bound),
        shared | {"SLOPES": slopes, "SPLIT": is_split(values), "BLOCK": BLOCK, "BLOCK_M": block_m},
        **how,
    )
    sums = parts.sum(0) if chunks > 1 else parts[0]
    if out is None:
        out = values.new_empty((batch, targets, features))
    added = out if identity is None else identity
    constants = {"HAS_W": w is not None, "ADD": identity is not None, "BLOCK": BLOCK}
    launch(
        device.nodes_to_targets,
        (-(-targets // BLOCK), batch, 1),
        (out, added, values, s, t, masked, top, peaks, s if w is None else w, table, sums),
        (features, padded, *out.stride()[:2], *added.stride()[:2], *lines),
        (targets, nodes.used, rows, *scores, nodes.half, bound),
        shared | constants | {"BLOCK_M": min(block_m, 64)},
        **how,
    )
    return out, Sums(sums, top, peaks)


def backward(
    grad: Tensor,
    values: Tensor,
    s: Tensor,
    t: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    sums: Sums,
    activation: int,
    bound: float,
    own: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of values, s, t and w."""
    batch, sources, features = values.shape
    targets, channels = s.shape[1:]
    nodes = Nodes.of(activation, bound)
    values, grad = rows_contiguous(values), rows_contiguous(grad)
    shared = _shared(activation, own, mask, channels, nodes)
    scores = (*s.stride(), *t.stride())
    padded = sums.table.shape[-1]
    table = _node_table(nodes, values.device)
    masked = values if mask is None else mask.view(torch.uint8)
    block_m = features_of_a_tile(features)
    grad_s, share, pull = s.new_empty((3, batch, targets, channels)).unbind()
    own_grad_t = torch.empty_like(pull) if own else pull
    left_out = s.new_empty((batch, targets)) if own else pull
    grad_w = torch.empty_like(pull) if w is not None else pull
    how: dict[str, Any] = {
        "dtypes": (values.dtype, grad.dtype, sums.top.dtype),
        "warps": 8 if nodes.padded > 16 else 4,
    }
    lines, grad_lines = values.stride()[:2], grad.stride()[:2]
    tile = {"BLOCK": BLOCK, "BLOCK_M": min(block_m, 64)}
    launch(
        device.target_gradients,
        (-(-targets // BLOCK), batch, 1),
        (grad_s, own_grad_t, grad_w, share, pull, left_out, grad, values, s, t, masked, sums.top,
         sums.peaks, s if w is None else w, table, sums.table),
        (features, padded, *grad_lines, *lines),
        (targets, nodes.used, *scores, nodes.half, bound),
        shared
        | {"RP": 1 << (channels - 1).bit_length(), "HAS_W": w is not None, "SPLIT": is_split(grad)}
        | tile,
        **how,
    )  # fmt: skip
    tiles = -(-features // block_m)
    chunks, chunk = chunks_of(targets, tiles * batch * channels)
    parts = s.new_empty((chunks, batch * channels, nodes.padded, padded))
    constants = {name: shared[name] for name in ("R", "KP", "OWN", "ACT")}
    launch(
        device.targets_to_nodes,
        (chunks, tiles, batch * channels),
        (parts, grad, s, share, pull, sums.top, table),
        (features, padded, *grad_lines),
        (targets, nodes.used, chunk, *s.stride(), nodes.half, bound),
        constants | {"SPLIT": is_split(grad), "BLOCK": BLOCK, "BLOCK_M": block_m},
        **how,
    )
    pulls = parts.sum(0) if chunks > 1 else parts[0]
    grad_values = torch.empty_like(values, memory_format=torch.contiguous_format)
    grad_t = s.new_empty((batch, sources, channels))
    launch(
        device.source_gradients,
        (-(-sources // BLOCK), batch, 1),
        (grad_values, grad_t, own_grad_t, left_out, grad, values, s, t, masked, sums.top,
         sums.peaks, table, sums.table, pulls),
        (features, padded, *grad_values.stride()[:2], *grad_lines, *lines),
        (sources, nodes.used, *scores, bound),
        shared | {"SPLIT": is_split(values)} | tile,
        **how,
    )  # fmt: skip
    return grad_values, grad_s, grad_t, grad_w.sum((0, 1)) if w is not None else None


def _shared(
    activation: int, own: bool, mask: Tensor | None, channels: int, nodes: Nodes
) -> dict[str, Any]:
    """Compile-time constants that most kernels take."""
    return {
        "R": channels,
        "KP": nodes.padded,
        "OWN": own,
        "HAS_MASK": mask is not None,
        "ACT": activation,
    }


_LIBRARY = torch.library.Library("scaseg", "FRAGMENT")
_LIBRARY.define(
    "context(Tensor values, Tensor s, Tensor t, Tensor? w, Tensor? mask, int activation, "
    "float bound, bool own, bool slopes) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.define(
    "context_backward(Tensor grad, Tensor values, Tensor s, Tensor t, Tensor? w, Tensor? mask, "
    "Tensor table, Tensor top, Tensor peaks, int activation, float bound, bool own) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    context, sums = forward(values, s, t, w, mask, activation, bound, own, slopes=slopes)
    return context, *sums


def _context_backward(
    grad: Tensor,
    values: Tensor,
    s: Tensor,
    t: Tensor,
    w: Tensor | None,
    mask: Tensor | None,
    table: Tensor,
    top: Tensor,
    peaks: Tensor,
    activation: int,
    bound: float,
    own: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sums = Sums(table, top, peaks)
    *grads, grad_w = backward(grad, values, s, t, w, mask, sums, activation, bound, own)
    return grads[0], grads[1], grads[2], s.new_empty(0) if grad_w is None else grad_w


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("context", _context, _device)
    _LIBRARY.impl("context_backward", _context_backward, _device)


@torch.library.register_fake("scaseg::context", lib=_LIBRARY)
def _(values, s, t, w, mask, activation, bound, own, slopes):  # type: ignore[no-untyped-def]
    """Shapes for torch.compile, to which the kernels are closed."""
    batch, _, features = values.shape
    nodes, channels = Nodes.of(activation, bound), s.shape[2]
    rows = nodes.padded * (1 + (slopes and activation != EXP))
    known = own or activation == EXP
    return (
        values.new_empty((batch, s.shape[1], features)),
        s.new_empty((batch * channels, rows, features + 16 - features % 16)),
        s.new_empty((batch, channels) if known else (0,), dtype=torch.int64 if known else s.dtype),
        s.new_empty((batch, channels, 2) if activation == EXP else (0,)),
    )


@torch.library.register_fake("scaseg::context_backward", lib=_LIBRARY)
def _(grad, values, s, t, w, mask, table, top, peaks, activation, bound, own):  # type: ignore[no-untyped-def]
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
        context, *sums = compute(values, s, t, w, mask, activation, bound, own, slopes)
        ctx.save_for_backward(values, s, t, w, mask, *sums)
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
    return KernelContext.apply(
        values, s.float(), t.float(), w, source_mask, code, bound, exclude_self
    )
