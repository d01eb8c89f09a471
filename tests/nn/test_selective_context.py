"""The paper's block: its equation, its predictor, where training starts."""

import pytest
import torch

from scaseg import SelectiveContext
from scaseg.ops.reference import activate, pair_scores, weighted_mean
from tests.nn.blocks import PREDICTED, make


def literal(block, x):
    """The paper's equation 2 from its own pieces: replicate, concatenate, convolve, average."""
    predictor = block.predictor
    features = predictor.features(x).flatten(2).transpose(1, 2)
    weight = predictor.score.weight.flatten(1)
    scores = pair_scores(features, features, weight, predictor.score.bias)
    channel_weight = predictor.channel_weight
    if channel_weight is None:
        channel_weight = scores.new_ones(1)
    coefficients = activate(scores, predictor.activation, channel_weight)
    n = features.shape[1]
    others = ~torch.eye(n, dtype=torch.bool).expand(len(x), n, n)
    neurons = x.flatten(2).transpose(1, 2)
    layers = block.identity, block.context or block.identity
    w_d, w_c = (layer.weight.flatten(1) for layer in layers)
    h = neurons @ w_d.T + weighted_mean(neurons @ w_c.T, coefficients, others)
    return h.transpose(1, 2).unflatten(2, x.shape[-2:])


@pytest.mark.parametrize("name", PREDICTED)
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3), (13, 19)])
@pytest.mark.parametrize("backend", ["auto", "dense", "linear"])
def test_the_block_is_the_papers_equation(name, size, backend):
    block = make(name, out_channels=5, score_bound=None, backend=backend).double()
    x = torch.randn(2, 6, *size, dtype=torch.float64)
    torch.testing.assert_close(block(x), literal(block, x), rtol=1e-8, atol=1e-9)


def test_bounded_scores_are_squashed_and_nothing_else():
    free = make("sca", score_bound=None).double()
    bounded = make("sca", score_bound=5.0).double()
    bounded.load_state_dict(free.state_dict())
    x = torch.randn(1, 6, 9, 9, dtype=torch.float64)
    for raw, squashed in zip(free.predictor(x), bounded.predictor(x), strict=True):
        torch.testing.assert_close(squashed, 5 * torch.tanh(raw / 5))
        assert squashed.abs().max() < 5


def test_sigmoid_coefficients_are_the_papers_matrix():
    block = make("sca", score_bound=None)
    x = torch.randn(1, 6, 4, 4)
    s, t = block.predictor(x)
    expected = torch.sigmoid(s + t.mT)
    expected.diagonal(dim1=1, dim2=2).fill_(1)
    torch.testing.assert_close(block.coefficients(x), expected)


def test_a_single_channel_is_static_and_several_are_not():
    """The honest consequence: one channel ranks the sources alike for every neuron."""

    def orders(block):
        x = torch.randn(1, 6, 6, 6)
        y = torch.randn(1, 6, 5, 5)
        maps = [block.dependency_map(x, r, c, source=y).flatten() for r in (0, 3) for c in (1, 5)]
        return {tuple(order.argsort().tolist()) for order in maps}

    assert len(orders(make("sca"))) == 1
    assert len(orders(make("sca, 3 channels"))) > 1
    assert len(orders(make("dot"))) > 1


def test_autocast_keeps_scores_in_float32():
    """bfloat16 would quantise them to three digits, and the coefficients hang on them."""
    predictor = make("sca", in_channels=16).predictor
    x = torch.randn(2, 16, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        s, t = predictor(x)
        features = predictor.features(x)
    assert s.dtype == t.dtype == torch.float32
    neurons = features.float().flatten(2).transpose(1, 2)
    weight = predictor.score.weight.flatten(1)[:, 8:]
    torch.testing.assert_close(t, 5 * torch.tanh(neurons @ weight.T / 5))


@pytest.mark.parametrize(
    ("options", "std", "bias"),
    [
        ({}, 0.01, 0),
        ({"pair_channels": 4}, 0.1, 0),
        ({"activation": "identity"}, 0.01, 1),
        ({"activation": "relu", "score_bias": 0.5}, 0.01, 0.5),
        ({"score_std": 0.3}, 0.3, 0),
        ({"score_std": 0, "score_bias": -2}, 0, -2),
    ],
)
def test_where_scores_start(options, std, bias):
    torch.manual_seed(0)
    score = SelectiveContext(64, hidden=512, **options).predictor.score
    assert score.weight.std().item() == pytest.approx(std, rel=0.1)
    assert (score.bias == bias).all()


def test_a_predictor_that_starts_at_the_average_still_learns():
    """Weights of 0 give the average exactly, and gradients that lead away from it."""
    block = make("sca", spread=False, score_std=0.0).double()
    x = torch.randn(1, 6, 5, 5, dtype=torch.float64)
    average = make("average").double()
    average.load_state_dict(block.state_dict(), strict=False)
    h = block(x)
    torch.testing.assert_close(h, average(x))
    h.square().sum().backward()
    assert block.predictor.score.weight.grad.abs().sum() > 0


def test_a_small_bound_keeps_the_coefficients_of_identity_positive():
    options = {"activation": "identity", "hidden": 8}
    x = torch.randn(2, 6, 7, 9, dtype=torch.float64)
    for bound, positive in ((0.45, True), (0.5, False), (5.0, False), (None, False)):
        block = SelectiveContext(6, score_bound=bound, **options).double()
        predictor = block.predictor
        target, source = predictor(x)
        fresh = target + source.transpose(1, 2)  # (B, n, n)
        assert (fresh - 1).abs().max() < 0.5  # near the start no bound is felt
        torch.nn.init.normal_(predictor.score.weight, std=50.0)
        predictor.score.bias.data.fill_(-30.0)
        target, source = predictor(x)
        wild = target + source.transpose(1, 2)
        assert ((wild > 0.0999) & (wild < 1.9001)).all() == positive
        assert block(x).isfinite().all()
        torch.testing.assert_close(
            block(x), block(x, coefficients=block.coefficients(x)), rtol=1e-6, atol=1e-6
        )
    free, guarded = (
        SelectiveContext(6, score_bound=bound, **options).double() for bound in (None, 0.45)
    )
    guarded.load_state_dict(free.state_dict())
    for raw, squashed, start in zip(free.predictor(x), guarded.predictor(x), (1, 0), strict=True):
        expected = start + 0.45 * torch.tanh((raw - start) / 0.45)
        torch.testing.assert_close(squashed, expected)


def test_slices_of_a_large_map_give_the_whole():
    """Without gradients a CPU goes through the predictor slice by slice."""
    block = SelectiveContext(6, hidden=8)
    x = torch.randn(2, 6, 50, 60)
    seen = []
    whole = block.predictor(x)
    with torch.no_grad():
        sliced = block.predictor(x)
        torch.testing.assert_close(sliced, whole, rtol=1e-5, atol=1e-6)
        block.predictor.features[0].register_forward_hook(lambda *call: seen.append(call[2].shape))
        block.predictor(x)
    assert seen == [(2, 8, 50, 60)]  # who watches a layer sees whole maps
