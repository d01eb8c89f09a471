"""The gradient of a map past its ReLU, and its sums over all neurons, in one pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from scaseg.ops.kernels import device_scores
from scaseg.ops.kernels.launch import launch
from scaseg.ops.kernels.smooth import new_buffer
from scaseg.ops.kernels.tiles import chunks_of, features_of_a_tile

ELEMENTS = 4096  # of a tile
PROGRAMS = 1024


@lru_cache(maxsize=64)
def _constants(features: int) -> dict[str, Any]:
    width = features_of_a_tile(features)
    return {"BLOCK": ELEMENTS // width, "BLOCK_K": width}


def rectified_gradient(grad: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a result (B, C, H, W) where it is positive, else 0, and its sums (C,)."""
    layout = torch.channels_last
    grad, out = grad.contiguous(memory_format=layout), out.contiguous(memory_format=layout)
    found = torch.empty_like(grad)
    features = grad.shape[1]
    count, constants = grad.numel() // features, _constants(features)
    tiles = -(-features // constants["BLOCK_K"])
    chunks, chunk = chunks_of(count, tiles, constants["BLOCK"], PROGRAMS)
    parts = new_buffer(chunks * features, grad)
    launch(
        device_scores.relu_backward,
        (chunks, tiles, 1),
        (found, parts, grad, out),
        (features, features),
        (count, chunk, features),
        constants,
        dtypes=(grad.dtype,),
    )
    return found, parts.view(chunks, features).sum(0).to(grad.dtype)
