"""PaddedBatchNorm2d against nn.BatchNorm2d on the same pixels without padding."""

import pytest
import torch
from torch import nn

from scaseg.models.padding import PaddedBatchNorm2d, _Enlarge


@pytest.mark.parametrize("momentum", [0.1, None])
def test_padding_changes_nothing(momentum):
    sizes = [(5, 7), (3, 4), (6, 2)]
    x = torch.randn(3, 4, 6, 7, dtype=torch.float64) * 3 + 2
    real = torch.zeros(3, 6, 7, dtype=torch.bool)
    for index, (height, width) in enumerate(sizes):
        real[index, :height, :width] = True
    ours = PaddedBatchNorm2d(4, momentum=momentum).double()
    plain = nn.BatchNorm2d(4, momentum=momentum).double()
    for norm in (ours, plain):
        nn.init.constant_(norm.weight, 1.5)
        nn.init.constant_(norm.bias, -0.5)
    flat = x.movedim(1, -1)[real].clone().requires_grad_()  # (pixels, 4)
    padded = x.clone().requires_grad_()
    for _ in range(2):  # twice: momentum; contiguous: torch 2.13's own gradient is wrong otherwise
        found = ours(padded, real).movedim(1, -1)[real]
        wanted = plain(flat.t().contiguous()[None, :, :, None])[0, :, :, 0].t()
    torch.testing.assert_close(found, wanted)
    push = torch.randn_like(found)
    found.backward(push)
    wanted.backward(push)
    torch.testing.assert_close(padded.grad.movedim(1, -1)[real], flat.grad)
    assert not padded.grad.movedim(1, -1)[~real].any()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)
    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)
    torch.testing.assert_close(ours.eval()(x, real), plain.eval()(x))


def test_half_precision_is_summed_in_float32():
    x = (torch.randn(2, 3, 64, 64) + 30).bfloat16()
    real = torch.ones(2, 64, 64, dtype=torch.bool)
    norm = PaddedBatchNorm2d(3)
    out = norm(x, real)
    assert out.dtype == torch.bfloat16
    exact = x.double().mean((0, 2, 3))
    torch.testing.assert_close(norm.running_mean.double(), 0.1 * exact, rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_the_formula():
    """By autograd through every step, with a push on padding too: nothing promises it is zero."""
    torch.manual_seed(0)
    real = torch.zeros(2, 5, 6, dtype=torch.bool)
    real[0, :4, :3] = real[1, :5, :6] = True
    norm = PaddedBatchNorm2d(3).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = (torch.randn(2, 3, 5, 6, dtype=torch.float64) + 5).requires_grad_()
    share = real.unsqueeze(1).double()
    mean = (x * share).sum((0, 2, 3), keepdim=True) / share.sum()
    variance = ((x - mean) * share).square().sum((0, 2, 3), keepdim=True) / share.sum()
    normal = (x - mean) / torch.sqrt(variance + norm.eps)
    expected = normal * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)
    found = norm(x, real)
    torch.testing.assert_close(found, expected)
    push = torch.randn_like(x)
    inputs = (x, norm.weight, norm.bias)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, push),
        torch.autograd.grad(expected, inputs, push),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("size", [(24, 20), (17, 31), (4, 3), (6, 5)])
def test_the_gradient_of_enlarging_that_a_gpu_takes(size):
    x = torch.randn(2, 3, 6, 5, dtype=torch.float64, requires_grad=True)
    expected = nn.functional.interpolate(x, size, mode="bilinear", align_corners=False)
    found = _Enlarge.apply(x, *size)
    assert torch.equal(found, expected)
    push = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, push), torch.autograd.grad(expected, x, push)
    )
