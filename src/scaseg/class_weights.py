"""Weighing classes, after the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FREQUENT_SHARE = 0.85


class ClassWeights(NamedTuple):
    """What each class weighs in the loss, and the frequency that separates rare from frequent."""

    weights: tuple[float, ...]
    eta: float


def paper_class_weights(pixels: Sequence[int]) -> ClassWeights:
    """Weigh classes by w_i = 2^ceil(log10(eta / f_i)), f_i their share of the labelled pixels.

    eta by the 85 % / 15 % rule, in our reading: sort the classes by frequency; the frequent ones
    are those that together make 85 % of the labelled pixels (the one that crosses 85 % counts as
    frequent), and eta is the frequency of the last of them. So frequent classes weigh 1 or less,
    rare ones 2, 4, ... Classes that never occur weigh 0: no pixel could be theirs.

    >>> paper_class_weights([600, 300, 90, 9, 1])  # the second class crosses 85 %: eta = 0.3
    ClassWeights(weights=(1.0, 1.0, 2.0, 4.0, 8.0), eta=0.3)
    """
    total = _total(pixels)
    reached = 0
    eta_count = 0
    for count in sorted(pixels, reverse=True):
        reached += count
        eta_count = count
        if reached >= FREQUENT_SHARE * total:
            break
    weights = tuple(0.0 if count == 0 else 2.0 ** _ceil_log10(eta_count, count) for count in pixels)
    return ClassWeights(weights, eta_count / total)


def inverse_class_weights(pixels: Sequence[int]) -> tuple[float, ...]:
    """Weigh classes by 1 / f_i, scaled so that a labelled pixel weighs 1 on average; 0 if absent.

    >>> inverse_class_weights([600, 300, 100, 0])
    (0.5555555555555556, 1.1111111111111112, 3.3333333333333335, 0.0)
    """
    total, present = _total(pixels), sum(count > 0 for count in pixels)
    return tuple(total / (present * count) if count else 0.0 for count in pixels)


def _total(pixels: Sequence[int]) -> int:
    if any(count < 0 for count in pixels):
        raise ValueError(f"pixels has a negative count ({min(pixels)}); count labelled pixels")
    if not any(pixels):
        raise ValueError("pixels has no labelled pixel at all; there is nothing to weigh")
    return sum(pixels)


def _ceil_log10(numerator: int, denominator: int) -> int:
    """ceil(log10(numerator / denominator)) in whole numbers: 1000 / 1 must give 3, not 4."""
    exponent = math.ceil(math.log10(numerator / denominator))
    while exponent > -400 and _at_most_power(numerator, denominator, exponent - 1):
        exponent -= 1
    while not _at_most_power(numerator, denominator, exponent):
        exponent += 1
    return exponent


def _at_most_power(numerator: int, denominator: int, exponent: int) -> bool:
    """numerator / denominator <= 10^exponent, without rounding."""
    if exponent >= 0:
        return numerator <= denominator * 10**exponent
    return numerator * 10**-exponent <= denominator
