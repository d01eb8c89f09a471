"""Dividing by the sum of a row of coefficients, whatever that sum is."""

from __future__ import annotations

import torch
from torch import Tensor

# A row whose coefficients nearly cancel has no meaningful mean. The guard acts only where the
# sum is less than this share of the sum of magnitudes, so the context never exceeds
# max|values| / GUARD; rows of non-negative coefficients are never touched.
GUARD = 1e-3


def reciprocal(total: Tensor, magnitude: Tensor | None = None) -> Tensor:
    """Return 1 / total, guarded, and 0 for rows in which nothing counts.

    `magnitude`, the sum of |coefficient| over the same row, is needed only where coefficients
    can be negative: a total smaller than GUARD * magnitude is replaced by that floor, with the
    total's sign, and counts as a constant there, so that values and gradients stay finite.
    """
    if magnitude is not None:
        floor = GUARD * magnitude.detach()
        total = torch.where(total.abs() < floor, torch.copysign(floor, total.detach()), total)
    empty = total == 0  # false for NaN: it must stay visible
    return (1 / total.masked_fill(empty, 1)).masked_fill(empty, 0)
