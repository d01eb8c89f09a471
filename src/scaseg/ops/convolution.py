"""A convolution as a few large matrix products, and the gradients of its weight and input.

cuDNN computes a wide dilated convolution at two thirds of the speed of matrix products, and the
gradient of its weight, unless it may search, at a twentieth (docs/speed.md). Products take the
maps that each tap of the kernel sees, side by side: (neurons, taps * I), for some images or some
taps at a time, so that they need not all be held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from scaseg.ops.kernels.support import unsupported

Pair = tuple[int, int]
AT_ONCE = 5 << 26  # elements of what the taps see: 4 images of the paper's fc6, 630 MB


def as_products(x: Tensor) -> bool:
    """Whether products are the faster form: in low precision, on a GPU that has Triton."""
    low = x.dtype in (torch.bfloat16, torch.float16)
    return low and x.is_cuda and unsupported("cuda", x.dtype, "exp", None, 1) is None


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, dilation: Pair
) -> Tensor:
    """F.conv2d of stride 1 and one group, as products."""
    maps, matrix = _channels_last(x), _matrix(weight)
    kernel, size = _kernel(weight), _size(x, weight, padding, dilation)
    shape = len(x), len(weight), *size
    # not a view of what is computed: what follows may change the result in place
    found = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    rows = found.permute(0, 2, 3, 1)
    for some in _images(len(x), size[0] * size[1] * matrix.shape[1]):
        columns = _columns(maps[some], size, kernel, padding, dilation)
        out = rows[some].flatten(0, 2)
        if bias is None:
            torch.mm(columns, matrix.T, out=out)
        else:
            torch.addmm(bias, columns, matrix.T, out=out)
    return found


def input_gradient(
    grad: Tensor, x: Tensor, weight: Tensor, padding: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient of a convolution's input x, of stride 1 and one group."""
    maps, matrix, rows = _channels_last(x), _matrix(weight), _channels_last(grad)
    kernel, size = _kernel(weight), (rows.shape[1], rows.shape[2])
    found = torch.empty_like(maps)
    for some in _images(len(x), size[0] * size[1] * matrix.shape[1]):
        columns = torch.mm(rows[some].flatten(0, 2), matrix)
        if x.is_cuda:
            from scaseg.ops.kernels.columns import Window, add_up

            window = Window(kernel, padding, dilation, 0, kernel[0] * kernel[1])
            add_up(columns, found[some], size, window)
        else:
            found[some] = _folded(columns, found[some].shape, size, kernel, padding, dilation)
    return found.permute(0, 3, 1, 2)


def weight_gradient(x: Tensor, grad: Tensor, kernel: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Return the gradient of a convolution's weight, of stride 1 and one group.

    x (B, I, H, W), gradient of the result (B, O, H', W') -> (O, I, *kernel), channels last.
    """
    maps, neurons = _channels_last(x), _channels_last(grad)
    size, rows = (neurons.shape[1], neurons.shape[2]), neurons.flatten(0, 2)
    found = x.new_empty((rows.shape[1], kernel[0], kernel[1] * x.shape[1]))
    for y in range(kernel[0]):  # a row of taps at a time
        columns = _columns(maps, size, kernel, padding, dilation, slice(y, y + 1))
        torch.mm(rows.T, columns, out=found[:, y])
    return found.unflatten(2, (kernel[1], x.shape[1])).permute(0, 3, 1, 2)


def _columns(
    maps: Tensor, size: Pair, kernel: Pair, padding: Pair, dilation: Pair, taps: slice = slice(None)
) -> Tensor:
    """What the taps, or some rows of them, see of maps (B, H, W, I): (B * H' * W', taps * I)."""
    lines = range(kernel[0])[taps]
    if as_products(maps):
        from scaseg.ops.kernels.columns import Window, gather

        counted = lines[0] * kernel[1], len(lines) * kernel[1]
        return gather(maps, size, Window(kernel, padding, dilation, *counted))
    (above, beside), (down, right) = padding, dilation
    padded = F.pad(maps, (0, 0, beside, beside, above, above))
    seen = [
        padded[:, y * down : y * down + size[0], z * right : z * right + size[1]]
        for y in lines
        for z in range(kernel[1])
    ]
    return torch.cat(seen, dim=-1).flatten(0, 2)


def _folded(
    columns: Tensor, shape: torch.Size, size: Pair, kernel: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """Add up `_columns` again: (B * H' * W', taps * I) -> (B, H, W, I)."""
    (above, beside), (down, right) = padding, dilation
    batch, height, width, features = shape
    padded = columns.new_zeros(
        (batch, height + 2 * above, width + 2 * beside, features), dtype=torch.float32
    )
    seen = columns.view(batch, *size, kernel[0], kernel[1], features)
    for y in range(kernel[0]):
        for z in range(kernel[1]):
            part = padded[:, y * down : y * down + size[0], z * right : z * right + size[1]]
            part += seen[:, :, :, y, z]
    return padded[:, above : above + height, beside : beside + width].to(columns.dtype)


def _channels_last(x: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, H, W, C), contiguous."""
    return x.permute(0, 2, 3, 1).contiguous()


def _matrix(weight: Tensor) -> Tensor:
    """(O, I, h, w) -> (O, h * w * I)."""
    return weight.permute(0, 2, 3, 1).reshape(len(weight), -1)


def _kernel(weight: Tensor) -> Pair:
    return weight.shape[2], weight.shape[3]


def _size(x: Tensor, weight: Tensor, padding: Pair, dilation: Pair) -> Pair:
    """Height and width of the result."""
    height, width = (
        x.shape[axis] + 2 * padding[axis - 2] - dilation[axis - 2] * (weight.shape[axis] - 1)
        for axis in (2, 3)
    )
    return height, width


def _images(count: int, elements: int) -> Iterator[slice]:
    """Stretches of images, each with so many elements of columns, of AT_ONCE at most."""
    step = max(1, AT_ONCE // max(1, elements))
    return (slice(first, first + step) for first in range(0, count, step))


class TapConvolution(Function):
    """F.conv2d of stride 1 and one group, as products where they are faster."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, dilation: Pair
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = None if bias is None else list(bias.shape)
        ctx.shape = padding, dilation
        if as_products(x):
            return convolve(x, weight, bias, padding, dilation)
        return F.conv2d(x, weight, bias, padding=padding, dilation=dilation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        padding, dilation = ctx.shape
        of_x, of_weight, of_bias = ctx.needs_input_grad[:3]
        # a second backward pass needs the derivatives that torch knows
        again = torch.is_grad_enabled()
        by_torch = of_x and (again or not as_products(x)), of_weight and again
        grad_x, grad_weight, grad_bias = torch.ops.aten.convolution_backward(
            grad, x, weight, ctx.bias, [1, 1], list(padding), list(dilation), False, [0, 0], 1,
            [*by_torch, of_bias and ctx.bias is not None],
        )  # fmt: skip
        if of_x and not by_torch[0]:
            grad_x = input_gradient(grad, x, weight, padding, dilation)
        if of_weight and not by_torch[1]:
            grad_weight = weight_gradient(x, grad, _kernel(weight), padding, dilation)
        return grad_x, grad_weight, grad_bias, None, None
