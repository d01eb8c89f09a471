"""Working through many rows a few at a time, so that no large intermediate ever exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Elements of one intermediate: 64 MiB in float32, and large enough that the loop costs nothing.
LIMIT = 1 << 24


def fits(elements: int) -> bool:
    """Say whether an intermediate of this size may exist; a compiled graph plans its own."""
    return torch.compiler.is_compiling() or elements <= LIMIT


def map_rows(
    compute: Callable[..., tuple[Tensor, ...]],
    rows: Sequence[tuple[Tensor | None, int]],
    *,
    row_elements: int,
    dim: int,
) -> tuple[Tensor, ...]:
    """Apply `compute` to slices of `rows`, tensors with the axis to slice; join along `dim`.

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
