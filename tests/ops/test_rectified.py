"""A convolution and its ReLU in one step are the two: results and gradients."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.ops import rectified
from scaseg.ops.rectified import RectifiedConvolution
from tests.ops.cases import relative_error
from tests.ops.kernels import cases  # noqa: F401  # mends Triton's interpreter


def tensors(dtype):
    x = torch.randn(2, 5, 9, 11, dtype=dtype).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(19, 5, 3, 3, dtype=dtype), torch.randn(19, dtype=dtype)
    return [one.requires_grad_() for one in (x, weight, bias)]


@pytest.mark.parametrize("kernel", [False, True])
def test_results_and_gradients(kernel, monkeypatch):
    if kernel:
        pytest.importorskip("triton")
        monkeypatch.setattr(rectified, "as_products", lambda x: True)
    leaves = tensors(torch.float32 if kernel else torch.float64)
    shape = (2, 2), (2, 2)
    found = RectifiedConvolution.apply(*leaves, *shape)
    expected = F.conv2d(*leaves, padding=2, dilation=2).relu()
    grad = torch.randn_like(expected)
    for one, other in zip(
        [found, *torch.autograd.grad(found, leaves, grad)],
        [expected, *torch.autograd.grad(expected, leaves, grad)],
        strict=True,
    ):
        assert relative_error(one.detach(), other.detach()) < (1e-5 if kernel else 1e-13)


def test_second_derivatives():
    leaves = tensors(torch.float64)
    found = RectifiedConvolution.apply(*leaves, (1, 1), (1, 1))
    expected = F.conv2d(*leaves, padding=1).relu()
    seconds = []
    for out in (found, expected):
        (first,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), leaves))
    for one, other in zip(*seconds, strict=True):
        assert relative_error(one, other) < 1e-13


def test_a_gradient_that_others_hold_stays_as_it_is(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(rectified, "as_products", lambda x: True)
    leaves = tensors(torch.float32)
    found = RectifiedConvolution.apply(*leaves, (1, 1), (1, 1))
    grad = torch.randn_like(found)
    before = grad.clone()
    torch.autograd.grad(found, leaves, grad)
    assert torch.equal(grad, before)
