"""Which source of a channel is the strongest, and what is left without it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Strongest(NamedTuple):
    """(B, R, 1) each, constants to autograd; scores are 0 where there is no such source."""

    score: Tensor
    source: Tensor
    second_score: Tensor


def strongest(source_score: Tensor, source_mask: Tensor | None) -> Strongest:
    """Find the largest score of each channel (B, R, source), its place, and the second largest."""
    score = source_score.detach()
    if source_mask is not None:
        score = score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    if score.shape[-1] < 2:
        first, index = score.max(dim=-1, keepdim=True)
        return Strongest(empty_to_zero(first), index, torch.zeros_like(first))
    top, index = score.topk(2, dim=-1)
    return Strongest(empty_to_zero(top[..., :1]), index[..., :1], empty_to_zero(top[..., 1:]))


def empty_to_zero(score: Tensor) -> Tensor:
    """Replace the -inf that stands for "no such source" by a number that can be worked with."""
    return score.masked_fill(score == -torch.inf, 0)
