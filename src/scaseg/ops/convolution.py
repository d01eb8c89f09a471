"""A convolution whose weight gradient is a few large matrix products.

cuDNN computes the weight gradient of a wide dilated convolution tens of times slower than its
forward pass: of the 93 ms of a training step of the paper's network, 69 (docs/speed.md). As a sum
over neurons it is a matrix product: gradients (neurons, O) times the maps that each tap of the
kernel sees (neurons, taps * I), a row of taps at a time so that they need not all be held.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Pair = tuple[int, int]


def weight_gradient(x: Tensor, grad: Tensor, kernel: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Return the gradient of a convolution's weight, of stride 1 and one group.

    x (B, I, H, W), gradient of the result (B, O, H', W') -> (O, I, *kernel), channels last.
    """
    neurons = grad.permute(0, 2, 3, 1)  # (B, H', W', O)
    height, width = neurons.shape[1:3]
    rows = neurons.reshape(-1, neurons.shape[-1])
    (above, beside), (down, right) = padding, dilation
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, beside, beside, above, above))
    found = []
    for y in range(kernel[0]):
        lines = padded[:, y * down : y * down + height]
        seen = [lines[:, :, z * right : z * right + width] for z in range(kernel[1])]
        columns = torch.cat(seen, dim=-1).flatten(0, 2)  # (neurons, taps of a row * I)
        found.append(rows.T @ columns)
    weight = torch.stack(found, dim=1)  # (O, taps of a column, taps of a row * I)
    return weight.unflatten(2, (kernel[1], x.shape[1])).permute(0, 3, 1, 2)


class TapConvolution(Function):
    """F.conv2d of stride 1 and one group, with `weight_gradient`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, dilation: Pair
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = None if bias is None else list(bias.shape)
        ctx.shape = padding, dilation
        return F.conv2d(x, weight, bias, padding=padding, dilation=dilation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        padding, dilation = ctx.shape
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        # a second backward pass needs the derivatives that torch knows
        by_torch = of_weight and torch.is_grad_enabled()
        grad_x, grad_weight, grad_bias = torch.ops.aten.convolution_backward(
            grad, x, weight, ctx.bias, [1, 1], list(padding), list(dilation), False, [0, 0], 1,
            [of_x, by_torch, of_bias and ctx.bias is not None],
        )  # fmt: skip
        if of_weight and not by_torch:
            kernel = weight.shape[2], weight.shape[3]
            grad_weight = weight_gradient(x, grad, kernel, padding, dilation)
        return grad_x, grad_weight, grad_bias, None, None
