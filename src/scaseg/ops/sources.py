"""What a set of sources looks like from outside: who counts, and who is the strongest."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sources(NamedTuple):
    """Everything that targets can see; what is masked is already overwritten."""

    values: Tensor  # (B, source, M)
    score: Tensor  # (B, R, source)
    mask: Tensor | None  # (B, source)

    def total(self, coefficients: Tensor) -> Tensor:
        """Add up the coefficients of the sources that count: (B, R, row, source) -> (B, R, row)."""
        if self.mask is None:
            return coefficients.sum(-1)
        return torch.einsum("brks,bs->brk", coefficients, self.mask.to(coefficients.dtype))

    def weigh(self, weights: Tensor) -> Tensor:
        """(B, R, row, source) -> (B, R, row, M); masked values are 0."""
        return (weights.flatten(1, 2) @ self.values).unflatten(1, weights.shape[1:3])


def hide_masked(
    values: Tensor, source_score: Tensor, source_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Overwrite what stands at masked sources, so that not even NaN padding can leak.

    values (B, source, M), source_score (B, R, source), source_mask (B, source).
    """
    if source_mask is None:
        return values, source_score
    return (
        values.masked_fill(~source_mask.unsqueeze(-1), 0),
        source_score.masked_fill(~source_mask.unsqueeze(1), 0),
    )


def strongest(source_score: Tensor, source_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest score of each channel, where it stands, and the second largest.

    source_score (B, R, source) -> three tensors (B, R, 1), constants to autograd. Where no such
    source exists the score is 0: every sum over it is empty anyway.
    """
    score = source_score.detach()
    if source_mask is not None:
        score = score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    if score.shape[-1] < 2:
        first, index = score.max(dim=-1, keepdim=True)
        second = torch.zeros_like(first)
    else:
        top, position = score.topk(2, dim=-1)
        first, second, index = top[..., :1], top[..., 1:], position[..., :1]
    return empty_to_zero(first), index, empty_to_zero(second)


def empty_to_zero(score: Tensor) -> Tensor:
    """Replace the -inf that stands for "no such source" by a number that can be worked with."""
    return score.masked_fill(score == -torch.inf, 0)
