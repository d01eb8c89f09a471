"""How rates change over a run."""

from __future__ import annotations


def poly_factor(step: int, steps: int, *, power: float, warmup: int = 0) -> float:
    """What base rates are multiplied by at a step: (1 - step/steps)^power, after a linear start.

    >>> [round(poly_factor(step, 100, power=0.9), 4) for step in (0, 50, 99, 100)]
    [1.0, 0.5359, 0.0158, 0.0]
    """
    start = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return start * max(0.0, 1 - step / steps) ** power
