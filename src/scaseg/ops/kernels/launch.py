"""Launch kernels without Triton's own search for the compiled one, which takes most of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_COMPILED: dict[Any, tuple[Any, tuple[Any, ...]]] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    pointers: Sequence[Tensor],
    sized: Sequence[int],
    plain: Sequence[float],
    constants: dict[str, Any],
    *,
    dtypes: tuple[torch.dtype, ...],
    warps: int,
) -> None:
    """Run a kernel on the tensors' device; its arguments are in this order.

    Triton compiles one for each of: `dtypes` of the pointers that vary; whether pointers and
    `sized` numbers are divisible by 16, 1, or larger than 32 bits; the constants. `plain` numbers
    make no difference.
    """
    place = pointers[0].device
    if place.type != "cuda":  # the interpreter
        kernel[grid](*pointers, *sized, *plain, **constants)
        return
    if place.index != torch.cuda.current_device():
        with torch.cuda.device(place):
            launch(kernel, grid, pointers, sized, plain, constants, dtypes=dtypes, warps=warps)
        return
    addresses = [pointer.data_ptr() for pointer in pointers]
    odd = 0
    for number in (*addresses, *sized):
        odd = odd << 3 | (number % 16 != 0) | (number == 1) << 1 | (number >> 31 > 0) << 2
    key = (id(kernel), place.index, dtypes, odd, warps, *constants.values())
    found = _COMPILED.get(key)
    if found is None:
        compiled = kernel[grid](*pointers, *sized, *plain, **constants, num_warps=warps)
        names = kernel.arg_names[len(pointers) + len(sized) + len(plain) :]
        _COMPILED[key] = compiled, tuple(constants[name] for name in names)
        return
    compiled, values = found
    compiled[grid](*addresses, *sized, *plain, *values)
