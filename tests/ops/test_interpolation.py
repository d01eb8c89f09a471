"""The bound that node counts are chosen by, tested rather than believed."""

import math

import pytest
import torch

from scaseg.ops.activation import SIGMOID, lift
from scaseg.ops.chebyshev import (
    TOLERANCE,
    cardinal_basis,
    chebyshev_nodes,
    error_bound,
    node_count,
)
from scaseg.ops.dispatch import selective_context
from scaseg.ops.reference import reference_context
from scaseg.ops.scores import Scores, strongest
from scaseg.ops.smooth import measured_interval, promised_interval


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
@pytest.mark.parametrize("half_range", [0.5, 2.0, 6.0, 20.0])
@pytest.mark.parametrize("nodes", [4, 8, 16, 32])
@pytest.mark.parametrize("sources", ["two far apart", "spread", "all low", "one outlier"])
def test_the_bound_holds(activation, half_range, nodes, sources):
    """Interpolate the reference itself at the nodes: no code of the operator is involved."""
    n = 50
    t = {
        "two far apart": torch.tensor([0.8, -0.9] * (n // 2)) * half_range,
        "spread": torch.linspace(-half_range, half_range, n),
        "all low": torch.linspace(-1, 0, n) - half_range,
        "one outlier": torch.cat([torch.zeros(n - 1), torch.tensor([3 * half_range])]),
    }[sources].double()
    values = torch.where(torch.rand(1, n, 3) < 0.5, -1.0, 1.0).double()  # of size 1

    def exactly(score):
        return reference_context(
            values, score.unsqueeze(0), t.unsqueeze(0), activation=activation, exclude_self=False
        )[0]

    like = torch.zeros(1, dtype=torch.float64)
    at_nodes = exactly(half_range * chebyshev_nodes(nodes, like))
    x = torch.linspace(-1, 1, 401, dtype=torch.float64)
    error = (cardinal_basis(x, nodes) @ at_nodes - exactly(half_range * x)).abs().max()
    assert error <= error_bound(half_range, nodes) + 1e-14  # rounding


@pytest.mark.parametrize("half_range", [1.0, 3.0, 5.0, 8.0, 16.0, 60.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_as_many_nodes_as_the_bound_asks_for_and_no_more(half_range, dtype):
    nodes = node_count(half_range, TOLERANCE[dtype])
    assert error_bound(half_range, nodes) <= TOLERANCE[dtype]
    assert error_bound(half_range, nodes - 4) > TOLERANCE[dtype]


def test_nodes_grow_like_the_range():
    """About R log(1 / tolerance) / pi of them."""
    assert node_count(200.0, 1e-10) == pytest.approx(2 * node_count(100.0, 1e-10), rel=0.1)
    assert node_count(1000.0, 1e-10) < 2 * 1000 * math.log(1e10) / math.pi


@pytest.mark.parametrize("nodes", [1, 2, 7, 31, 203])
def test_cardinal_basis(nodes):
    like = torch.zeros(1, dtype=torch.float64)
    at_nodes = cardinal_basis(chebyshev_nodes(nodes, like), nodes)
    torch.testing.assert_close(at_nodes, torch.eye(nodes, dtype=torch.float64))
    x = torch.linspace(-1, 1, 97, dtype=torch.float64, requires_grad=True)
    basis = cardinal_basis(x, nodes)
    torch.testing.assert_close(basis.sum(-1), torch.ones(97, dtype=torch.float64))
    degree = min(nodes - 1, 6)  # a polynomial that the nodes determine
    samples = chebyshev_nodes(nodes, like) ** degree
    torch.testing.assert_close(basis @ samples, x**degree)
    (slope,) = torch.autograd.grad((basis @ samples).sum(), x)
    expected = degree * x.detach() ** max(degree - 1, 0)
    torch.testing.assert_close(slope, expected, rtol=1e-7, atol=1e-7 * nodes)


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
@pytest.mark.parametrize("spread", [0.0, 1.0, 10.0, 60.0])
def test_the_stated_tolerance_holds_for_the_range_that_came(activation, spread):
    """With more targets than nodes, so that it is the interpolation that is tested."""
    n = 1200
    values = torch.randn(1, n, 3, dtype=torch.float64)
    s = spread * torch.linspace(-1, 1, n, dtype=torch.float64).unsqueeze(0)
    t = spread * torch.randn(1, n, dtype=torch.float64).clamp(-1, 1)
    assert node_count(max(spread, 1.0), TOLERANCE[torch.float64]) < n
    found = selective_context(values, s, t, activation=activation, backend="linear")
    expected = reference_context(values, s, t, activation=activation)
    assert (found - expected).abs().max() <= 3 * TOLERANCE[torch.float64] * values.abs().max()


@pytest.mark.parametrize("outlier", [1e4, -1e4])
def test_an_outlying_target_costs_no_nodes(outlier):
    """Beyond what the sources can tell apart, every score is the same."""
    t = torch.randn(1, 1, 1000, dtype=torch.float64)
    s = torch.randn(1, 1, 1000, dtype=torch.float64)
    s[..., 3] = outlier
    lifted, _ = lift(s, strongest(t, None).score, SIGMOID)
    interval = measured_interval(lifted, Scores(s, t, SIGMOID))
    assert 100 < interval.nodes < 400


def test_a_broken_promise_is_harmless_where_it_cannot_be_seen():
    """Compiled, or on a GPU, scores beyond the bound count as being at it."""
    interval = promised_interval(4.0, like=torch.zeros(1, 1, 1, dtype=torch.float64))
    score = torch.tensor([[[4.0, 5.0, 1e9]]], dtype=torch.float64)
    basis = interval.basis(score)
    torch.testing.assert_close(basis[..., 1:, :], basis[..., :1, :].expand(1, 1, 2, -1))


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
@pytest.mark.parametrize("outlier", [False, True])
def test_a_float32_basis(activation, outlier, monkeypatch):
    """Where there is no float64 (exported graphs, MPS) the linear form keeps its digits."""
    values, target, source = torch.randn(2, 700, 8), *(10 * torch.rand(2, 2, 700) - 5)
    if outlier:
        source = source.sub(5).clamp(min=-5)
        source[:, 3] = 5
    options = {"activation": activation, "score_bound": 5.0}
    wide = (values.double(), target.double(), source.double())
    exact = selective_context(*wide, backend="dense", **options)
    monkeypatch.setattr("scaseg.ops.smooth.wide_dtype", lambda tensor: tensor.dtype)
    found = selective_context(values, target, source, backend="linear", **options)
    assert (found - exact).abs().max() < 1e-6 * values.abs().max()
