"""PaddedBatchNorm2d against nn.BatchNorm2d on the same pixels without padding."""

import pytest
import torch
from torch import nn

from scaseg.models.padding import PaddedBatchNorm2d


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
