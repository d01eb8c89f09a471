"""Convolutions as matrix products are conv2d: results and gradients."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.ops import convolution
from scaseg.ops.convolution import TapConvolution, weight_gradient
from tests.ops.cases import relative_error

SHAPES = {
    "the paper's fc6, narrow": ((2, 5, 13, 17), 7, (7, 7), (12, 12), (4, 4)),
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
    exact = weight_gradient(x, grad, (7, 7), *options.values())
    low_x, low_weight, low_grad = (one.to(dtype) for one in (x, weight, grad))
    low_weight.requires_grad_()
    by_torch = torch.autograd.grad(F.conv2d(low_x, low_weight, **options), low_weight, low_grad)
    found = weight_gradient(low_x, low_grad, (7, 7), *options.values())
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
    """Result and gradient of the input, image by image and all at once."""
    (x, weight, bias), options = tensors(shape)
    expected = F.conv2d(x, weight, bias, **options)
    grad = torch.randn_like(expected)
    (of_x,) = torch.autograd.grad(expected, x, grad)
    for at_once in (1, convolution.AT_ONCE):
        monkeypatch.setattr(convolution, "AT_ONCE", at_once)
        with torch.no_grad():
            found = convolution.convolve(x, weight, bias, *options.values())
            back = convolution.input_gradient(grad, x, weight, *options.values())
        assert relative_error(found, expected.detach()) < 1e-13
        assert relative_error(back, of_x) < 1e-6  # added up in float32


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
    maps = torch.randn(size).permute(0, 2, 3, 1).contiguous()
    out = convolution._size(torch.empty(size), torch.empty(1, 1, *kernel), padding, dilation)
    for lines in (slice(None), slice(kernel[0] - 1, None)):
        expected = convolution._columns(maps, out, kernel, padding, dilation, lines)
        first = range(kernel[0])[lines][0] * kernel[1]
        taps = expected.shape[1] // maps.shape[3]
        window = columns.Window(kernel, padding, dilation, first, taps)
        assert torch.equal(columns.gather(maps, out, window), expected)
    window = columns.Window(kernel, padding, dilation, 0, kernel[0] * kernel[1])
    seen = torch.randn(len(expected), window.taps * maps.shape[3])
    back = torch.full_like(maps, torch.nan)
    columns.add_up(seen, back, out, window)
    expected = convolution._folded(seen, maps.shape, out, kernel, padding, dilation)
    torch.testing.assert_close(back, expected)
