"""Checks of arguments; torch.compile and torch.export trace through them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from scaseg.errors import UserError

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
    """Raise UserError unless the arguments of `selective_context` fit together."""
    check_values(values, source_mask)
    batch, sources, _ = values.shape
    _check_floating("target_score", target_score, values)
    _check_floating("source_score", source_score, values)
    if target_score.dim() not in (2, 3) or 0 in target_score.shape[2:]:
        fits = "give (B, target), or (B, target, R) for R >= 1 pair channels"
        raise UserError("target_score", f"shape {shape(target_score)}", fits)
    if target_score.shape[0] != batch:
        raise UserError(
            "target_score",
            f"a batch of {target_score.shape[0]}, but values has {batch}",
            "give each image its own scores",
        )
    rest = target_score.shape[2:]
    if source_score.shape != (batch, sources, *rest):
        raise UserError(
            "source_score",
            f"shape {shape(source_score)}, but values {shape(values)} and target_score "
            f"{shape(target_score)} call for {(batch, sources, *rest)}",
            "flatten features and scores from the same map",
        )
    _check_exclude_self(exclude_self, target_score.shape[1], sources)
    if channel_weight is not None:
        _check_floating("channel_weight", channel_weight, values)
        channels = rest[0] if rest else 1
        if channel_weight.shape != (channels,):
            raise UserError(
                "channel_weight",
                f"shape {shape(channel_weight)}, but the scores have {channels} pair channel(s)",
                f"give shape ({channels},)",
            )
        if _values_can_be_read(channel_weight) and bool((channel_weight < 0).any()):
            raise UserError(
                "channel_weight",
                f"a negative entry ({float(channel_weight.detach().min()):g})",
                "give non-negative weights: pass them through softplus or exp",
            )
    if score_bound is not None:
        check_number("score_bound", score_bound, 0, LARGEST_BOUND)
        _check_promise(score_bound, target_score, source_score, source_mask)


def check_values(values: Tensor, source_mask: Tensor | None) -> None:
    """Raise UserError unless values are (B, source, M) and the mask fits them."""
    if not isinstance(values, Tensor):
        raise UserError("values", f"a {type(values).__name__}", "give a tensor (B, source, M)")
    if values.dim() != 3 or values.shape[1] == 0:
        raise UserError(
            "values",
            f"shape {shape(values)}",
            "give (B, source, M) with at least one source: x.flatten(2).transpose(1, 2) turns a "
            "feature map (B, M, H, W) into it",
        )
    _check_floating("values", values, values)
    if source_mask is not None:
        check_mask("source_mask", source_mask, values.shape[:2], "give one entry for each source")
        _check_device("source_mask", source_mask, values)


def check_coefficients(values: Tensor, coefficients: Tensor, exclude_self: bool) -> None:
    """Raise UserError unless a coefficient matrix fits the values."""
    _check_floating("coefficients", coefficients, values)
    batch, sources, _ = values.shape
    if (
        coefficients.dim() != 3
        or coefficients.shape[0] not in (1, batch)
        or coefficients.shape[2] != sources
    ):
        batches = "1" if batch == 1 else f"{batch} or 1"
        raise UserError(
            "coefficients",
            f"shape {shape(coefficients)}, but values {shape(values)} call for "
            f"({batches}, target, {sources})",
            "give a row for each target, a column for each source",
        )
    _check_exclude_self(exclude_self, coefficients.shape[1], sources)


def check_mask(name: str, mask: object, wanted: Sequence[int], remedy: str) -> None:
    """Raise UserError unless a mask is a bool tensor of the wanted shape."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise UserError(name, f"{found}", "give a bool tensor, True where a source counts")
    if mask.shape != tuple(wanted):
        raise UserError(name, f"shape {shape(mask)}, but {tuple(wanted)} is needed", remedy)


def check_whole_number(name: str, value: object, least: int, most: int = MOST) -> None:
    """Raise UserError unless value is an int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(name, f"{value!r}", f"give a whole number from {least} to {most}")


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> None:
    """Raise UserError unless value is a finite number from `least` to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not (least <= value <= most and math.isfinite(value))
    ):
        limits = f" >= {least:g}" if least > -math.inf else ""
        if most < math.inf:
            limits = f" from {least:g} to {most:g}"
        raise UserError(name, f"{value!r}", f"give a number{limits}, or None")


def check_bool(name: str, value: object) -> None:
    """Raise UserError unless value is True or False."""
    if not isinstance(value, bool):
        raise UserError(name, f"{value!r}", "give True or False")


def shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor as error messages write it: (2, 3)."""
    return tuple(tensor.shape)


def _check_exclude_self(exclude_self: bool, targets: int, sources: int) -> None:
    if exclude_self and targets != sources:
        raise UserError(
            "exclude_self",
            f"True, but {targets} targets are not the {sources} sources",
            "pass exclude_self=False when context comes from elsewhere",
        )


def _check_promise(
    score_bound: float, target_score: Tensor, source_score: Tensor, source_mask: Tensor | None
) -> None:
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
            raise UserError(
                name,
                f"reaches {largest:g} but score_bound promises {score_bound:g}",
                "squash the scores, raise the bound, or pass None to have the range measured",
            )


def _check_floating(name: str, tensor: object, values: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise UserError(name, f"a {type(tensor).__name__}", "give a tensor")
    if not tensor.dtype.is_floating_point:
        raise UserError(name, f"dtype {tensor.dtype}", f"give a floating dtype: {name}.float()")
    _check_device(name, tensor, values)


def _check_device(name: str, tensor: Tensor, values: Tensor) -> None:
    if tensor.device != values.device:
        raise UserError(
            name, f"on {tensor.device}, but values is on {values.device}", "move one to the other"
        )


def _values_can_be_read(tensor: Tensor) -> bool:
    """True in eager mode on the CPU: elsewhere reading values would break a graph or wait."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
