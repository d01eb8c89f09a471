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
    can be negative. Where |total| is below the floor GUARD * magnitude, 1 / total goes over into
    total / floor^2: the same at the floor, and 0, not infinite, where the sum vanishes. So values
    and gradients stay finite and continuous as a sum crosses zero.
    """
    if magnitude is None:
        empty = total == 0  # false for NaN: it must stay visible
        return (1 / total.masked_fill(empty, 1)).masked_fill(empty, 0)
    floor = GUARD * magnitude.detach()
    unsafe = (total.abs() < floor) | (total == 0)
    # select before dividing: what is not taken must not be infinite either, or 0 * inf is NaN
    divisor = floor.masked_fill(~unsafe | (floor == 0), 1)
    guarded = total / divisor / divisor  # not its square, which could underflow
    return torch.where(unsafe, guarded, 1 / total.masked_fill(unsafe, 1))
