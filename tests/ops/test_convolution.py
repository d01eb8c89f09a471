"""Convolutions as matrix products are conv2d: results and gradients."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.ops import convolution
from scaseg.ops.convolution import TapConvolution, _lines_first, weight_gradient
from tests.ops.cases import relative_error

SHAPES = {
    "the paper's fc6, narrow": ((2, 8, 13, 17), 12, (7, 7), (12, 12), (4, 4)),
    "dilation beyond the map": ((1, 3, 5, 4), 2, (3, 3), (12, 12), (12, 12)),
    "1 x 1": ((3, 4, 6, 5), 3, (1, 1), (0, 0), (1, 1)),
    "even kernel, one axis dilated": ((2, 3, 11, 9), 4, (2, 4), (1, 3), (1, 2)),
    "no padding": ((2, 3, 9, 9), 2, (3, 3), (0, 0), (2, 2)),
    "one neuron": ((1, 1, 1, 1), 1, (7, 7), (12, 12), (4, 4)),
}


def tensors(shape, dtype=torch.float64, layout=torch.contiguous_format):
    size, out, kernel, padding, dilation = SHAPES[shape]
    x = torch.randn(size, dtype=dtype).contiguous(memory_format=layout)
    weight = torch.randn(out, size[1], *kernel, dtype=dtype).contiguous(memory_format=layout)
    return [one.requires_grad_() for one in (x, weight, torch.randn(out, dtype=dtype))], {
        "padding": padding,
        "dilation": dilation,
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_those_of_conv2d(shape, layout):
    leaves, options = tensors(shape, layout=layout)
    expected = F.conv2d(*leaves, **options)
    found = TapConvolution.apply(*leaves, *options.values())
    assert torch.equal(found, expected)
    grad = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    )
    for one, other in pairs:
        assert relative_error(one, other) < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_costs_no_more_than_conv2d(dtype):
    (x, weight, bias), options = tensors("the paper's fc6, narrow")
    x, weight, bias = (one.detach() for one in (x, weight, bias))
    grad = torch.randn_like(F.conv2d(x, weight, bias, **options))
    exact = weight_gradient(x, _lines_first(grad), (7, 7), *options.values())
    low_x, low_weight, low_grad = (one.to(dtype) for one in (x, weight, grad))
    low_weight.requires_grad_()
    by_torch = torch.autograd.grad(F.conv2d(low_x, low_weight, **options), low_weight, low_grad)
    found = weight_gradient(low_x, _lines_first(low_grad), (7, 7), *options.values())
    assert found.dtype == dtype
    assert relative_error(found, exact) <= 2 * relative_error(by_torch[0], exact) + 1e-5


def test_second_derivatives():
    leaves, options = tensors("no padding")
    assert torch.autograd.gradgradcheck(
        lambda *given: TapConvolution.apply(*given, *options.values()), leaves
    )


def test_only_what_is_asked_for():
    (x, weight, _), options = tensors("no padding")
    found = TapConvolution.apply(x.detach(), weight, None, *options.values())
    (grad,) = torch.autograd.grad(found.sum(), [weight])
    expected = F.conv2d(x.detach(), weight, **options)
    assert relative_error(grad, torch.autograd.grad(expected.sum(), [weight])[0]) < 1e-13


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_conv2d(shape, monkeypatch):
    """Result and gradient of the input, line by line and all at once."""
    (x, weight, bias), options = tensors(shape)
    expected = F.conv2d(x, weight, bias, **options)
    grad = torch.randn_like(expected)
    (of_x,) = torch.autograd.grad(expected, x, grad)
    for at_once, rows in ((1, 1), (convolution.AT_ONCE, 40), (convolution.AT_ONCE, 7000)):
        monkeypatch.setattr(convolution, "AT_ONCE", at_once)
        monkeypatch.setattr(convolution, "ROWS", rows)
        with torch.no_grad():
            found = convolution.convolve(x, weight, bias, *options.values())
            back = convolution.input_gradient(_lines_first(grad), x, weight, *options.values())
        assert relative_error(found, expected.detach()) < 1e-13
        assert relative_error(back, of_x) < 1e-13


def test_a_result_of_products_may_be_changed_in_place(monkeypatch):
    """As a ReLU after it does: no view may leave a step of autograd."""
    pytest.importorskip("triton")
    monkeypatch.setattr(convolution, "as_products", lambda x: True)
    leaves, options = tensors("no padding", torch.float32)
    found = TapConvolution.apply(*leaves, *options.values()).relu_()
    expected = F.conv2d(*leaves, **options).relu()
    grad = torch.randn_like(expected)
    for one, other in zip(
        [found, *torch.autograd.grad(found, leaves, grad)],
        [expected, *torch.autograd.grad(expected, leaves, grad)],
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_lay_out_what_taps_see(shape):
    """By Triton's interpreter; on a GPU tests/gpu compares whole convolutions."""
    pytest.importorskip("triton")
    columns = pytest.importorskip("scaseg.ops.kernels.columns")
    (size, _, kernel, padding, dilation) = SHAPES[shape]
    maps = torch.randn(size).permute(2, 0, 3, 1).contiguous()
    height, width = convolution._size(
        torch.empty(size), torch.empty(1, 1, *kernel), padding, dilation
    )
    for lines, rows in (
        ((0, height), (0, kernel[0])),
        ((height // 2, height), (kernel[0] - 1,) * 2),
    ):
        first, last = rows[0], max(rows[1], rows[0] + 1)
        expected = convolution._columns(
            maps, lines, width, (first, last), kernel, padding, dilation
        )
        top = lines[0] + first * dilation[0] - padding[0]
        shape = lines[1] - lines[0], width, top, last - first, kernel[1], padding[1]
        assert torch.equal(columns.gather(maps, columns.Window(*shape, dilation)), expected)
    seen = torch.randn(len(maps) * size[0] * width, kernel[1] * size[1])
    found, expected = torch.ones_like(maps), torch.ones_like(maps)
    window = columns.Window(len(maps), width, 0, 1, kernel[1], padding[1], dilation)
    columns.add_up(seen, found, window)
    convolution._add_up(seen, expected, width, kernel, padding, dilation)
    torch.testing.assert_close(found, expected)
