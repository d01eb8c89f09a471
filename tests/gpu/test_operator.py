"""The operator and the block on a CUDA device: the same numbers, no wait, captured in a graph."""

from dataclasses import replace

import pytest
import torch

from scaseg import selective_context
from scaseg.registry import CONTEXTS
from tests.nn.blocks import make
from tests.ops.cases import (
    ACTIVATION_NAMES,
    NAMES,
    assert_agree,
    outputs_and_grads,
    random_case,
    relative_error,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def to_gpu(case):
    moved = {
        name: value.cuda() if isinstance(value, torch.Tensor) else value
        for name, value in case.__dict__.items()
    }
    return type(case)(**moved)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("n", [1, 63, 1009])
def test_agrees_with_the_reference(activation, dtype, channels, n):
    case = random_case(
        n, batch=2, channels=channels, activation=activation, masked=n > 1, dtype=dtype
    )
    exact = outputs_and_grads(case.to(torch.float64), "reference")
    dense = outputs_and_grads(to_gpu(case), "dense")
    for options in ({}, {"score_bound": 8.0}):
        linear = outputs_and_grads(to_gpu(case), "linear", **options)
        for name in NAMES if channels > 1 else NAMES[:-1]:
            if activation == "exp" and channels == 1 and name == "grad target_score":
                continue
            allowed = 2 * relative_error(dense[name].cpu(), exact[name]) + 1e-5
            assert relative_error(linear[name].cpu(), exact[name]) <= allowed, name


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_values_of_an_ordinary_map(activation):
    """Where neurons lie side by side in memory, as x.flatten(2).mT has them."""
    case = to_gpu(random_case(257, batch=2, features=32, activation=activation))
    turned = replace(case, values=case.values.mT.contiguous().mT)
    expected = outputs_and_grads(case, "linear")
    assert_agree(outputs_and_grads(turned, "linear"), expected, 1e-9)


@pytest.mark.parametrize("backend", ["linear", "auto"])
@pytest.mark.parametrize(
    "name", ["sca", "sca, 3 channels", "sca, relu", "sca, identity", "dot", "average", "none"]
)
def test_blocks_do_not_wait_and_fit_in_a_graph(name, backend):
    """Nothing depends on data: no synchronisation, and a CUDA graph replays it."""
    block = make(name, 32, hidden=32, backend=backend).cuda()
    x = torch.randn(2, 32, 40, 50, device="cuda")
    with torch.no_grad():
        expected = block(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            block(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.set_sync_debug_mode("error")
        try:
            block(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = block(x)
        other = torch.randn_like(x)
        x.copy_(other)
        graph.replay()
        torch.testing.assert_close(captured, block(other), rtol=1e-4, atol=1e-4)
        assert not torch.equal(captured, expected)


@pytest.mark.parametrize("context", ["sca", "dot"])
def test_training_in_bfloat16(context):
    block = CONTEXTS[context](64).cuda()
    x = torch.randn(2, 64, 90, 120, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = block(x)
    out.float().square().mean().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_a_street_scene(activation):
    """n = 131,072, M = 512: the coefficients alone would take 64 GiB."""
    n = 131_072
    values = torch.randn(1, n, 512, device="cuda", requires_grad=True)
    s, t = (torch.randn(1, n, device="cuda", requires_grad=True) for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    selective_context(values, s, t, activation=activation).square().mean().backward()
    assert torch.cuda.max_memory_allocated() - before < 5 * 2**30
    assert values.grad.isfinite().all()


def test_devices_must_match():
    values, score = torch.randn(1, 5, 2, device="cuda"), torch.randn(1, 5)
    with pytest.raises(ValueError, match="target_score: on cpu, but values is on cuda:0"):
        selective_context(values, score, score)
