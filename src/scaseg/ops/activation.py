"""The activations phi that turn a score into a coefficient, and how far each may be pushed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

# How the sums of phi(s_i + t_j) are had in O(n); ops/README.md derives all four. "constant": the
# context does not depend on the target; "interpolated": it does, smoothly.
Form = Literal["affine", "sorted", "constant", "interpolated"]


@dataclass(frozen=True)
class Activation:
    """One phi, and what the operators need to know of it."""

    name: str
    phi: Callable[[Tensor], Tensor]
    form: Form
    slope: Callable[[Tensor], Tensor] | None = None  # phi'; for the interpolated form
    # phi(z) -> 1 (True) or -> z (False) as z -> +inf; for the interpolated form
    saturates: bool = False

    @property
    def exponential_tail(self) -> bool:
        """phi(z) -> e^z as z -> -inf: rows can be rescaled so that they never underflow."""
        return self.form in ("constant", "interpolated")

    @property
    def signed(self) -> bool:
        """Coefficients can be negative, so their sum can cross zero."""
        return self.form == "affine"


def _softplus(z: Tensor) -> Tensor:
    # PyTorch's default threshold of 20 switches to phi(z) = z while log1p(e^-20) = 2e-9 still
    # shows in float64; at 50 the switch is below rounding in every dtype.
    return F.softplus(z, threshold=50.0)


def _identity(z: Tensor) -> Tensor:
    return z


def _sigmoid_slope(z: Tensor) -> Tensor:
    value = torch.sigmoid(z)
    return value * (1 - value)


IDENTITY = Activation("identity", _identity, "affine")
EXP = Activation("exp", torch.exp, "constant")
RELU = Activation("relu", torch.relu, "sorted")
SIGMOID = Activation("sigmoid", torch.sigmoid, "interpolated", _sigmoid_slope, saturates=True)
SOFTPLUS = Activation("softplus", _softplus, "interpolated", torch.sigmoid)

ACTIVATIONS = {phi.name: phi for phi in (IDENTITY, EXP, RELU, SIGMOID, SOFTPLUS)}


def tail(dtype: torch.dtype) -> float:
    """How far from zero phi equals its asymptote to within rounding: e^-tail is below eps."""
    return math.ceil(-math.log(torch.finfo(dtype).eps)) + 3.0  # float64: 40, float32: 19


def lift(target_score: Tensor, peak: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """Lift targets whose coefficients are all tiny to where they can be computed.

    Where phi(z) is e^z, phi(s + t) = e^(s - s') phi(s' + t) for every source at once, so a row
    may be computed at s' = max(s, -peak - tail) and multiplied by e^(s - s') afterwards (a single
    channel need not: the factor cancels in the mean). For exp, which is e^z everywhere, s' is
    -peak. target_score (B, R, target); peak (B, R, target or 1), the largest source score that
    counts for the target, a constant to autograd -> s' and s - s', (B, R, target).
    """
    if activation.form == "constant":
        # the score cancels; a NaN in it must not
        lifted = torch.where(target_score.isnan(), target_score, -peak)
    else:
        lifted = torch.maximum(target_score, -peak - tail(target_score.dtype))
    return lifted, target_score - lifted
