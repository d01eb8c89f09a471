"""Refusing what the operators cannot mean, in words that say what to do."""

from __future__ import annotations

import torch
from torch import Tensor

# A promise so wide that the interpolation would need thousands of nodes is not worth having.
LARGEST_BOUND = 1000.0
# Of channels: a network from somebody else's file must not ask for more than can be counted.
MOST = 2**20


def check_scores(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    channel_weight: Tensor | None,
    exclude_self: bool,
    source_mask: Tensor | None,
    score_bound: float | None,
) -> None:
    """Raise ValueError unless the arguments of `selective_context` fit together."""
    check_values(values, source_mask)
    batch, sources, _ = values.shape
    _check_floating("target_score", target_score, values)
    _check_floating("source_score", source_score, values)
    if target_score.dim() not in (2, 3):
        raise ValueError(
            f"target_score has shape {_shape(target_score)}; give (B, target), or "
            "(B, target, R) for R pair channels"
        )
    rest = target_score.shape[2:]
    if target_score.shape[0] != batch:
        raise ValueError(
            f"target_score has a batch of {target_score.shape[0]} but values of {batch}; "
            "give each image its own scores"
        )
    if source_score.shape != (batch, sources, *rest):
        raise ValueError(
            f"source_score has shape {_shape(source_score)} but values {_shape(values)} and "
            f"target_score {_shape(target_score)} call for {(batch, sources, *rest)}; "
            "flatten features and scores from the same map"
        )
    channels = rest[0] if rest else 1
    if channels == 0:
        raise ValueError("target_score has 0 pair channels; give at least one")
    targets = target_score.shape[1]
    check_exclude_self(exclude_self, targets, sources)
    if channel_weight is not None:
        _check_floating("channel_weight", channel_weight, values)
        if channel_weight.shape != (channels,):
            raise ValueError(
                f"channel_weight has shape {_shape(channel_weight)} but the scores have "
                f"{channels} pair channel(s); give shape ({channels},)"
            )
        if _values_can_be_read(channel_weight) and bool((channel_weight < 0).any()):
            raise ValueError(
                f"channel_weight has a negative entry ({float(channel_weight.detach().min()):g}); "
                "coefficients are a sum of non-negative channels: pass it through softplus or exp"
            )
    if score_bound is not None:
        _check_bound(score_bound, target_score, source_score, source_mask)


def check_values(values: Tensor, source_mask: Tensor | None) -> None:
    """Raise ValueError unless values are (B, source, M) and the mask fits them."""
    if not isinstance(values, Tensor):
        raise ValueError(f"values is a {type(values).__name__}; give a tensor (B, source, M)")
    if values.dim() != 3 or values.shape[1] == 0:
        raise ValueError(
            f"values has shape {_shape(values)}; give (B, source, M) with at least one source: "
            "x.flatten(2).transpose(1, 2) turns a feature map (B, M, H, W) into it"
        )
    if not values.dtype.is_floating_point:
        raise ValueError(f"values has dtype {values.dtype}; give a floating dtype: values.float()")
    if source_mask is None:
        return
    if not isinstance(source_mask, Tensor) or source_mask.dtype != torch.bool:
        found = source_mask.dtype if isinstance(source_mask, Tensor) else type(source_mask).__name__
        raise ValueError(f"source_mask is {found}; give a bool tensor, True where a source counts")
    if source_mask.shape != values.shape[:2]:
        raise ValueError(
            f"source_mask has shape {_shape(source_mask)} but values {_shape(values)} call for "
            f"{tuple(values.shape[:2])}"
        )
    _check_device("source_mask", source_mask, values)


def check_coefficients(values: Tensor, coefficients: Tensor, exclude_self: bool) -> None:
    """Raise ValueError unless a coefficient matrix fits the values."""
    _check_floating("coefficients", coefficients, values)
    batch, sources, _ = values.shape
    if (
        coefficients.dim() != 3
        or coefficients.shape[0] not in (1, batch)
        or coefficients.shape[2] != sources
    ):
        batches = "1" if batch == 1 else f"{batch} or 1"
        raise ValueError(
            f"coefficients has shape {_shape(coefficients)} but values {_shape(values)} call for "
            f"({batches}, target, {sources}): a row for each target, a column for each source"
        )
    check_exclude_self(exclude_self, coefficients.shape[1], sources)


def check_exclude_self(exclude_self: bool, targets: int, sources: int) -> None:
    """Raise ValueError where leaving out j = i has no meaning."""
    if exclude_self and targets != sources:
        raise ValueError(
            f"exclude_self=True but {targets} targets are not the {sources} sources; "
            "pass exclude_self=False when context comes from elsewhere"
        )


def check_whole_number(name: str, value: object, least: int, most: int = MOST) -> None:
    """Raise ValueError unless value is an int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}; give a whole number >= {least}")
    if value > most:
        raise ValueError(f"{name} is {value}; give a whole number from {least} to {most}")


def _check_bound(
    score_bound: float, target_score: Tensor, source_score: Tensor, source_mask: Tensor | None
) -> None:
    if isinstance(score_bound, bool) or not isinstance(score_bound, (int, float)):
        raise ValueError(f"score_bound is {score_bound!r}; give a number, or None")
    if not 0 <= score_bound <= LARGEST_BOUND:
        raise ValueError(
            f"score_bound is {score_bound!r}; give a number from 0 to {LARGEST_BOUND:g}, or None "
            "to have the range measured"
        )
    if not _values_can_be_read(target_score):
        return
    if source_mask is not None:  # what stands at masked sources does not matter
        source_score = source_score[source_mask]
    for name, score in (("target_score", target_score), ("source_score", source_score)):
        if score.numel() == 0:
            continue
        largest = float(score.detach().abs().max())
        # one rounding above the bound is the dtype's doing; NaN passes, the result shows it
        if largest > score_bound * (1 + 2 * torch.finfo(score.dtype).eps):
            raise ValueError(
                f"{name} reaches {largest:g} but score_bound promises {score_bound:g}; "
                "squash the scores, raise the bound, or pass None to have the range measured"
            )


def _check_floating(name: str, tensor: Tensor, values: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; give a tensor")
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{name} has dtype {tensor.dtype}; give a floating dtype: {name}.float()")
    _check_device(name, tensor, values)


def _check_device(name: str, tensor: Tensor, values: Tensor) -> None:
    if tensor.device != values.device:
        raise ValueError(
            f"{name} is on {tensor.device} but values on {values.device}; move one to the other"
        )


def _values_can_be_read(tensor: Tensor) -> bool:
    """True in eager mode on the CPU: elsewhere a look at values would break a graph or wait."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
