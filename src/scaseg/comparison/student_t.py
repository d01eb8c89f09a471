"""Student's t distribution, as far as intervals and tests need it: scipy is an extra."""

from __future__ import annotations

import math

STEPS = 300


def two_sided_p(t: float, freedom: int) -> float:
    """How likely a |t| this large is where there is no difference."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def quantile(share: float, freedom: int) -> float:
    """The t below which a share of the distribution lies, found by halving.

    >>> round(quantile(0.975, 4), 3)
    2.776
    """
    if share < 0.5:
        return -quantile(1 - share, freedom)
    low, high = 0.0, 1.0
    while 1 - two_sided_p(high, freedom) / 2 < share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if 1 - two_sided_p(middle, freedom) / 2 < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on one side only
        return 1 - _incomplete_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
