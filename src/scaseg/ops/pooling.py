"""A 2 x 2 max pool without indices: torch keeps 8 bytes for each result, and searches for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

LAST = torch.channels_last
ELEMENTS = 2048  # results of a program


class MaxPool(Function):
    """F.max_pool2d(x, 2) by kernels: x (B, C, H, W) -> (B, C, H // 2, W // 2), channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        from scaseg.ops.kernels import device_pool

        x = x.contiguous(memory_format=LAST)
        shape = *x.shape[:2], x.shape[2] // 2, x.shape[3] // 2
        out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=LAST)
        _launch(device_pool.pool, (out, x), x, out)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second backward pass needs what torch knows
            window = [2, 2], [2, 2], [0, 0], [1, 1], False
            places = torch.ops.aten.max_pool2d_with_indices(x, *window)[1]
            return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, *window, places)
        from scaseg.ops.kernels import device_pool

        grad = grad.contiguous(memory_format=LAST)
        whole = x.shape[2] % 2 == x.shape[3] % 2 == 0  # else no window has the last row or column
        found = torch.empty_like(x) if whole else torch.zeros_like(x)
        _launch(device_pool.pool_gradient, (found, grad, x), x, grad)
        return found


def _launch(kernel: Any, pointers: tuple[Tensor, ...], x: Tensor, out: Tensor) -> None:
    from scaseg.ops.kernels.launch import launch

    batch, features, height, width = out.shape
    count, constants = batch * height * width, _constants(features)
    launch(
        kernel,
        (-(-count // constants["BLOCK"]), -(-features // constants["BLOCK_C"]), 1),
        pointers,
        (features,),
        (*x.shape[2:], height, width, count),
        constants,
        dtypes=(x.dtype,),
    )


@lru_cache(maxsize=64)
def _constants(features: int) -> dict[str, int]:
    from scaseg.ops.kernels.tiles import features_of_a_tile

    width = features_of_a_tile(features)
    return {"BLOCK": ELEMENTS // width, "BLOCK_C": width}
