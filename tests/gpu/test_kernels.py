"""The Triton kernels on a CUDA device: against the reference, compiled, without a wait."""

import pytest
import torch

from scaseg import SelectiveContext, choose_backend
from scaseg.nn.contexts.baselines import AverageContext
from scaseg.nn.convolution import WideConv2d, halved, rectified
from scaseg.ops import convolution
from scaseg.ops.kernels.support import CODES
from tests.ops.cases import relative_error
from tests.ops.kernels.cases import KINDS, check_block, check_operator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("activation", CODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_operator(activation, dtype):
    for n in (1, 2, 63, 1009):
        check_operator("cuda", activation, n, dtype, features=19)
    many = {"batch": 2, "channels": 1 if activation == "relu" else 3, "features": 130}
    check_operator("cuda", activation, 997, dtype, masked=True, **many)
    # relu: not a row that hangs by one source of 0.004, whose gradient is 1180 - 1180
    lift = 2.0 if activation == "relu" else 0.0
    check_operator("cuda", activation, 67, dtype, targets=5, features=19, masked=True, lift=lift)


@pytest.mark.parametrize("name", KINDS)
def test_blocks(name):
    masked = name in ("sca, softplus", "sca, relu")
    check_block("cuda", name, size=(33, 31), masked=masked, channels=24)


@pytest.mark.parametrize("activation", ["sigmoid", "exp", "identity", "relu"])
def test_large_blocks_in_bfloat16(activation):
    """Beside the PyTorch form of the same block: every gradient, in stretches too."""
    from scaseg.ops.kernels import block as kernel_block

    block = SelectiveContext(512, activation=activation).cuda()
    x = torch.randn(2, 512, 83, 97, device="cuda").contiguous(memory_format=torch.channels_last)
    torch.nn.init.normal_(block.predictor.score.weight, std=0.02)
    x.requires_grad_()
    leaves = [x, *block.parameters()]
    grad = torch.randn_like(x)
    results = []
    whole, stretch = kernel_block.WHOLE, kernel_block.STRETCH
    for backend, limit in (("linear", whole), ("triton", whole), ("triton", 5000)):
        block.backend = backend
        kernel_block.WHOLE, kernel_block.STRETCH = limit, min(limit, stretch)
        try:
            with torch.autocast("cuda", torch.bfloat16):
                out = block(x)
            results.append([out, *torch.autograd.grad(out, leaves, grad.to(out.dtype))])
        finally:
            kernel_block.WHOLE, kernel_block.STRETCH = whole, stretch
    names = ["out", "x", *dict(block.named_parameters())]
    for name, exact, *found in zip(names, *results, strict=True):
        largest = float(exact.detach().abs().max())
        for one in found:
            difference = float((one - exact).detach().norm() / exact.detach().norm())
            assert difference < 0.02 or largest < 1e-3, f"{name}: {difference:.1e}"


@pytest.mark.filterwarnings("ignore")
def test_compiled_with_reduce_overhead_first():
    """What is held for good must not lie in the memory of a CUDA graph."""
    from scaseg.ops.kernels import plan

    torch._dynamo.reset()
    plan.node_table.cache_clear()
    block = SelectiveContext(64).cuda()
    compiled = torch.compile(block, dynamic=False, mode="reduce-overhead")
    x = torch.randn(1, 64, 20, 30, device="cuda", requires_grad=True)
    leaves = [x, *block.parameters()]
    for _ in range(4):
        found = torch.autograd.grad(compiled(x).square().sum(), leaves)
    expected = torch.autograd.grad(block(x).square().sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        assert relative_error(one, other) < 1e-3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"activation": "identity"}, {"score_bound": 12.0}])
def test_compiled_blocks_at_a_size_that_once_failed(options):
    """n = 32,768 ended in Triton's "PassManager::run failed": now forward and backward."""
    torch._dynamo.reset()
    block = SelectiveContext(512, **options).cuda()
    compiled = torch.compile(block, dynamic=False)
    x = torch.randn(1, 512, 128, 256, device="cuda").contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    leaves = [x, *block.parameters()]
    results = []
    for one in (block, compiled):
        with torch.autocast("cuda", torch.bfloat16):
            out = one(x)
        results.append([out, *torch.autograd.grad(out.float().square().mean(), leaves)])
    for found, expected in zip(*results, strict=True):
        assert relative_error(found.detach(), expected.detach()) < 0.02


def test_auto_takes_them_and_says_so():
    choice = choose_backend(3136, 3136, "cuda", score_bound=5.0, dtype=torch.bfloat16)
    assert choice.backend == "triton"
    choice = choose_backend(9000, 9000, "cuda", activation="relu", pair_channels=3)
    assert choice.backend == "linear"
    assert "triton: no kernel for relu and 3 pair channels" in choice.reason


def test_the_same_bits_twice():
    block = SelectiveContext(64).cuda()
    x = torch.randn(2, 64, 90, 120, device="cuda", requires_grad=True)
    runs = [torch.autograd.grad(block(x).sum(), [x, *block.parameters()]) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_average_first(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # of the two convolutions
    block = AverageContext(24).cuda()
    x = torch.randn(2, 24, 33, 31, device="cuda", requires_grad=True)
    leaves = [x, *block.parameters()]
    found, expected = block(x), block.combine(x, block.target_context(x, None, None))
    grad = torch.randn_like(found)
    for one, other in zip(
        [found, *torch.autograd.grad(found, leaves, grad)],
        [expected, *torch.autograd.grad(expected, leaves, grad)],
        strict=True,
    ):
        assert relative_error(one.detach(), other.detach()) < 1e-5


@pytest.mark.parametrize(("low", "rows"), [(False, 7000), (True, 7000), (True, 300)])
def test_wide_convolutions(low, rows, monkeypatch):
    """In stretches too, of which those at the edges leave rows of taps out."""
    monkeypatch.setattr(convolution, "ROWS", rows)
    layer = WideConv2d(32, 48, 7, padding=12, dilation=4).cuda()
    x = torch.randn(2, 32, 29, 31, device="cuda", requires_grad=True)
    leaves = [x, *layer.parameters()]
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        found = layer(x)
        expected = torch.nn.Conv2d.forward(layer, x)
        with torch.no_grad():
            assert torch.equal(layer(x), found) or not low
        # cuDNN's forward pass chooses among algorithms
        assert relative_error(found.detach(), expected.detach()) < (0.01 if low else 1e-4)
    grad = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        strict=True,
    ):
        assert relative_error(one, other) < (0.01 if low else 1e-3)


@pytest.mark.parametrize("channels", [3, 32])
def test_rectified_convolutions(channels):
    """With bias and ReLU in one step, as in three."""
    layer = torch.nn.Conv2d(channels, 48, 3, padding=2, dilation=2).cuda()
    layer = layer.to(memory_format=torch.channels_last)
    x = torch.randn(2, channels, 29, 31, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    leaves = [x, *layer.parameters()]
    with torch.autocast("cuda", torch.bfloat16):
        found, plain = rectified(layer, x), layer(x)
    assert "RectifiedConvolution" in found.grad_fn.name()
    assert relative_error(found.detach(), plain.detach().relu()) < 0.01
    grad = torch.randn_like(found)
    passed = grad * (found > 0)  # rounded otherwise, a result near 0 may have another sign
    for one, other in zip(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(plain, leaves, passed),
        strict=True,
    ):
        assert relative_error(one, other) < 0.01


def test_pools():
    layer = torch.nn.MaxPool2d(2)
    x = torch.randint(-3, 9, (2, 40, 31, 26), device="cuda").bfloat16()
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    found, expected = halved(layer, x), layer(x)
    assert found.grad_fn.name() == "MaxPoolBackward"
    assert torch.equal(found, expected)
    grad = torch.randn_like(found)
    (one,), (other,) = (torch.autograd.grad(out, x, grad) for out in (found, expected))
    assert torch.equal(one, other)
