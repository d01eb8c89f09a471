"""How tensors are cut into tiles for the kernels: fixed sizes, so that no new n compiles anew."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PROGRAMS = 512  # that share a long sum: about four for each multiprocessor of a large GPU
LARGE = 132  # of programs that fill a multiprocessor each: fewer parts to add up
PARTS = 16  # parts of a sum that are read at once


class Tile(NamedTuple):
    """Rows and features of a tile, warps that compute it, and how far loads run ahead."""

    rows: int = 64
    features: int = 64
    warps: int = 4
    stages: int = 3


# Float32 values take three products for one: smaller tiles
WIDE = {
    "sources_to_nodes": Tile(64, 128, 8),
    "nodes_to_targets": Tile(64, 64, 8),
    "target_gradients": Tile(64, 64, 8),
    "targets_to_nodes": Tile(64, 128, 8),
    "source_gradients": Tile(64, 64, 8),
}
# bfloat16 values
SPLIT = {
    "sources_to_nodes": Tile(32, 512, 8),
    "nodes_to_targets": Tile(128, 64, 4),
    "target_gradients": Tile(64, 64, 4),
    "targets_to_nodes": Tile(32, 512, 8),
    "source_gradients": Tile(128, 64, 4),
}
SCORE = Tile(64, 64, 4)
LAYER = Tile(16, 128, 4)  # gradients of the predictor's layers
LAST = Tile(16, 64, 4)  # and of its last one, with the scores
BORDER = Tile(64, 64, 4)  # sorted rows beside
OTHERS = 128  # those of the other kind, in blocks
FINISH = 128  # features of a tile of a sum


def tile(kernel: str, nodes: int, features: int, split: bool) -> Tile:
    """The tile of a kernel for so many (padded) nodes and features."""
    found = SPLIT[kernel] if split and nodes <= 32 else WIDE[kernel]
    return found._replace(features=features_of_a_tile(features, found.features))


def rows_contiguous(x: Tensor) -> Tensor:
    """Return x with its features side by side; rows may lie apart."""
    return x if x.stride(-1) == 1 else x.contiguous()


def is_split(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether float32 coefficients meet values as two bfloat16 products; else in tf32x3."""
    # Triton's interpreter, by which machines without a GPU test, has no bfloat16 products
    return dtype == torch.bfloat16 and device.type == "cuda"


def features_of_a_tile(features: int, most: int = 128) -> int:
    """A power of two from 16 to `most`."""
    return min(most, max(16, 1 << (features - 1).bit_length()))


def chunks_of(rows: int, others: int, block: int, programs: int = PROGRAMS) -> tuple[int, int]:
    """Divide rows among programs, beside `others`: how many chunks, and rows of each."""
    wanted = max(1, min(-(-rows // (2 * block)), programs // others))
    chunk = -(-rows // (wanted * block)) * block
    return -(-rows // chunk), chunk
