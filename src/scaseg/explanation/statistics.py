"""A mean and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, sqrt


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error; None where there was nothing, or one value only."""

    mean: float | None
    error: float | None

    def __str__(self) -> str:
        if self.mean is None:
            return "n/a"
        return f"{self.mean:.4f}" + ("" if self.error is None else f" ± {self.error:.4f}")


def mean_of(values: Sequence[float]) -> Mean:
    """Average what is there; NaN stands for nothing measured.

    >>> print(mean_of([1.0, 2.0, 3.0, float("nan")]))
    2.0000 ± 0.5774
    """
    known = [value for value in values if not isnan(value)]
    if not known:
        return Mean(None, None)
    mean = sum(known) / len(known)
    if len(known) == 1:
        return Mean(mean, None)
    spread = sum((value - mean) ** 2 for value in known) / (len(known) - 1)
    return Mean(mean, sqrt(spread / len(known)))
