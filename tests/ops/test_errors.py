"""Wrong input is refused in words that say what came, what fits, and what to do."""

import pytest
import torch

from scaseg import aggregate, selective_context
from scaseg.errors import UserError

values = torch.randn(2, 6, 3)
score = torch.randn(2, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": values[0]}, r"values: shape \(6, 3\); give .* \(B, source, M\).*flatten"),
        ({"values": values[:, :0]}, r"values: shape \(2, 0, 3\); give"),
        ({"values": values.long()}, "values: dtype torch.int64; give a floating tensor"),
        ({"values": [1.0]}, "values: a list; give a floating tensor"),
        (
            {"target_score": score[0]},
            r"target_score: shape \(6,\); give .* \(2, target\): \(B, target\) for",
        ),
        ({"target_score": score.long()}, "target_score: dtype torch.int64"),
        ({"target_score": 3.0}, "target_score: a float; give a floating tensor"),
        ({"target_score": score[:1]}, r"target_score: shape \(1, 6\); .* \(2, target\)"),
        ({"source_score": score[:, :5]}, r"source_score: shape \(2, 5\); .* \(2, 6\): flatten"),
        ({"source_score": torch.randn(2, 6, 2)}, r"source_score: shape \(2, 6, 2\)"),
        (
            {"target_score": torch.randn(2, 6, 0), "source_score": torch.randn(2, 6, 0)},
            r"\(2, 6, 0\); .*\(2, target, R\)",
        ),
        (
            {"target_score": torch.randn(2, 4)},
            "exclude_self: True, but 4 targets are not the 6 sources; give False",
        ),
        ({"channel_weight": torch.ones(2)}, r"channel_weight: shape \(2,\); .* \(1,\): a weight"),
        (
            {"channel_weight": torch.tensor([-0.5])},
            r"channel_weight: a negative entry \(-0.5\).*softplus or exp",
        ),
        ({"source_mask": torch.ones(2, 6)}, "source_mask: dtype torch.float32; give a bool tensor"),
        (
            {"source_mask": torch.ones(2, 5, dtype=torch.bool)},
            r"source_mask: shape \(2, 5\); .* \(2, 6\)",
        ),
        ({"activation": "tanh"}, "activation: 'tanh'; give one of identity, exp, relu"),
        ({"backend": "cuda"}, "backend: 'cuda'; give one of auto, dense, linear, triton"),
        ({"score_bound": -1.0}, "score_bound: -1.0; give a number from 0 to 1000, or None"),
        ({"score_bound": 1e17}, "score_bound: 1e.17; give a number from 0 to 1000"),
        ({"score_bound": "wide"}, "score_bound: 'wide'; give a number from 0 to 1000, or None"),
        ({"score_bound": float("inf")}, "score_bound: inf"),
        ({"score_bound": 1e-3}, "target_score: reaches .* but score_bound promises 0.001; squash"),
        ({"source_score": score.to("meta")}, "source_score: on meta, but values is on cpu"),
        (
            {"source_mask": torch.ones(2, 6, dtype=torch.bool, device="meta")},
            "source_mask: on meta",
        ),
    ],
)
def test_operator(changes, message):
    arguments = {"values": values, "target_score": score, "source_score": score, **changes}
    with pytest.raises(UserError, match=message):
        selective_context(**arguments)


@pytest.mark.parametrize(
    ("coefficients", "options", "message"),
    [
        (torch.rand(6, 6), {}, r"coefficients: shape \(6, 6\).*\(2, target, 6\)"),
        (torch.rand(3, 6, 6), {}, r"\(2, target, 6\)"),
        (torch.rand(2, 6, 5), {}, r"\(2, target, 6\)"),
        (torch.rand(2, 4, 6), {}, "exclude_self: True, but 4 targets are not the 6 sources"),
        (torch.ones(2, 6, 6, dtype=torch.int32), {}, "coefficients: dtype torch.int32"),
        (
            torch.rand(2, 6, 6),
            {"source_mask": torch.ones(2, 6)},
            "source_mask: dtype torch.float32; give a bool tensor",
        ),
    ],
)
def test_aggregate(coefficients, options, message):
    with pytest.raises(UserError, match=message):
        aggregate(values, coefficients, **options)
