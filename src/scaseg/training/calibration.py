"""A fresh head's first weights, scaled by what it gets to see.

A head that starts from random weights behind a trained backbone sees features of whatever size
they have, through windows of which much lies beyond the edge of the map. Its outputs then start
several times too small, and at the paper's rates the first epochs go by without learning. So each
layer is scaled once, by its outputs on a few training images (as in Mishkin and Matas, "All you
need is a good init"). Not to a deviation of 1: a step moves scores by the rate times the sum of
all squared features, so a wide layer must have smaller ones, or the paper's rates diverge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scaseg.data.sample import Batch
from scaseg.models.segmenter import Segmenter

# the sum of all squared outputs of a neuron: 0.7 each where there are 1024, 0.35 where 4096
SQUARES = 512


@torch.no_grad()
def calibrate(model: Segmenter, batch: Batch, layers: Sequence[str] = ("fc6", "fc7")) -> None:
    """Scale the weights of the head's layers, first to last; a dead layer is left as it is."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    for name in layers:
        layer = model.head.get_submodule(name)
        assert isinstance(layer, nn.Conv2d)
        seen: list[Tensor] = []

        def look(module: nn.Module, inputs: Any, output: Tensor, seen: list[Tensor] = seen) -> None:
            seen.append(output.float().std())

        handle = layer.register_forward_hook(look)
        try:
            model(batch.images.to(device), batch.sizes.to(device))
        finally:
            handle.remove()
        size = float(seen[0])
        if 0 < size < float("inf"):
            layer.weight *= (SQUARES / layer.out_channels) ** 0.5 / size
    model.train(was_training)
