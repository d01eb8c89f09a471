"""Wrong options and inputs of contexts are refused; the message says what came and what fits."""

import pytest
import torch

from scaseg import ContextAggregation, SelectiveContext
from scaseg.errors import UserError
from scaseg.nn import context as module
from scaseg.nn.contexts.baselines import NoContext
from scaseg.nn.contexts.dot import DotContext

WHOLE = "give a whole number from 1 to 16384"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_channels": 0}, f"in_channels: 0; {WHOLE}"),
        ({"in_channels": True}, "in_channels: True; give a whole"),
        ({"out_channels": 2.5}, "out_channels: 2.5; give a whole"),
        ({"activation": "tanh"}, "activation: 'tanh'; give one of identity, exp, relu"),
        ({"backend": "fast"}, "backend: 'fast'; give one of auto, dense, linear, triton"),
        ({"layers": -1}, "layers: -1; give a whole number from 0 to 1000"),
        ({"hidden": 0}, f"hidden: 0; {WHOLE}"),
        ({"pair_channels": 2**20}, "pair_channels: 1048576; give a whole number from 1 to 1024"),
        ({"pair_channels": 2, "activation": "identity"}, "pair_channels: 2 with .* an identity"),
        ({"score_bound": 0.0}, "score_bound: 0 makes all scores equal; give more, or None"),
        ({"score_bound": "a"}, "score_bound: 'a'; give a number from 0 to 1000, or None"),
        ({"score_std": -1}, "score_std: -1; give a number >= 0, or None"),
        ({"score_std": float("nan")}, "score_std: nan; give"),
        ({"score_std": "much"}, "score_std: 'much'; give"),
        ({"score_std": True}, "score_std: True; give"),
        ({"score_bias": float("inf")}, "score_bias: inf; give a number, or None"),
        ({"share_features": 1}, "share_features: 1; give True or False"),
    ],
)
def test_options(options, message):
    with pytest.raises(UserError, match=message):
        SelectiveContext(**{"in_channels": 4, **options})


def test_options_of_others():
    with pytest.raises(UserError, match=f"key_channels: 0; {WHOLE}"):
        DotContext(4, key_channels=0)
    with pytest.raises(UserError, match="exclude_self: None; give True or False"):
        ContextAggregation(4, exclude_self=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.randn(2, 5, 3, 3)}, r"x: shape \(2, 5, 3, 3\); .* \(B, 4, H, W\)"),
        ({"x": torch.randn(4, 3, 3)}, r"x: shape \(4, 3, 3\); give"),
        ({"x": torch.randn(2, 4, 0, 3)}, r"x: shape \(2, 4, 0, 3\); give"),
        ({"x": [1.0]}, "x: a list; give a floating tensor"),
        ({"source": torch.randn(1, 4, 3, 3)}, r"source: shape \(1, 4, 3, 3\); .* \(2, 4, H, W\)"),
        ({"source": torch.randn(2, 4, 3, 3).double()}, "source: dtype torch.float64, but x has"),
        ({"mask": torch.ones(2, 3, 3)}, "mask: dtype torch.float32; give a bool tensor"),
        ({"mask": [True]}, "mask: a list; give a bool tensor"),
        (
            {"mask": torch.ones(2, 24, 24, dtype=torch.bool)},
            r"mask: shape \(2, 24, 24\); .* \(2, 3, 3\): .* resized to the feature map",
        ),
        (
            {"coefficients": torch.rand(2, 8, 9)},
            r"coefficients: shape \(2, 8, 9\); .* \(B, 9, source\)",
        ),
        (
            {"coefficients": torch.rand(1, 1, 6), "source": torch.randn(2, 4, 2, 3)},
            r"coefficients: shape \(1, 1, 6\); .* \(B, 9, source\): a row for each neuron of x",
        ),
    ],
)
def test_inputs(changes, message):
    arguments = {"x": torch.randn(2, 4, 3, 3), **changes}
    with pytest.raises(UserError, match=message):
        SelectiveContext(4, hidden=8)(**arguments)


def test_coefficients_where_there_is_no_context_and_none_where_they_are_needed():
    x = torch.randn(1, 4, 2, 2)
    with pytest.raises(UserError, match="coefficients: given to NoContext, which has no context"):
        NoContext(4)(x, coefficients=torch.rand(1, 4, 4))
    with pytest.raises(UserError, match=r"coefficients: none; give a tensor \(B or 1, n, source\)"):
        ContextAggregation(4)(x)


@pytest.mark.parametrize(("row", "col"), [(-1, 0), (3, 0), (0, 4)])
def test_points_outside_the_map(row, col):
    with pytest.raises(UserError, match="outside the feature map of 3 x 4; give feature-map"):
        SelectiveContext(4, hidden=8).dependency_map(torch.randn(1, 4, 3, 4), row, col)


def test_a_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda device: 2**30)
    block = SelectiveContext(4, hidden=8)
    with pytest.raises(
        UserError, match=r"16384 x 16384 coefficients take 1 GiB .* 1 GiB are free on cpu; use dep"
    ):
        block.coefficients(torch.zeros(1, 4, 128, 128))
    assert block.coefficients(torch.zeros(1, 4, 16, 16)).shape == (1, 256, 256)
