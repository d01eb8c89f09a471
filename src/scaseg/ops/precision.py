"""Which floating dtype does which part of the work."""

from __future__ import annotations

import torch
from torch import Tensor


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Accumulate in float32 at least: a bfloat16 sum of ones stops growing at 256."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype for the few numbers on which many others hang: float64 where there is one."""
    return tensor.dtype if tensor.device.type == "mps" else torch.float64
