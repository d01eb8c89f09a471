"""Pair channels that know where a neuron lies."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.balanced import BalancedContext
from scaseg.nn.contexts.parts import places, real_map

WAVES = 4  # of each axis: from half a period over the image to four


class PositionContext(BalancedContext):
    """`balanced`, with the place of a neuron in its scores.

    Scenes have an order: sky above, water below, a bridge between its banks. Sines and cosines of
    the place, relative to the image's size, pass through a learned matrix and are added to queries
    and keys before they are normalized. The matrix starts small: content decides first. Padding is
    no part of the image's size.
    """

    reference = "Chen et al. 2018 with positions after Vaswani et al. 2017"

    def add_layers(self, key_channels: int) -> None:
        self.place = nn.Linear(4 * WAVES, 2 * key_channels, bias=False)
        nn.init.normal_(self.place.weight, std=0.02)

    def query_and_key(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        query, key = super().query_and_key(x, source, source_mask)
        of_query, of_key = self.place.weight.to(query.dtype).chunk(2)
        there = waves(real_map(x, source, source_mask))
        with torch.autocast(x.device.type, enabled=False):
            query = query + there @ of_query.mT
            if source is not None:
                there = waves(real_map(source, None, source_mask))
            return query, key + there @ of_key.mT


def waves(real: Tensor) -> Tensor:
    """Describe the place of each neuron of a map (B, H, W) in its real part: (B, n, 4 WAVES)."""

    def along(line: Tensor) -> Tensor:
        place, extent = places(line)
        share = (place + 0.5) / extent.clamp(min=1)  # 0 to 1 over the real part
        angle = math.pi * share.unsqueeze(-1) * 2.0 ** torch.arange(WAVES).to(share)
        return torch.cat([angle.sin(), angle.cos()], -1)  # (B, length, 2 WAVES)

    rows, columns = along(real.amax(2)), along(real.amax(1))
    size = (-1, real.shape[1], real.shape[2], -1)
    grid = torch.cat([rows.unsqueeze(2).expand(size), columns.unsqueeze(1).expand(size)], -1)
    return grid.flatten(1, 2)
