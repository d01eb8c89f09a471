"""What the kernels can compute, and where; imports no Triton."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec

import torch

from scaseg.errors import UserError

CODES = {"sigmoid": 0, "softplus": 1, "exp": 2, "identity": 3, "relu": 4}
BOUNDED = ("sigmoid", "softplus")
# Up to here no row needs to be lifted: phi(s + t) >= e^-19 > eps (activation.tail)
LARGEST_BOUND = 9.5
MOST_CHANNELS = 32


def unsupported(
    device: str,
    dtype: torch.dtype,
    activation: str,
    score_bound: float | None,
    pair_channels: int,
) -> str | None:
    """Say why the kernels cannot compute something; None if they can."""
    # not torch.compiler.is_exporting(): before torch 2.13 it is true for torch.compile as well
    if getattr(torch.compiler, "_is_exporting_flag", False):
        return "an exported program may run anywhere"
    missing = _missing(device)
    if missing is not None:
        return missing
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"no kernel for {dtype}"
    if activation in BOUNDED and (score_bound is None or score_bound > LARGEST_BOUND):
        return f"{activation} needs a score_bound of at most {LARGEST_BOUND:g}, not {score_bound}"
    if activation == "relu" and pair_channels > 1:
        return f"no kernel for relu and {pair_channels} pair channels"
    if pair_channels > MOST_CHANNELS:
        return f"{pair_channels} pair channels are more than {MOST_CHANNELS}"
    return None


def check_differentiated_once() -> None:
    """Raise UserError in a backward pass that is to be differentiated again: it would be wrong."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        problem = "triton: its gradients cannot be differentiated again (create_graph=True)"
        raise UserError("backend", problem, 'use "linear"')


def _missing(device: str) -> str | None:
    return _look(device, os.environ.get("TRITON_INTERPRET") == "1")


# All that torch.compiler.assume_constant_result does, which imports the compiler: two seconds
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache
def _look(device: str, interpreted: bool) -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed"
    if interpreted:
        return None
    if device != "cuda":
        return f"they run on CUDA, not on {device}"
    if torch.version.hip is not None or torch.cuda.get_device_capability() < (8, 0):
        return "they need an NVIDIA GPU of compute capability 8.0 or newer"
    return None
