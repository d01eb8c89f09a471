"""Checks of arguments; torch.compile and torch.export trace through them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scaseg.errors import UserError

# A promise so wide that the interpolation would need thousands of nodes is not worth having.
LARGEST_BOUND = 1000.0
# Of channels: more cannot be meant, and would take minutes to build, or all of the memory.
MOST = 2**14
MOST_PAIRS = 2**10  # of pair channels: 4 to 32 are usual, and every neuron pays for each
MAY_BE_EMPTY = ("B", "target", "M")


def check_tensor(
    name: str,
    tensor: object,
    *wanted: int | str,
    kind: str = "floating",
    like: Tensor | None = None,
    hint: str = "",
) -> None:
    """Raise UserError unless a tensor is of a kind (floating, bool) and has the sizes wanted.

    A size is a number, or a name for any number (0 only if MAY_BE_EMPTY). `like`: the values, on
    whose device it must be.
    """

    def wrong(problem: str) -> UserError:  # sizes are spelt out here only: a graph would pin them
        sizes = str(wanted).replace("'", "")
        return UserError(name, problem, f"give a {kind} tensor {sizes}" + (hint and f": {hint}"))

    if not isinstance(tensor, Tensor):
        raise wrong(f"a {type(tensor).__name__}")
    if not (tensor.dtype == torch.bool if kind == "bool" else tensor.dtype.is_floating_point):
        raise wrong(f"dtype {tensor.dtype}")
    if tensor.dim() != len(wanted):
        raise wrong(f"shape {tuple(tensor.shape)}")
    for found, size in zip(tensor.shape, wanted, strict=True):
        if found != size if not isinstance(size, str) else found == 0 and size not in MAY_BE_EMPTY:
            raise wrong(f"shape {tuple(tensor.shape)}")
    if like is not None and tensor.device != like.device:
        problem = f"on {tensor.device}, but values is on {like.device}"
        raise UserError(name, problem, "move one to the other")


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
    several = isinstance(target_score, Tensor) and target_score.dim() == 3  # pair channels
    hint = "(B, target) for one pair channel, (B, target, R) for R"
    wanted = (batch, "target", "R") if several else (batch, "target")
    check_tensor("target_score", target_score, *wanted, like=values, hint=hint)
    rest = target_score.shape[2:]
    hint = "flatten features and scores from the same map"
    check_tensor("source_score", source_score, batch, sources, *rest, like=values, hint=hint)
    _check_exclude_self(exclude_self, target_score.shape[1], sources)
    if channel_weight is not None:
        channels = rest[0] if rest else 1
        hint = "a weight for each pair channel"
        check_tensor("channel_weight", channel_weight, channels, like=values, hint=hint)
        if _values_can_be_read(channel_weight) and bool((channel_weight < 0).any()):
            problem = f"a negative entry ({float(channel_weight.detach().min()):g})"
            raise UserError("channel_weight", problem, "pass it through softplus or exp")
    if score_bound is not None:
        check_number("score_bound", score_bound, 0, LARGEST_BOUND)
        _check_promise(score_bound, target_score, source_score, source_mask)


def check_values(values: Tensor, source_mask: Tensor | None) -> None:
    """Raise UserError unless values are (B, source, M) and the mask fits them."""
    hint = "x.flatten(2).transpose(1, 2) makes it of a feature map (B, M, H, W)"
    check_tensor("values", values, "B", "source", "M", hint=hint)
    if source_mask is not None:
        hint = "True where a source counts"
        check_tensor(
            "source_mask", source_mask, *values.shape[:2], kind="bool", like=values, hint=hint
        )


def check_coefficients(values: Tensor, coefficients: Tensor, exclude_self: bool) -> None:
    """Raise UserError unless a coefficient matrix (B or 1, target, source) fits the values."""
    batch, sources, _ = values.shape
    if isinstance(coefficients, Tensor) and coefficients.shape[:1] == (1,):
        batch = 1  # one matrix for all images
    hint = "a row for each target, a column for each source"
    check_tensor("coefficients", coefficients, batch, "target", sources, like=values, hint=hint)
    _check_exclude_self(exclude_self, coefficients.shape[1], sources)


def check_whole_number(name: str, value: object, least: int, most: int = MOST) -> None:
    """Raise UserError unless value is an int from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(name, f"{value!r}", f"give a whole number from {least} to {most}")


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> None:
    """Raise UserError unless value is a finite number from `least` to `most`."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not known or not least <= value <= most:  # type: ignore[operator]
        limits = "" if least == -math.inf else f" >= {least:g}"
        limits = limits if most == math.inf else f" from {least:g} to {most:g}"
        raise UserError(name, f"{value!r}", f"give a number{limits}, or None")


def check_bool(name: str, value: object) -> None:
    """Raise UserError unless value is True or False."""
    if not isinstance(value, bool):
        raise UserError(name, f"{value!r}", "give True or False")


def _check_exclude_self(exclude_self: bool, targets: int, sources: int) -> None:
    if exclude_self and targets != sources:
        problem = f"True, but {targets} targets are not the {sources} sources"
        raise UserError("exclude_self", problem, "give False when context comes from elsewhere")


def _check_promise(
    score_bound: float, target_score: Tensor, source_score: Tensor, source_mask: Tensor | None
) -> None:
    if not _values_can_be_read(target_score):
        return
    if source_mask is not None:  # what stands at masked sources does not matter
        source_score = source_score[source_mask]
    for name, score in (("target_score", target_score), ("source_score", source_score)):
        largest = float(score.detach().abs().max()) if score.numel() else 0.0
        # one rounding above the bound is the dtype's doing; NaN passes, the result shows it
        if largest > score_bound * (1 + 2 * torch.finfo(score.dtype).eps):
            problem = f"reaches {largest:g} but score_bound promises {score_bound:g}"
            fits = "squash the scores, raise the bound, or pass None to have the range measured"
            raise UserError(name, problem, fits)


def _values_can_be_read(tensor: Tensor) -> bool:
    """True in eager mode on the CPU: elsewhere reading values would break a graph or wait."""
    is_eager = tensor.device.type == "cpu" and not torch.compiler.is_compiling()
    return is_eager and not is_vmapped(tensor)


def is_vmapped(tensor: Tensor) -> bool:
    """Whether torch.func.vmap runs over it: then no value of it can be read."""
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False
