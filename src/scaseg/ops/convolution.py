"""A convolution as a few large matrix products, and the gradients of its weight and input.

cuDNN computes a wide dilated convolution at two thirds of the speed of matrix products, and the
gradient of its weight, unless it may search, at a twentieth (docs/speed.md). Products take the
maps that each tap of the kernel sees, side by side: (neurons, taps * I), for some lines of all
images or one row of taps at a time, so that they need not all be held. Lines lie before images,
(H, B, W, I), so that those of which a row of taps sees no padding lie side by side: what would be
multiplied by the zeros above and below a map is left out, an eighth of the paper's fc6.
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
AT_ONCE = 5 << 26  # elements of what the taps see: 630 MB
ROWS = 7000  # neurons of a product that still fills a GPU
DENSE = torch.contiguous_format


def as_products(x: Tensor) -> bool:
    """Whether products are the faster form: in low precision, on a GPU that has Triton.

    Not under torch.func, whose transformations want to see each step.
    """
    if x.dtype not in (torch.bfloat16, torch.float16) or not x.is_cuda:
        return False
    seen = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return not seen and unsupported("cuda", x.dtype, "exp", None, 1) is None


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Pair, dilation: Pair
) -> Tensor:
    """F.conv2d of stride 1 and one group, as products."""
    maps, matrix = _lines_first(x), weight.permute(0, 2, 3, 1).flatten(1)  # (O, h * w * I)
    kernel, (height, width) = _kernel(weight), _size(x, weight, padding, dilation)
    shape = len(x), len(weight), height, width
    # not a view of what is computed: what follows may change the result in place
    found = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    result = found.permute(2, 0, 3, 1)
    rows = result if result.is_contiguous() else torch.empty_like(result, memory_format=DENSE)
    row = matrix.shape[1] // kernel[0]  # elements of a row of taps
    neurons = len(x) * width
    for start, stop in _stretches(height, neurons, matrix.shape[1], height * neurons // ROWS):
        out = rows[start:stop].flatten(0, 2)
        seen = _rows_inside(start, stop, len(maps), kernel, padding, dilation)
        if seen[0] >= seen[1]:  # padding alone
            out.copy_(out.new_zeros(1) if bias is None else bias)
            continue
        columns = _columns(maps, (start, stop), width, seen, kernel, padding, dilation)
        taps = matrix[:, seen[0] * row : seen[1] * row].T
        if bias is None:
            torch.mm(columns, taps, out=out)
        else:
            torch.addmm(bias, columns, taps, out=out)
    if rows is not result:
        _wide(result).copy_(_wide(rows))
    return found


def input_gradient(
    rows: Tensor, x: Tensor, weight: Tensor, padding: Pair, dilation: Pair
) -> Tensor:
    """Return the gradient of a convolution's input x, of stride 1 and one group.

    rows (H', B, W', O): the gradient of its result, lines first.
    """
    kernel, (height, batch, width, _) = _kernel(weight), rows.shape
    shape = x.shape[2], batch, x.shape[3], x.shape[1]
    found = x.new_zeros(shape, dtype=torch.promote_types(x.dtype, torch.float32))
    for y, matrix in enumerate(weight.permute(2, 0, 3, 1).flatten(2)):  # (O, w * I)
        first, last = _lines_inside(y, height, len(found), padding, dilation)
        for start, stop in _stretches(last - first, batch * width, matrix.shape[1]):
            start, stop = first + start, first + stop
            columns = torch.mm(rows[start:stop].flatten(0, 2), matrix)
            top = y * dilation[0] - padding[0]
            _add_up(columns, found[start + top : stop + top], width, kernel, padding, dilation)
    return found.permute(1, 3, 0, 2).to(x.dtype, memory_format=torch.channels_last)


def weight_gradient(x: Tensor, rows: Tensor, kernel: Pair, padding: Pair, dilation: Pair) -> Tensor:
    """Return the gradient of a convolution's weight, of stride 1 and one group.

    x (B, I, H, W), gradient of the result (H', B, W', O), lines first -> (O, I, *kernel), channels
    last.
    """
    maps, (height, _, width, features) = _lines_first(x), rows.shape
    found = x.new_zeros((features, kernel[0], kernel[1] * x.shape[1]))
    for y in range(kernel[0]):  # a row of taps at a time
        start, stop = _lines_inside(y, height, len(maps), padding, dilation)
        if start < stop:
            lines, seen = (start, stop), (y, y + 1)
            columns = _columns(maps, lines, width, seen, kernel, padding, dilation)
            torch.mm(rows[start:stop].flatten(0, 2).T, columns, out=found[:, y])
    return found.unflatten(2, (kernel[1], x.shape[1])).permute(0, 3, 1, 2)


def _columns(
    maps: Tensor, lines: Pair, width: int, rows: Pair, kernel: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    """What some rows of taps see of maps (H, B, W, I) for some lines of the result.

    lines, rows: from, to. -> (lines * B * width, rows * taps of a row * I).
    """
    (start, stop), (first, last) = lines, rows
    (above, beside), (down, right) = padding, dilation
    top = start + first * down - above
    if as_products(maps):
        from scaseg.ops.kernels.columns import Window, gather

        shape = stop - start, width, top, last - first, kernel[1], beside
        return gather(maps, Window(*shape, dilation))
    padded = F.pad(maps, (0, 0, beside, beside, 0, 0, above, above))
    seen = [
        padded[start + y * down : stop + y * down, :, z * right : z * right + width]
        for y in range(first, last)
        for z in range(kernel[1])
    ]
    return torch.cat(seen, dim=-1).flatten(0, 2)


def _add_up(
    columns: Tensor, lines: Tensor, width: int, kernel: Pair, padding: Pair, dilation: Pair
) -> None:
    """Add to lines (lines, B, W, I) what one row of taps saw of them: `_columns`."""
    beside, right = padding[1], dilation[1]
    if lines.is_cuda:
        from scaseg.ops.kernels.columns import Window, add_up

        add_up(columns, lines, Window(len(lines), width, 0, 1, kernel[1], beside, dilation))
        return
    padded = F.pad(lines, (0, 0, beside, beside))
    seen = columns.view(*lines.shape[:2], width, kernel[1], lines.shape[3])
    for z in range(kernel[1]):
        padded[:, :, z * right : z * right + width] += seen[:, :, :, z]
    lines.copy_(padded[:, :, beside : beside + lines.shape[2]])


def _lines_first(x: Tensor) -> Tensor:
    """(B, C, H, W) -> (H, B, W, C), contiguous."""
    return _wide(x.permute(2, 0, 3, 1)).contiguous().view(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """The same memory as 8-byte elements, if it can be: torch copies one element at a time."""
    size = 8 // x.element_size()
    apart = [x.storage_offset(), x.shape[-1], *x.stride()[:-1]]
    able = x.stride(-1) == 1 and not any(one % size for one in apart)
    return x.view(torch.int64) if able else x


def _kernel(weight: Tensor) -> Pair:
    return weight.shape[2], weight.shape[3]


def _size(x: Tensor, weight: Tensor, padding: Pair, dilation: Pair) -> Pair:
    """Height and width of the result."""
    height, width = (
        x.shape[axis] + 2 * padding[axis - 2] - dilation[axis - 2] * (weight.shape[axis] - 1)
        for axis in (2, 3)
    )
    return height, width


def _lines_inside(y: int, lines: int, height: int, padding: Pair, dilation: Pair) -> Pair:
    """Lines of the result, from and to, for which row y of the taps sees a map of a height."""
    top = y * dilation[0] - padding[0]
    return max(0, -top), max(0, -top, min(lines, height - top))


def _rows_inside(
    start: int, stop: int, height: int, kernel: Pair, padding: Pair, dilation: Pair
) -> Pair:
    """Rows of taps, from and to, that see a map of a height for some lines of the result."""
    above, down = padding[0], dilation[0]
    first = max(0, -(-(above - stop + 1) // down))
    return first, min(kernel[0], (height - 1 + above - start) // down + 1)


def _stretches(lines: int, neurons: int, elements: int, least: int = 1) -> Iterator[Pair]:
    """Stretches of lines, from and to: `least` or so, more if AT_ONCE elements of columns say so.

    A line has so many neurons, and a neuron so many elements.
    """
    count = max(least, -(-lines * neurons * elements // AT_ONCE), 1)
    step = max(1, -(-lines // count))
    return ((start, min(start + step, lines)) for start in range(0, lines, step))


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
        if not all(by_torch):
            rows = _lines_first(grad)
        if of_x and not by_torch[0]:
            grad_x = input_gradient(rows, x, weight, padding, dilation)
        if of_weight and not by_torch[1]:
            grad_weight = weight_gradient(x, rows, _kernel(weight), padding, dilation)
        return grad_x, grad_weight, grad_bias, None, None
