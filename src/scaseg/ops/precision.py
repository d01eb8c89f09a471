"""Sums and scores in the precision of their tensors, whatever autocast would have."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off on the device of a tensor; the meta device, of shapes alone, has none."""
    if tensor.is_meta:
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)
