"""Context by plain averaging: every coefficient is 1 (the paper's baseline-ave)."""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.checks import check_values
from scaseg.ops.precision import working_dtype
from scaseg.ops.row_sum import reciprocal


def uniform_context(
    values: Tensor, *, exclude_self: bool = True, source_mask: Tensor | None = None
) -> Tensor:
    """Give each target the mean of the sources that count.

    values (B, source, M), source_mask (B, source) -> (B, source, M), or (B, 1, M), the same for
    every target, with exclude_self=False.
    """
    check_values(values, source_mask)
    with torch.autocast(values.device.type, enabled=False):
        used = values.to(working_dtype(values))
        present = used.new_ones(used.shape[:2]) if source_mask is None else source_mask.to(used)
        if source_mask is not None:
            used = used.masked_fill(~source_mask.unsqueeze(-1), 0)
        total, count = used.sum(1, keepdim=True), present.sum(1, keepdim=True)
        if exclude_self:
            total, count = total - used, count - present
        context = total * reciprocal(count).unsqueeze(-1)
    return context.to(values.dtype)
