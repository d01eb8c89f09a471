"""Wrong input is refused in words that say what came, what fits, and what to do."""

import pytest
import torch

from scaseg import SelectiveContext, aggregate, selective_context

values = torch.randn(2, 6, 3)
score = torch.randn(2, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": values[0]}, r"values has shape \(6, 3\); give \(B, source, M\).*flatten"),
        ({"values": values[:, :0]}, "at least one source"),
        ({"values": values.long()}, r"values has dtype torch.int64; .*values.float\(\)"),
        ({"values": [1.0]}, "values is a list; give a tensor"),
        ({"target_score": score[0]}, r"target_score has shape \(6,\); give \(B, target\)"),
        ({"target_score": score.long()}, "target_score has dtype torch.int64"),
        ({"target_score": 3.0}, "target_score is a float; give a tensor"),
        ({"target_score": score[:1]}, "target_score has a batch of 1 but values of 2"),
        ({"source_score": score[:, :5]}, r"source_score has shape \(2, 5\).*call for \(2, 6\)"),
        ({"source_score": torch.randn(2, 6, 2)}, r"source_score has shape \(2, 6, 2\)"),
        ({"target_score": torch.randn(2, 6, 0), "source_score": torch.randn(2, 6, 0)}, "0 pair"),
        (
            {"target_score": torch.randn(2, 4)},
            "4 targets are not the 6 sources.*exclude_self=False",
        ),
        ({"channel_weight": torch.ones(2)}, r"channel_weight has shape \(2,\).*give shape \(1,\)"),
        ({"channel_weight": torch.tensor([-0.5])}, r"negative entry \(-0.5\).*softplus or exp"),
        ({"source_mask": torch.ones(2, 6)}, "source_mask is torch.float32; give a bool tensor"),
        ({"source_mask": torch.ones(2, 5, dtype=torch.bool)}, r"call for \(2, 6\)"),
        ({"activation": "tanh"}, "activation is 'tanh'; choose one of identity, exp, relu"),
        ({"backend": "triton"}, "backend is 'triton'; choose one of auto, dense, linear"),
        ({"score_bound": -1.0}, "score_bound is -1.0; give a number from 0 to 1000, or None"),
        ({"score_bound": 1e17}, "score_bound is 1e.17; give a number from 0 to 1000"),
        ({"score_bound": "wide"}, "score_bound is 'wide'; give a number, or None"),
        ({"score_bound": float("inf")}, "score_bound is inf"),
        ({"score_bound": 1e-3}, "target_score reaches .* but score_bound promises 0.001; squash"),
        ({"source_score": score.to("meta")}, "source_score is on meta but values on cpu"),
        ({"source_mask": torch.ones(2, 6, dtype=torch.bool, device="meta")}, "source_mask is on"),
    ],
)
def test_operator(changes, message):
    arguments = {"values": values, "target_score": score, "source_score": score, **changes}
    with pytest.raises(ValueError, match=message):
        selective_context(**arguments)


@pytest.mark.parametrize(
    ("coefficients", "options", "message"),
    [
        (torch.rand(6, 6), {}, r"shape \(6, 6\).*\(2 or 1, target, 6\)"),
        (torch.rand(3, 6, 6), {}, r"\(2 or 1, target, 6\)"),
        (torch.rand(2, 6, 5), {}, r"\(2 or 1, target, 6\)"),
        (torch.rand(2, 4, 6), {}, "4 targets are not the 6 sources"),
        (torch.ones(2, 6, 6, dtype=torch.int32), {}, "coefficients has dtype torch.int32"),
        (torch.rand(2, 6, 6), {"source_mask": torch.ones(2, 6)}, "give a bool tensor"),
    ],
)
def test_aggregate(coefficients, options, message):
    with pytest.raises(ValueError, match=message):
        aggregate(values, coefficients, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, "channels is 0; give a whole number >= 1"),
        ({"out_channels": 2.5}, "out_channels is 2.5"),
        ({"dependency": "attention"}, "dependency is 'attention'; choose one of predicted, dot"),
        ({"activation": "tanh"}, "activation is 'tanh'"),
        ({"backend": "fast"}, "backend is 'fast'"),
        ({"layers": -1}, "layers is -1; give a whole number >= 0"),
        ({"hidden": 0}, "hidden is 0"),
        ({"pair_channels": 0}, "pair_channels is 0"),
        ({"pair_channels": 2, "activation": "identity"}, "one channel in disguise"),
        ({"score_bound": 0.0}, "score_bound is 0.0; give a positive number up to 1000, or None"),
        ({"score_bound": "a"}, "score_bound is 'a'; give a positive number"),
        ({"dependency": "dot", "key_channels": 0}, "key_channels is 0; give a whole number >= 1"),
        ({"channels": True}, "channels is True"),
    ],
)
def test_block_options(options, message):
    with pytest.raises(ValueError, match=message):
        SelectiveContext(**{"channels": 4, **options})


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.randn(2, 5, 3, 3), {}, r"x has shape \(2, 5, 3, 3\); .* \(B, 4, H, W\)"),
        (torch.randn(4, 3, 3), {}, r"x has shape \(4, 3, 3\)"),
        (torch.randn(2, 4, 0, 3), {}, "a map without neurons"),
        (torch.randn(2, 4, 3, 3), {"source": torch.randn(1, 4, 3, 3)}, "source has a batch of 1"),
        (
            torch.randn(2, 4, 3, 3),
            {"mask": torch.ones(2, 3, 3)},
            "mask is torch.float32",
        ),
        (
            torch.randn(2, 4, 3, 3),
            {"mask": torch.ones(2, 24, 24, dtype=torch.bool)},
            r"mask has shape \(2, 24, 24\).*resized to the feature map",
        ),
        (torch.randn(2, 4, 3, 3), {"mask": [True]}, "mask is list; give a bool tensor"),
        ([1.0], {}, "x is a list; give a tensor"),
        (
            torch.randn(2, 4, 3, 3),
            {"source": torch.randn(2, 4, 3, 3, dtype=torch.float64)},
            "source has dtype torch.float64 but x torch.float32",
        ),
        (
            torch.randn(2, 4, 3, 3),
            {"coefficients": torch.rand(2, 8, 9)},
            "coefficients have 8 rows but x has 9 neurons",
        ),
        (
            torch.randn(2, 4, 3, 3),
            {"coefficients": torch.rand(1, 1, 6), "source": torch.randn(2, 4, 2, 3)},
            "coefficients have 1 rows but x has 9 neurons",
        ),
    ],
)
def test_block_inputs(x, options, message):
    with pytest.raises(ValueError, match=message):
        SelectiveContext(4, hidden=8)(x, **options)


def test_coefficients_for_a_block_without_context():
    with pytest.raises(ValueError, match="dependency='none', which has no context feature"):
        SelectiveContext(4, dependency="none")(
            torch.randn(1, 4, 2, 2), coefficients=torch.rand(1, 4, 4)
        )


@pytest.mark.parametrize(("row", "col"), [(-1, 0), (3, 0), (0, 4)])
def test_points_outside_the_map(row, col):
    with pytest.raises(ValueError, match="outside the feature map of 3 x 4"):
        SelectiveContext(4, hidden=8).dependency_map(torch.randn(1, 4, 3, 4), row, col)


def test_a_matrix_that_does_not_fit(monkeypatch):
    from scaseg.nn import selective_context as module

    monkeypatch.setattr(module, "available_memory", lambda device: 2**30)
    block = SelectiveContext(4, hidden=8)
    with pytest.raises(
        ValueError, match=r"16384 x 16384 coefficients take 1 GiB .* 1 GiB are free on cpu; use dep"
    ):
        block.coefficients(torch.zeros(1, 4, 128, 128))
    assert block.coefficients(torch.zeros(1, 4, 16, 16)).shape == (1, 256, 256)
