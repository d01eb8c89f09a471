"""A convolution with its bias and ReLU as one step, and back in one pass over the map.

torch computes conv2d, adds the bias and rectifies: on a GPU three passes over a map, and three
more on the way back. cuDNN does the first three at once; a kernel takes the gradient past the ReLU
and adds up that of the bias (docs/speed.md).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.convolution import Pair, as_products


class RectifiedConvolution(Function):
    """relu(F.conv2d(...)) of stride 1 and one group."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: Pair, dilation: Pair
    ) -> Tensor:
        if x.is_cuda:
            out = torch.cudnn_convolution_relu(x, weight, bias, [1, 1], padding, dilation, 1)
        else:
            out = F.conv2d(x, weight, bias, padding=padding, dilation=dilation).relu_()
        ctx.save_for_backward(x, weight, out)
        ctx.shape = padding, dilation
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, out = ctx.saved_tensors
        padding, dilation = ctx.shape
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        grad_bias = None
        # a second backward pass needs the derivatives that torch knows
        if as_products(out) and not torch.is_grad_enabled():
            from scaseg.ops.kernels.rectified import rectified_gradient

            grad, grad_bias = rectified_gradient(grad, out)
            of_bias = False
        else:
            grad = torch.ops.aten.threshold_backward(grad, out, 0)
        grad_x, grad_weight, summed = torch.ops.aten.convolution_backward(
            grad, x, weight, [len(weight)], [1, 1], list(padding), list(dilation), False, [0, 0], 1,
            [of_x, of_weight, of_bias],
        )  # fmt: skip
        return grad_x, grad_weight, summed if grad_bias is None else grad_bias, None, None
