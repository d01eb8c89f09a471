"""The interpolated context by Triton kernels: bounded sigmoid and softplus, exp; and the identity.

The same mathematics as ops/smooth.py, with fixed nodes: in one pass over the sources to the
nodes, in one over the targets; the backward pass takes three. Nothing depends on data, so nothing
waits for the GPU. Parts of a sum are added up in a fixed order: the same inputs give the same
bits. What does not depend on data is worked out once for a size (`Plan`): at small sizes the time
of the host is the time of the block.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.kernels import device_backward, device_forward
from scaseg.ops.kernels.launch import Piece, Pointer, launch
from scaseg.ops.kernels.plan import EXP, Plan, node_table


class Scores(NamedTuple):
    """Scores of targets and sources where they lie, float32, with strides of image, row, channel.

    peaks, places: what `strongest` gives, if it was done with the scores.
    """

    s: Pointer
    t: Pointer
    strides: tuple[int, ...]
    peaks: Piece | None = None
    places: Piece | None = None

    def of_targets(self, batch: int, count: int) -> Tensor:
        """The first channel's s (B, target)."""
        return _view(self.s, (batch, count), self.strides[:2])

    def of_sources(self, batch: int, count: int) -> Tensor:
        """The first channel's t (B, source)."""
        return _view(self.t, (batch, count), self.strides[3:5])


def _view(scores: Pointer, shape: tuple[int, int], strides: tuple[int, ...]) -> Tensor:
    if isinstance(scores, Piece):
        return scores.buffer.as_strided(shape, strides, scores.offset)
    return scores[..., 0]


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
    totals, means, top, peaks, quotients = plan.kept.of(kept)
    parts, part_peaks, part_places = plan.scratch.of(scratch)
    table = node_table(nodes, values.device)
    masked = values if mask is None else mask.view(torch.uint8)
    dtypes = (values.dtype,)
    if scores.peaks is None and (problem.own or problem.activation >= EXP):
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
        **plan.shapes["sources_to_nodes"],
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
        (out, added, quotients, values, scores.s, scores.t, masked, top, peaks,
         scores.s if w is None else w, table, totals, means),
        (features, plan.padded, *out.stride()[:2], *added.stride()[:2], *values.stride()[:2]),
        (targets, sources, nodes.used, *scores.strides, nodes.half, problem.bound),
        plan.adding[identity is not None],
        dtypes=dtypes,
        **plan.shapes["nodes_to_targets"],
    )  # fmt: skip
    return out, kept


class Gradients:
    """The backward pass: of scores and weights at once, of values a stretch of rows at a time."""

    pointers: tuple[Pointer, ...]

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
        totals, means, top, peaks, quotients = plan.kept.of(kept)
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
            (grad_s, own_grad_t, grad_w, share, pull, left_out, quotients, grad, values, scores.s,
             scores.t, masked, top, peaks, scores.s if w is None else w, table, totals, means),
            (features, plan.padded, *grad_lines, *lines),
            (targets, nodes.used, *scores.strides, nodes.half, problem.bound),
            plan.constants["target_gradients"],
            dtypes=self.dtypes,
            **plan.shapes["target_gradients"],
        )  # fmt: skip
        pairs, chunks = batch * channels, plan.target_chunks[0]
        launch(
            device_backward.targets_to_nodes,
            (chunks, plan.target_tiles, pairs),
            (parts, grad, scores.s, share, pull, top, peaks, table),
            (features, plan.padded, *grad_lines),
            (targets, nodes.used, plan.target_chunks[1], *scores.strides[:3], nodes.half,
             problem.bound),
            plan.constants["targets_to_nodes"],
            dtypes=self.dtypes,
            **plan.shapes["targets_to_nodes"],
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
            **plan.shapes["source_gradients"],
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
