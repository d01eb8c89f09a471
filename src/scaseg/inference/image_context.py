"""The first of two passes over a photograph: its context, gathered window by window."""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.inference.preprocessing import View
from scaseg.inference.sliding_window import Context
from scaseg.inference.window_grid import Grid, batches, own_part
from scaseg.models.segmenter import Segmenter
from scaseg.nn.streaming import StreamedContext


def gather(model: Segmenter, view: View, grid: Grid, batch_size: int) -> Context:
    """Look at every window once; return what gives the windows of the second pass their context.

    Each neuron counts once, as the window sees it whose own it is.
    """
    gathered = StreamedContext(model.context)
    if gathered.sums is not None:
        for row in grid.rows:
            strip = view.strip(row.pixels)
            for places in batches(grid.columns, batch_size):
                images = torch.cat([strip[..., grid.columns[at].pixels] for at in places])
                features, _ = model.backbone(images)
                for at, part in zip(places, features, strict=True):
                    own = part[:, own_part(row), own_part(grid.columns[at])]
                    gathered.add(own.unsqueeze(0))

    def context(features: Tensor, rows: slice, columns: slice) -> Tensor:
        counted = torch.zeros(features.shape[-2:], dtype=torch.bool, device=features.device)
        counted[rows, columns] = True
        return gathered(features, counted)

    return context
