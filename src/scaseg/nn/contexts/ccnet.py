"""Criss-cross attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.nn.context import Context, MapFactors, Mask, Source
from scaseg.nn.contexts.parts import counted_map, query_and_key, refuse_source
from scaseg.ops.checks import check_whole_number
from scaseg.ops.precision import without_autocast


class Cross(NamedTuple):
    """How much each neuron takes of its row, then of its column: (B, H, W, W + H); sum 1."""

    share: Tensor

    def parts(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """(B, H, W, W), (B, H, W, H)."""
        height, width = self.share.shape[1:3]
        share = self.share if dtype is None else self.share.to(dtype)
        row, column = share.split([width, height], -1)
        return row, column

    def gather(self, x: Tensor) -> Tensor:
        """The weighted mean of each neuron's cross: (B, C, H, W) -> the same."""
        row, column = self.parts(x.dtype)
        along_row = row @ x.permute(0, 2, 3, 1)  # (B, H, W, C)
        along_column = column.transpose(1, 2) @ x.permute(0, 3, 2, 1)  # (B, W, H, C)
        return along_row.permute(0, 3, 1, 2) + along_column.permute(0, 3, 2, 1)

    def before(self, weight: Tensor) -> Tensor:
        """What weights (B, rows, H, W) of gathered neurons mean for the neurons themselves."""
        row, column = self.parts()
        along_row = torch.einsum("bthw,bhwv->bthv", weight, row)
        return along_row + torch.einsum("bthw,bhwv->btvw", weight, column)


class CcnetContext(Context):
    """Attention to a neuron's row and column, twice: then it has reached the whole map.

    Round by round, each neuron takes the mean of what its cross has, weighted by exp(q_i . k_j /
    sqrt(d)); q and k are the same 1x1 convolutions in both rounds, of x and then of x + what was
    gathered. With A and A' the n x n matrices of the two rounds, h = W_d x + A' A W_c x: a weighted
    mean, with the rows of A' A as its maps. O(n sqrt(n) M). In the paper W_c applies in each round,
    a round adds its context, times a learned number, to what it began with, and q . k is not
    divided by sqrt(d).
    """

    exclude_self = False
    order = "n sqrt(n)"
    neuron_selective = True
    reference = "Huang et al., CCNet: criss-cross attention for semantic segmentation, ICCV 2019"
    score_parts = ("query", "key")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        rounds: int = 2,
        key_channels: int = 64,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("rounds", rounds, 1, 8)
        self.rounds = rounds
        self.query, self.key = query_and_key(in_channels, key_channels)

    def gather(self, x: Tensor, source_mask: Mask) -> tuple[Tensor, list[Cross]]:
        """Return what the last round gathered, (B, C, H, W), and the cross of each round."""
        gathered = asking = x
        crosses: list[Cross] = []
        for _ in range(self.rounds):
            cross = attend(self.query(asking), self.key(asking), source_mask)
            gathered = cross.gather(counted_map(gathered, source_mask))
            asking = x + gathered
            crosses.append(cross)
        return gathered, crosses

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        return self.values(self.gather(x, source_mask)[0])  # W_c after the means: both are linear

    def coefficient_rows(
        self, x: Tensor, source: Source, targets: Tensor, source_mask: Mask
    ) -> Tensor:
        refuse_source(self, source)
        height, width = x.shape[-2:]
        _, crosses = self.gather(x, source_mask)
        rows = F.one_hot(targets, height * width).to(crosses[0].share)
        weight = rows.unflatten(1, (height, width)).expand(len(x), -1, -1, -1)
        for cross in reversed(crosses):
            weight = counted_map(cross.before(weight), source_mask)
        return weight.flatten(2)

    def map_factors(self, x: Tensor) -> MapFactors:
        _, crosses = self.gather(x, None)
        row, column = Cross(torch.cat([cross.share for cross in crosses])).parts()
        return MapFactors("cross", target=row.flatten(1, 2), source=column.flatten(1, 2))


def attend(query: Tensor, key: Tensor, source_mask: Mask) -> Cross:
    """Softmax over each neuron's row and column, itself once, of what counts there.

    query, key (B, d, H, W), source_mask (B, n).
    """
    height, width = query.shape[-2:]
    dtype = torch.promote_types(query.dtype, torch.float32)
    query, key = query.to(dtype) * query.shape[1] ** -0.5, key.to(dtype)
    least = torch.finfo(dtype).min
    with without_autocast(query):
        row = query.permute(0, 2, 3, 1) @ key.permute(0, 2, 1, 3)  # (B, H, W, W)
        column = (query.permute(0, 3, 2, 1) @ key.permute(0, 3, 1, 2)).transpose(1, 2)
        unseen = torch.eye(height, dtype=torch.bool, device=query.device).unsqueeze(1)  # (H, 1, H)
        if source_mask is not None:
            padding = ~source_mask.unflatten(1, (height, width))
            row = row.masked_fill(padding.unsqueeze(2), least)
            unseen = unseen | padding.mT.unsqueeze(1)
        column = column.masked_fill(unseen, least)
        return Cross(torch.cat([row, column], -1).softmax(-1))
