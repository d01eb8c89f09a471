"""Evaluating interpolants at many targets, with a backward pass that keeps its digits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


class Interpolate(Function):
    """Evaluate the interpolant of a number: score (B, R, target) -> (B, R, target).

    `table` holds Chebyshev coefficients (B, R, nodes) and `slope` those of the derivative, which
    the backward pass interpolates in its own right: differentiating the interpolant itself would
    multiply the rounding errors of the table by nodes^2. `basis` is a function of the score whose
    derivative is thereby spent; it and `slope` get a gradient only from a second backward pass.
    """

    @staticmethod
    def forward(ctx, score: Tensor, basis: Tensor, table: Tensor, slope: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(basis, slope)
        ctx.dtype = score.dtype
        return (basis @ table.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        basis, slope = ctx.saved_tensors
        grad_score = grad * (basis @ slope.unsqueeze(-1)).squeeze(-1)
        return grad_score.to(ctx.dtype), None, (grad.unsqueeze(2) @ basis).squeeze(2), None


class Mix(Function):
    """Evaluate the interpolants of all channels, add rows of their own kind, take the own out.

    score, share (B, R, target); basis (B, R, target, nodes); table, slope (B, R, nodes, M);
    extra (B, target, E), extra_rows (B, E, M); own_share (B, target, 1), own (B, target, M)
    -> sum_r share_r (basis_r @ table_r) + extra @ extra_rows - own_share * own, (B, target, M).
    One function because each product reads or writes all of (target, M): they share their passes.
    Gradients as in `Interpolate`.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        score: Tensor,
        basis: Tensor,
        share: Tensor,
        table: Tensor,
        slope: Tensor,
        extra: Tensor | None,
        extra_rows: Tensor | None,
        own_share: Tensor | None,
        own: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(basis, share, table, slope, extra, extra_rows, own_share, own)
        context = _mix(basis, share, extra) @ _rows(table, extra_rows)
        return context if own_share is None else context.addcmul_(own_share, own, value=-1)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def]
        basis, share, table, slope, extra, extra_rows, own_share, own = ctx.saved_tensors
        needs_score = ctx.needs_input_grad[0]
        inner = basis.shape[1] * basis.shape[3]  # R * nodes
        rows = _rows(table, extra_rows)
        after = rows.shape[1]
        if needs_score:
            rows = torch.cat([rows, slope.flatten(1, 2)], dim=1)
        # a product with 63 columns takes twice the time of one with 64
        rows = F.pad(rows, (0, 0, 0, -rows.shape[1] % 4))
        projected = grad @ rows.mT  # (B, target, R * nodes + E [+ R * nodes] + padding)
        grad_share = _over_nodes(basis, projected[..., :inner])
        grad_score = grad_extra = grad_extra_rows = grad_own_share = grad_own = None
        if needs_score:
            grad_score = share * _over_nodes(basis, projected[..., after : after + inner])
        grad_rows = _mix(basis, share, extra).mT @ grad
        grad_table = grad_rows[:, :inner].unflatten(1, table.shape[1:3])
        if extra is not None:
            grad_extra = projected[..., inner : inner + extra.shape[-1]]
            grad_extra_rows = grad_rows[:, inner:]
        if own_share is not None:
            grad_own_share = -torch.einsum("btm,btm->bt", grad, own).unsqueeze(-1)
            grad_own = -own_share * grad
        return (
            grad_score,
            None,
            grad_share,
            grad_table,
            None,
            grad_extra,
            grad_extra_rows,
            grad_own_share,
            grad_own,
        )


def _mix(basis: Tensor, share: Tensor, extra: Tensor | None) -> Tensor:
    """What every target takes of every row: (B, target, R * nodes + E)."""
    rows = (basis * share.unsqueeze(-1)).transpose(1, 2).flatten(2)
    return rows if extra is None else torch.cat([rows, extra], dim=-1)


def _rows(table: Tensor, extra_rows: Tensor | None) -> Tensor:
    """(B, R, nodes, M), (B, E, M) -> (B, R * nodes + E, M)."""
    rows = table.flatten(1, 2)
    return rows if extra_rows is None else torch.cat([rows, extra_rows], dim=1)


def _over_nodes(basis: Tensor, projected: Tensor) -> Tensor:
    """Sum basis (B, R, target, nodes) times projected (B, target, R * nodes): (B, R, target)."""
    return (basis * projected.unflatten(2, (basis.shape[1], -1)).transpose(1, 2)).sum(-1)
