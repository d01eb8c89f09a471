"""Blocks compile without a graph break, export, and give the same numbers."""

import os
import shutil

import pytest
import torch

from scaseg import selective_context
from tests.nn.blocks import BLOCKS, make
from tests.ops.cases import ACTIVATION_NAMES

# Dynamo reads a deprecated attribute of its own in some versions; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def compare(eager, compiled, inputs):
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    expected, found = eager(*leaves), compiled(*leaves)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, grad),
        torch.autograd.grad(expected, leaves, grad),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.fixture(autouse=True)
def _forget_earlier_graphs():
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_compiles_whole(name):
    block = make(name)
    # "aot_eager" traces forward and backward as the default does, and skips the code generator
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    side = 6 if name == "dagrnn" else 20  # each of its diagonals is a step of the graph
    compare(block, compiled, [torch.randn(2, 6, side, side)])


@pytest.mark.skipif(
    not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))),
    reason="torch.compile generates C++ and needs a compiler for it",
)
@pytest.mark.parametrize("name", ["sca", "sca, 3 channels"])
def test_generated_code_agrees(name):
    block = make(name)
    compare(block, torch.compile(block, fullgraph=True), [torch.randn(2, 6, 20, 20)])


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_the_operator_compiles_under_a_promise(activation):
    def operator(values, target_score, source_score):
        return selective_context(
            values,
            target_score,
            source_score,
            activation=activation,
            score_bound=6.0,
            backend="linear",
        )

    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    scores = [torch.randn(2, 200).clamp(-5, 5) for _ in range(2)]
    if activation == "identity":
        scores[0] = scores[0].abs() + 1
    compare(operator, compiled, [torch.randn(2, 200, 4), *scores])


def test_the_operator_compiles_for_sizes_that_change():
    def operator(values, scores, bound):
        return selective_context(values, scores, scores, score_bound=bound, backend="linear")

    compiled = torch.compile(operator, dynamic=True, backend="eager")
    for nodes, bound in [(30, 3.0), (40, 3.0), (40, 50.0)]:
        values, scores = torch.randn(2, nodes, 4), bound * torch.linspace(-1, 1, nodes)
        inputs = values, scores.expand(2, -1), bound
        torch.testing.assert_close(compiled(*inputs), operator(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_exports(name):  # without a mask, and in ONNX: tests/export
    block = make(name)
    x = torch.randn(2, 6, 20, 21)
    options = {"mask": torch.rand(2, 20, 21) < 0.8}
    program = torch.export.export(block, (x,), options)
    torch.testing.assert_close(program.module()(x, **options), block(x, **options))
    other = torch.randn_like(x)
    torch.testing.assert_close(program.module()(other, **options), block(other, **options))


def test_an_exported_block_takes_other_sizes():
    """Height and width stay free: "auto" takes linear, though the example is small."""
    block = make("sca")
    free = {0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    program = torch.export.export(block, (torch.randn(2, 6, 14, 15),), dynamic_shapes={"x": free})
    for shape in [(1, 6, 20, 11), (3, 6, 33, 40)]:
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), block(x), rtol=1e-4, atol=1e-5)
