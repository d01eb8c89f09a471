"""The two functions that users call: check the inputs, choose a backend, compute."""

from __future__ import annotations

import logging
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.errors import UserError
from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.checks import check_coefficients, check_scores, check_values, is_vmapped
from scaseg.ops.dense import dense_context, weighted_mean
from scaseg.ops.exact import identity_context, relu_context
from scaseg.ops.kernels.support import unsupported
from scaseg.ops.precision import without_autocast
from scaseg.ops.scores import Scores, working_dtype
from scaseg.ops.smooth import smooth_context

FORMS = {
    "affine": identity_context,
    "sorted": relu_context,
    "constant": smooth_context,
    "interpolated": smooth_context,
}


def linear_context(values: Tensor, scores: Scores) -> Tensor:
    """Return each target's mean of the values (B, source, M), never holding the coefficients.

    Exact for identity, exp and relu; for sigmoid and softplus to `chebyshev.TOLERANCE`.
    """
    form = FORMS[scores.activation.form]
    # Inductor's GPU code for these forms does not always compile (torch 2.11, n >= 32,768): there
    # they run as they are, between two compiled parts
    if values.is_cuda and form is not relu_context and torch.compiler.is_compiling():
        return torch.compiler.disable(form)(values, scores)
    return form(values, scores)


BACKENDS = {"dense": dense_context, "linear": linear_context}
NAMES = ("auto", *BACKENDS, "triton")

# Up to this many coefficients writing them out is faster than not, forward and backward: on the
# CPU by benchmarks/crossover.py; on a GPU, where linear is a matter of launches and dense one of
# memory, by `scaseg bench --device cuda` (docs/log.md has the numbers).
DENSE_UP_TO = {"cpu": 384 * 384, "cuda": 4096 * 4096}

_log = logging.getLogger(__name__)


class Choice(NamedTuple):
    """A backend and the reason for it."""

    backend: str
    reason: str


def choose_backend(
    targets: int,
    sources: int,
    device: str = "cpu",
    *,
    activation: str = "sigmoid",
    score_bound: float | None = None,
    pair_channels: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Choice:
    """Return which backend "auto" takes for a map of this size on this kind of device, and why.

    >>> choose_backend(56 * 56, 56 * 56).backend
    'linear'
    """
    because = ""
    if device == "cuda":
        reason = unsupported(device, dtype, activation, score_bound, pair_channels)
        if reason is None:
            return Choice("triton", "kernels for this activation and range are faster at any size")
        because = f" (triton: {reason})"
    pairs, limit = f"{targets} x {sources} coefficients on {device}", _limit(device)
    if targets * sources <= limit:
        return Choice("dense", f"{pairs} are at most {limit}: writing them out is faster{because}")
    return Choice("linear", f"{pairs} are more than {limit}: none is written out{because}")


def _limit(device: str) -> int:
    return DENSE_UP_TO.get(device, DENSE_UP_TO["cpu"])


def check_backend(backend: str) -> None:
    """Raise UserError for a backend that does not exist."""
    if backend not in NAMES:
        raise UserError.choice("backend", backend, NAMES)


def selective_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: str = "sigmoid",
    channel_weight: Tensor | None = None,
    exclude_self: bool = True,
    source_mask: Tensor | None = None,
    score_bound: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Return each target's mean of all sources, weighted by a_ij = sum_r w_r phi(s_ir + t_jr).

    values (B, source, M); target_score s (B, target) or (B, target, R); source_score t
    (B, source) or (B, source, R); channel_weight w (R,), non-negative, default ones; source_mask
    (B, source), True where a source counts -> context (B, target, M) in the dtype of values,
    computed in at least float32. A row in which nothing counts gives zeros.

    activation: phi, one of identity, exp, relu, sigmoid, softplus.
    exclude_self leaves out j = i (the paper); turn it off when the sources are another image.
    score_bound promises |s|, |t| <= bound, so that nothing depends on the data and the operator
    compiles, exports and graphs; without it the range is measured. A broken promise raises in
    eager mode on the CPU; elsewhere sigmoid and softplus take such scores to be at the bound (the
    other activations need no bound).
    backend: "dense" holds target x source coefficients, "linear" never does; "triton" is linear
    in GPU kernels, differentiable once (sigmoid and softplus need a bound, relu has one pair
    channel); "auto" chooses (`choose_backend` says what and why).

    >>> import torch
    >>> x = torch.randn(2, 4096, 64)
    >>> selective_context(x, torch.randn(2, 4096), torch.randn(2, 4096)).shape
    torch.Size([2, 4096, 64])
    """
    if activation not in ACTIVATIONS:
        raise UserError.choice("activation", activation, ACTIVATIONS)
    check_backend(backend)
    check_scores(
        values, target_score, source_score, channel_weight, exclude_self, source_mask, score_bound
    )
    targets, sources = target_score.shape[1], values.shape[1]
    if values.shape[0] == 0 or targets == 0:  # nothing to compute, but something to differentiate
        nothing = values.sum() + target_score.sum() + source_score.sum()
        if channel_weight is not None:
            nothing = nothing + channel_weight.sum()
        return values.new_zeros(values.shape[0], targets, values.shape[2]) + 0 * nothing
    if backend == "auto" and any(map(is_vmapped, (values, target_score, source_score))):
        backend = "dense"  # how many nodes to interpolate at would depend on values
    if backend in ("auto", "triton"):
        reason: str | None = "there are no sources"
        if sources > 0:
            channels = target_score.shape[2] if target_score.dim() == 3 else 1
            kind = values.dtype, activation, score_bound, channels
            reason = unsupported(values.device.type, *kind)
        if reason is None and (backend == "triton" or values.is_cuda):
            from scaseg.ops.kernels.operator import kernel_context

            return kernel_context(
                values,
                target_score,
                source_score,
                activation=activation,
                channel_weight=channel_weight,
                exclude_self=exclude_self,
                source_mask=source_mask,
                score_bound=score_bound,
            )
        if backend == "triton":
            raise UserError("backend", f"triton: {reason}", 'use "auto", "linear" or "dense"')
    if backend == "auto":
        device = values.device.type
        # the size of an example says nothing of those that an exported graph will meet
        few = not torch.compiler.is_exporting() and targets * sources <= _limit(device)
        backend = "dense" if few else "linear"
        # not while compiling: to spell a symbolic size out would pin it
        if not torch.compiler.is_compiling() and _log.isEnabledFor(logging.DEBUG):
            _log.debug("selective_context: %s: %s", *choose_backend(targets, sources, device))

    dtype = working_dtype(values, target_score, source_score)
    with without_autocast(values):
        scores = Scores(
            target=_channels_first(target_score).to(dtype),
            source=_channels_first(source_score).to(dtype),
            activation=ACTIVATIONS[activation],
            channel_weight=None if channel_weight is None else channel_weight.to(dtype),
            own=torch.arange(sources, device=values.device) if exclude_self else None,
            source_mask=source_mask,
            bound=score_bound,
        )
        context = BACKENDS[backend](values.to(dtype), scores)
    return context.to(values.dtype)


def aggregate(
    values: Tensor,
    coefficients: Tensor,
    *,
    exclude_self: bool = True,
    source_mask: Tensor | None = None,
) -> Tensor:
    """Return each target's mean of all sources, weighted by coefficients that you supply.

    values (B, source, M), coefficients (B or 1, target, source), source_mask (B, source) ->
    (B, target, M). Coefficients may be negative; where a row's sum is under a thousandth of its
    magnitude, a guard leads the result to 0 instead of to infinity (`scaseg.ops.dense`). A row in
    which nothing counts gives 0.

    >>> import torch
    >>> aggregate(torch.tensor([[[1.0], [3.0], [5.0]]]), torch.ones(1, 3, 3)).flatten().tolist()
    [4.0, 3.0, 2.0]
    """
    check_values(values, source_mask)
    check_coefficients(values, coefficients, exclude_self)
    dtype = working_dtype(values, coefficients)
    with without_autocast(values):
        used, rows = values.to(dtype), coefficients.to(dtype)
        if exclude_self:
            diagonal = torch.eye(rows.shape[-1], dtype=torch.bool, device=rows.device)
            rows = rows.masked_fill(diagonal, 0)
        if source_mask is not None:
            rows = rows.masked_fill(~source_mask.unsqueeze(1), 0)
            used = used.masked_fill(~source_mask.unsqueeze(-1), 0)
        context = weighted_mean(used, rows, signed=True)
    return context.to(values.dtype)


def _channels_first(score: Tensor) -> Tensor:
    """(B, n) or (B, n, R) -> (B, R, n)."""
    return score.unsqueeze(1) if score.dim() == 2 else score.transpose(1, 2)
