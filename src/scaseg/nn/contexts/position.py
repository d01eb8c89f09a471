"""Pair channels that know where a neuron lies."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.balanced import BalancedContext
from scaseg.nn.contexts.parts import extents, line_of
from scaseg.ops.precision import without_autocast

WAVES = 4  # of each axis: from half a period over the image to four


class PositionContext(BalancedContext):
    """`balanced`, with the place of a neuron in its scores.

    Scenes have an order: sky above, water below, a bridge between its banks. Sines and cosines of
    the place, relative to the image's size, pass through a learned matrix and are added to queries
    and keys before they are normalized. The matrix starts small: content decides first. Padding is
    no part of the image's size.
    """

    reference = "Chen et al. 2018 with positions after Vaswani et al. 2017"
    score_parts: tuple[str, ...] = (*BalancedContext.score_parts, "place")

    def add_layers(self, key_channels: int) -> None:
        self.place = nn.Linear(4 * WAVES, 2 * key_channels, bias=False)
        nn.init.normal_(self.place.weight, std=0.02)

    def query_and_key(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        query, key = super().query_and_key(x, source, source_mask)
        width = query.shape[-1]
        with without_autocast(x):
            weight = self.place.weight.to(query.dtype)
            here = there = waves(x, source_mask if source is None else None, weight)
            if source is not None:
                there = waves(source, source_mask, weight)
            return query + here[..., :width], key + there[..., width:]


def waves(x: Tensor, source_mask: Mask, weight: Tensor) -> Tensor:
    """The place of each neuron in the real part of its map, through a matrix (d, 4 WAVES).

    Sines and cosines of its row, then of its column -> (B or 1, n, d).
    """
    found = []
    for length, extent, own in zip(
        x.shape[-2:], extents(x, source_mask), weight.chunk(2, 1), strict=True
    ):
        share = (line_of(x, length)[None, :, None] + 0.5) / extent  # 0 to 1 over the real part
        angle = math.pi * share * 2 ** line_of(x, WAVES)
        found.append(torch.cat([angle.sin(), angle.cos()], -1).to(own) @ own.mT)
    rows, columns = found
    return (rows.unsqueeze(2) + columns.unsqueeze(1)).flatten(1, 2)
