"""A max pool by kernels is torch's: results, ties, odd sizes, gradients."""

import pytest
import torch
import torch.nn.functional as F

from scaseg.ops.pooling import MaxPool
from tests.ops.kernels import cases  # noqa: F401  # mends Triton's interpreter

pytest.importorskip("triton")


@pytest.mark.parametrize("size", [(2, 5, 6, 8), (1, 130, 7, 5), (1, 2, 2, 3)])
def test_results_and_gradients(size):
    x = torch.randint(-1, 3, size).float().requires_grad_()  # most windows have several largest
    found, expected = MaxPool.apply(x), F.max_pool2d(x, 2)
    assert torch.equal(found, expected)
    grad = torch.randn_like(expected)
    (one,), (other,) = (torch.autograd.grad(out, x, grad) for out in (found, expected))
    assert torch.equal(one, other)


def test_nan_stays_visible():
    x = torch.zeros(1, 4, 4, 4)
    x[0, 1, 2, 3] = torch.nan
    assert torch.equal(MaxPool.apply(x).isnan(), F.max_pool2d(x, 2).isnan())


def test_second_derivatives():
    x = torch.randn(1, 2, 4, 6, requires_grad=True)
    seconds = []
    for out in (MaxPool.apply(x), F.max_pool2d(x, 2)):
        (first,) = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*seconds)
