"""How tensors are cut into tiles for the kernels: fixed sizes, so that no new n compiles anew."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64  # targets or sources of a tile
PROGRAMS = 512  # that share a long sum: about four for each multiprocessor of a large GPU


def rows_contiguous(x: Tensor) -> Tensor:
    """Return x with its features side by side; rows may lie apart."""
    return x if x.stride(-1) == 1 else x.contiguous()


def is_split(x: Tensor) -> bool:
    """Whether float32 coefficients meet x as two bfloat16 products; else x meets them in tf32x3."""
    # Triton's interpreter, by which machines without a GPU test, has no bfloat16 products
    return x.dtype == torch.bfloat16 and x.device.type == "cuda"


def features_of_a_tile(features: int) -> int:
    """A power of two from 16 to 128."""
    return min(128, max(16, 1 << (features - 1).bit_length()))


def chunks_of(rows: int, others: int) -> tuple[int, int]:
    """Divide rows among programs, beside `others`: how many chunks, and rows of each."""
    wanted = max(1, min(-(-rows // (2 * BLOCK)), PROGRAMS // others))
    chunk = -(-rows // (wanted * BLOCK)) * BLOCK
    return -(-rows // chunk), chunk
