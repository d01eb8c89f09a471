"""The rectified context (relu) by Triton kernels: sources and targets sorted once, exact sums.

The same mathematics as `exact.relu_context`; device_relu.py says how few passes over the maps it
takes. Sorting is torch's. `forward` and the gradients take and give what those of `smooth` do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.kernels import device_relu, device_sorted
from scaseg.ops.kernels.launch import Piece, launch
from scaseg.ops.kernels.plan import SortedPlan
from scaseg.ops.kernels.smooth import Gradients, Scores, new_buffer


def forward(
    plan: SortedPlan,
    values: Tensor,
    scores: Scores,
    w: Tensor | None,
    mask: Tensor | None,
    *,
    scratch: Tensor | None = None,
    identity: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the context (B, target, M), plus `identity`, and what to keep: as smooth.forward."""
    batch, targets, sources, features, _ = plan.problem[:5]
    kept = new_buffer(plan.kept.total, values)
    s_sorted, s_order, t_sorted, t_order, quotients, cuts, parts, anchors = plan.kept.of(kept)
    s, t = scores.of_targets(batch, targets), scores.of_sources(batch, sources)
    _sort(s, s_sorted, s_order)
    _sort(t if mask is None else t.masked_fill(~mask, -torch.inf), t_sorted, t_order)
    _cut(plan, cuts, s_sorted, t_sorted, targets, sources)
    _prefix_sums(plan, (parts, anchors), values, (t_sorted, t_order, t_order), None, sources)
    if out is None:
        out = values.new_empty((batch, targets, features))
    added = out if identity is None else identity
    masked = values if mask is None else mask.view(torch.uint8)
    launch(
        device_relu.ramps_of_targets,
        (plan.most_tiles(targets, sources), batch, 1),
        (out, added, quotients, values, scores.t, masked, s_sorted, s_order, t_sorted, t_order,
         cuts, parts, anchors),
        (features, plan.padded, *out.stride()[:2], *added.stride()[:2], *values.stride()[:2]),
        (targets, sources, plan.blocks_of(sources), *scores.strides[3:5]),
        plan.adding[identity is not None],
        dtypes=(values.dtype,),
        warps=plan.border.warps,
    )  # fmt: skip
    return out, kept


def _sort(scores: Tensor, out: Piece, places: Piece) -> None:
    """Sort the scores (B, n) of each image, the largest first."""
    batch, count = scores.shape
    found = [one.tensor()[: batch * count].view(batch, count) for one in (out, places)]
    torch.sort(scores, dim=-1, descending=True, out=tuple(found))


def _cut(plan: SortedPlan, cuts: Piece, rows: Piece, others: Piece, n: int, m: int) -> None:
    """Cut n sorted rows into tiles, by m sorted others."""
    launch(
        device_sorted.cut_rows,
        (plan.problem.batch, 1, 1),
        (cuts, rows, others),
        (),
        (n, m, plan.blocks_of(m), n.bit_length()),
        plan.constants["cut_rows"],
        dtypes=(),
        warps=8,
    )


def _prefix_sums(
    plan: SortedPlan,
    found: tuple[Piece, Piece],
    values: Tensor,
    order: tuple[Piece, Piece, Piece],
    weights: tuple[Piece, Piece] | None,
    count: int,
) -> None:
    """Sums over the first blocks of `count` rows in their order: parts and anchors."""
    blocks, features = plan.blocks_of(count), plan.problem.features
    launch(
        device_sorted.block_sums,
        (blocks, -(-features // plan.border.features), plan.problem.batch),
        (*found, values, *order, *(order[:1] * 2 if weights is None else weights)),
        (features, plan.padded, *values.stride()[:2]),
        (count, blocks),
        plan.summing[weights is not None],
        dtypes=(values.dtype,),
    )
    launch(
        device_sorted.prefix_sums,
        (-(-(features + 1) // 16), plan.problem.batch, 1),
        found,
        (features, plan.padded),
        (blocks,),
        plan.constants["prefix_sums"],
        dtypes=(),
    )


class SortedGradients(Gradients):
    """The backward pass; gradients of values come all at once, since sources lie in their order."""

    plan: SortedPlan

    def __init__(
        self,
        plan: SortedPlan,
        grad: Tensor,
        values: Tensor,
        scores: Scores,
        w: Tensor | None,
        mask: Tensor | None,
        kept: Tensor,
    ) -> None:
        batch, targets, sources, features, _ = plan.problem[:5]
        s_sorted, s_order, t_sorted, t_order, quotients, *sums = plan.kept.of(kept)
        self.buffer = new_buffer(plan.gradient.total, values)
        self.grad_s, own_grad_t, shifts, left_out, *pulled = plan.gradient.of(self.buffer)
        masked = values if mask is None else mask.view(torch.uint8)
        self.dtypes = values.dtype, grad.dtype
        self.lines = *grad.stride()[:2], *values.stride()[:2]
        launch(
            device_relu.gradients_of_targets,
            (plan.most_tiles(targets, sources), batch, 1),
            (self.grad_s, own_grad_t, shifts, left_out, quotients, grad, values, scores.t, masked,
             s_sorted, s_order, t_sorted, t_order, *sums),
            (features, plan.padded, *self.lines),
            (targets, sources, plan.blocks_of(sources), *scores.strides[3:5]),
            plan.constants["gradients_of_targets"],
            dtypes=self.dtypes,
            warps=plan.border.warps,
        )  # fmt: skip
        order = s_sorted, s_order, t_order
        _cut(plan, pulled[0], t_sorted, s_sorted, sources, targets)
        _prefix_sums(plan, (pulled[1], pulled[2]), grad, order, (quotients, shifts), targets)
        self.plan, self.strides = plan, scores.strides
        self.pointers = (own_grad_t, shifts, left_out, quotients, grad, values, s_sorted, s_order,
                         t_sorted, t_order, scores.s, *pulled)  # fmt: skip
        self.all_values: Tensor | None = None

    def sources(
        self,
        grad_values: Tensor,
        grad_t: Tensor,
        images: tuple[int, int],
        rows: tuple[int, int],
        copy: Tensor | None = None,
    ) -> None:
        """Write the gradients of the sources `rows` of `images`: as Gradients.sources."""
        plan, problem = self.plan, self.plan.problem
        batch, targets, sources, features, _ = problem[:5]
        whole = images == (0, batch) and rows == (0, sources)
        if self.all_values is None or whole:
            self.all_values = (
                grad_values if whole else grad_values.new_empty((batch * sources, features))
            )
            launch(
                device_relu.gradients_of_sources,
                (plan.most_tiles(sources, targets), batch, 1),
                (self.all_values, self.all_values if copy is None else copy, grad_t,
                 *self.pointers),
                (features, plan.padded, self.all_values.stride(0), *self.lines),
                (sources, targets, plan.blocks_of(targets), *self.strides[:2]),
                plan.copying[copy is not None],
                dtypes=self.dtypes,
                warps=plan.border.warps,
            )  # fmt: skip
        if not whole:
            first, last = images[0] * sources + rows[0], (images[1] - 1) * sources + rows[1]
            grad_values[:, :features].copy_(self.all_values[first:last])
