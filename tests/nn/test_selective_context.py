"""The block: what it computes, shows, and survives."""

import copy

import pytest
import torch

from scaseg import ContextAggregation, SelectiveContext
from scaseg.ops.reference import activate, pair_scores, weighted_mean

BLOCKS = {
    "predicted": {},
    "predicted, 3 channels": {"pair_channels": 3},
    "predicted, exp": {"activation": "exp"},
    "predicted, relu": {"activation": "relu"},
    "predicted, softplus": {"activation": "softplus"},
    "predicted, identity": {"activation": "identity"},
    "predicted, no layers": {"layers": 0},
    "predicted, W_c = W_d": {"share_features": True},
    "dot": {"dependency": "dot", "key_channels": 4},
    "average": {"dependency": "average"},
    "none": {"dependency": "none"},
}
WITH_CONTEXT = [name for name in BLOCKS if name != "none"]


def make(name, channels=6, out_channels=None, spread=True, **options):
    block = SelectiveContext(channels, out_channels, **{"hidden": 8, **BLOCKS[name], **options})
    if spread and "predicted" in name:  # fresh scores are nearly equal: make them matter
        predictor = block.dependency.predictor
        # identity and relu start at 1 and must stay clear of 0, where rows vanish
        std = 0.02 if predictor.activation in ("identity", "relu") else 0.5
        torch.nn.init.normal_(predictor.score.weight, std=std)
    return block


def literal(block, x):
    """The paper's equation 2 from its own pieces: replicate, concatenate, convolve, average."""
    predictor = block.dependency.predictor
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


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("predicted")])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 3), (13, 19)])
@pytest.mark.parametrize("backend", ["auto", "dense", "linear"])
def test_the_block_is_the_papers_equation(name, size, backend):
    block = make(name, out_channels=5, score_bound=None, backend=backend).double()
    x = torch.randn(2, 6, *size, dtype=torch.float64)
    torch.testing.assert_close(block(x), literal(block, x), rtol=1e-8, atol=1e-9)


def test_bounded_scores_are_squashed_and_nothing_else():
    free = make("predicted", score_bound=None).double()
    bounded = make("predicted", score_bound=5.0).double()
    bounded.load_state_dict(free.state_dict())
    x = torch.randn(1, 6, 9, 9, dtype=torch.float64)
    for raw, squashed in zip(
        free.dependency.predictor(x), bounded.dependency.predictor(x), strict=True
    ):
        torch.testing.assert_close(squashed, 5 * torch.tanh(raw / 5))
        assert squashed.abs().max() < 5


def test_average_is_the_mean_of_the_others():
    block = make("average").double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    c = block.context(x)
    expected = block.identity(x) + (c.sum((2, 3), keepdim=True) - c) / 19
    torch.testing.assert_close(block(x), expected)


def test_none_is_a_convolution():
    block = make("none", out_channels=4)
    x = torch.randn(2, 6, 4, 5)
    assert torch.equal(block(x), torch.nn.functional.conv2d(x, block.identity.weight))
    assert [name for name, _ in block.named_parameters()] == ["identity.weight"]


@pytest.mark.parametrize("key_channels", [4, 5, 64])  # dividing out_channels, not, larger
def test_dot_is_attention(key_channels):
    block = make("dot", out_channels=8, key_channels=key_channels).double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    q, k, c = (
        layer(x).flatten(2).transpose(1, 2)
        for layer in (block.dependency.query, block.dependency.key, block.context)
    )
    attention = torch.softmax(q @ k.mT / key_channels**0.5, -1) @ c
    expected = block.identity(x) + attention.transpose(1, 2).unflatten(2, (4, 5))
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("name", WITH_CONTEXT)
def test_map_and_matrix_tell_what_the_block_does(name):
    block = make(name, score_bound=None).double()
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64)
    matrix = block.coefficients(x)
    assert matrix.shape == (2, 35, 35)
    torch.testing.assert_close(block(x, coefficients=matrix), block(x), rtol=1e-8, atol=1e-9)
    shown = block.dependency_map(x, row=2, col=3)
    own = 2 * 7 + 3
    row = matrix[:, own].clone()
    if name != "dot":
        assert (matrix[:, own, own] == 1).all()
        assert (shown[:, 2, 3] == 0).all()
        row[:, own] = 0
    assert shown.shape == (2, 5, 7)
    torch.testing.assert_close(shown.sum((1, 2)), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(shown.flatten(1), row / row.sum(-1, keepdim=True))


def test_sigmoid_coefficients_are_the_papers_matrix():
    block = make("predicted", score_bound=None)
    x = torch.randn(1, 6, 4, 4)
    s, t = block.dependency.predictor(x)
    expected = torch.sigmoid(s + t.mT)
    expected.diagonal(dim1=1, dim2=2).fill_(1)
    torch.testing.assert_close(block.coefficients(x), expected)


def test_nothing_depends_on_anything_without_context():
    block = make("none")
    x = torch.randn(2, 6, 3, 4)
    assert (block.dependency_map(x, 1, 1) == 0).all()
    assert torch.equal(block.coefficients(x), torch.eye(12).expand(2, 12, 12))


@pytest.mark.parametrize("name", WITH_CONTEXT)
@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_padding_is_nobodys_context(name, backend):
    """A padded batch gives what single images give, whatever the padding holds."""
    block = make(name, backend=backend).double()
    small = torch.randn(1, 6, 9, 11, dtype=torch.float64)
    large = torch.randn(1, 6, 14, 13, dtype=torch.float64)
    batch = torch.full((2, 6, 14, 13), 7.0, dtype=torch.float64)
    batch[0, :, :9, :11] = small[0]
    batch[1] = large[0]
    mask = torch.zeros(2, 14, 13, dtype=torch.bool)
    mask[0, :9, :11] = True
    mask[1] = True
    for given in (mask, mask.unsqueeze(1)):
        together = block(batch, mask=given)
        tolerance = {"rtol": 1e-8, "atol": 1e-8}
        torch.testing.assert_close(together[:1, :, :9, :11], block(small), **tolerance)
        torch.testing.assert_close(together[1:], block(large), **tolerance)
    shown = block.dependency_map(batch, 0, 0, mask=mask)
    assert (shown[~mask] == 0).all()


@pytest.mark.parametrize("name", WITH_CONTEXT)
@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_context_from_another_image(name, backend):
    block = make(name, out_channels=3, backend=backend).double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    y = torch.randn(2, 6, 7, 3, dtype=torch.float64)
    result = block(x, source=y)
    assert result.shape == (2, 3, 4, 5)
    shown = torch.stack(
        [block.dependency_map(x, i // 5, i % 5, source=y).flatten(1) for i in range(20)], 1
    )
    torch.testing.assert_close(shown.sum(-1), torch.ones(2, 20, dtype=torch.float64))
    expected = block(x, source=y, coefficients=shown)
    torch.testing.assert_close(result, expected, rtol=1e-8, atol=1e-8)
    # every neuron of y counts, the one at a target's own place too
    assert (block.coefficients(x, source=y)[:, 3, 3] > 0).all()
    everything_masked = torch.zeros(2, 7, 3, dtype=torch.bool)
    alone = block(x, source=y, mask=everything_masked)
    torch.testing.assert_close(alone, block.identity(x))


def test_coefficients_of_the_users():
    block = ContextAggregation(6, 4).double()
    x = torch.randn(2, 6, 3, 3, dtype=torch.float64)
    uniform = block(x, torch.ones(1, 9, 9, dtype=torch.float64))
    average = make("average", out_channels=4).double()
    average.load_state_dict(block.state_dict())
    torch.testing.assert_close(uniform, average(x))


def test_a_single_channel_is_static_and_several_are_not():
    """The honest consequence: one channel ranks the sources alike for every neuron."""

    def orders(block):
        x = torch.randn(1, 6, 6, 6)
        y = torch.randn(1, 6, 5, 5)
        maps = [block.dependency_map(x, r, c, source=y).flatten() for r in (0, 3) for c in (1, 5)]
        return {tuple(order.argsort().tolist()) for order in maps}

    assert len(orders(make("predicted"))) == 1
    assert len(orders(make("predicted, 3 channels"))) > 1
    assert len(orders(make("dot"))) > 1


@pytest.mark.parametrize("name", BLOCKS)
def test_training_starts_near_the_average_and_can_move(name):
    """Fresh coefficients are nearly equal, and every parameter gets a gradient."""
    torch.manual_seed(3)
    block = make(name, channels=16, spread=False)
    x = torch.randn(2, 16, 8, 8)
    loss = block(x).square().mean()
    loss.backward()
    cancels = {"dependency.predictor.score.bias"} if name == "predicted, exp" else set()
    for parameter, tensor in block.named_parameters():
        assert tensor.grad.isfinite().all(), parameter
        assert parameter in cancels or (tensor.grad != 0).any(), parameter
    if name in ("none", "predicted, 3 channels"):
        return
    shown = block.dependency_map(x, 2, 2).flatten(1)
    others = shown[:, torch.arange(64) != 2 * 8 + 2]
    assert others.max() < (20 if name == "dot" else 2) * others.min()


def test_output_is_about_as_large_as_the_input():
    for name in BLOCKS:
        x = torch.randn(2, 64, 16, 16).relu()
        out = make(name, channels=64, spread=False)(x)
        assert 0.3 < out.std() / x.std() < 3, name


@pytest.mark.parametrize("name", BLOCKS)
def test_memory_format_makes_no_difference(name):
    block = make(name)
    x = torch.randn(2, 6, 9, 8)
    expected = block(x)
    found = block.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected)
    strided = torch.randn(2, 9, 8, 12)[..., ::2].permute(0, 3, 1, 2)
    torch.testing.assert_close(block(strided), block(strided.contiguous()))


@pytest.mark.parametrize("name", BLOCKS)
def test_copies_and_state_dicts_are_the_same_block(name):
    block = make(name)
    x = torch.randn(2, 6, 5, 4)
    expected = block(x)
    assert torch.equal(copy.deepcopy(block)(x), expected)
    other = make(name)
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(x), expected)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("size", [(5, 6), (20, 20)])  # dense, linear
def test_autocast(name, size):
    block = make(name, channels=16)
    x = torch.randn(2, 16, *size)
    expected = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = block(x)
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_autocast_keeps_scores_in_float32():
    """bfloat16 would quantise them to three digits, and the coefficients hang on them."""
    predictor = make("predicted", channels=16).dependency.predictor
    x = torch.randn(2, 16, 5, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        s, t = predictor(x)
        features = predictor.features(x)
    assert s.dtype == t.dtype == torch.float32
    neurons = features.float().flatten(2).transpose(1, 2)
    weight = predictor.score.weight.flatten(1)[:, 8:]
    torch.testing.assert_close(t, 5 * torch.tanh(neurons @ weight.T / 5))


@pytest.mark.parametrize("name", BLOCKS)
def test_in_bfloat16_throughout(name):
    block = make(name).bfloat16()
    out = block(torch.randn(2, 6, 15, 15, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


@pytest.mark.parametrize("name", BLOCKS)
def test_an_empty_batch(name):
    assert make(name)(torch.randn(0, 6, 9, 9)).shape == (0, 6, 9, 9)


@pytest.mark.parametrize("name", WITH_CONTEXT)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_not_even_nan_leaks_from_padding(name, elsewhere):
    """Not forward, not backward, not into a parameter."""
    block = make(name, backend="linear")
    x, y = torch.randn(2, 1, 6, 20, 20)
    mask = torch.ones(1, 20, 20, dtype=torch.bool)
    mask[:, 15:] = False
    padded = y if elsewhere else x
    padded[:, :, 15:] = torch.nan
    x.requires_grad_()
    out = block(x, mask=mask, source=y if elsewhere else None)
    real = out if elsewhere else out[:, :, :15]
    real.square().mean().backward()
    assert real.isfinite().all()
    assert x.grad[:, :, :15].isfinite().all()
    for parameter, tensor in block.named_parameters():
        assert tensor.grad.isfinite().all(), parameter


def test_numpys_whole_numbers_are_whole_numbers():
    import numpy as np

    block, x = make("predicted"), torch.randn(1, 6, 5, 5)
    shown = block.dependency_map(x, np.int64(3), np.argmax([0, 1]))
    assert torch.equal(shown, block.dependency_map(x, 3, 1))


def test_one_matrix_for_both_features():
    own, shared = (make("average", share_features=share) for share in (False, True))
    assert set(own.state_dict()) - set(shared.state_dict()) == {"context.weight"}
    assert (
        ContextAggregation(6, share_features=True)(torch.ones(1, 6, 2, 2), torch.ones(1, 4, 4))
        .isfinite()
        .all()
    )
    with pytest.raises(ValueError, match="share_features is 1; give True or False"):
        make("average", share_features=1)


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
    score = SelectiveContext(64, hidden=512, **options).dependency.predictor.score
    assert score.weight.std().item() == pytest.approx(std, rel=0.1)
    assert (score.bias == bias).all()


@pytest.mark.parametrize("value", [-1, float("nan"), "much", True])
def test_a_start_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"score_std is .*; give a number, 0 or more, or None"):
        SelectiveContext(4, score_std=value)


def test_a_predictor_that_starts_at_the_average_still_learns():
    """Weights of 0 give the average exactly, and gradients that lead away from it."""
    block = make("predicted", spread=False, score_std=0.0).double()
    x = torch.randn(1, 6, 5, 5, dtype=torch.float64)
    average = make("average").double()
    average.load_state_dict(block.state_dict(), strict=False)
    h = block(x)
    torch.testing.assert_close(h, average(x))
    h.square().sum().backward()
    assert block.dependency.predictor.score.weight.grad.abs().sum() > 0


def test_a_small_bound_keeps_the_coefficients_of_identity_positive():
    options = {"activation": "identity", "hidden": 8}
    x = torch.randn(2, 6, 7, 9, dtype=torch.float64)
    for bound, positive in ((0.45, True), (0.5, False), (5.0, False), (None, False)):
        block = SelectiveContext(6, score_bound=bound, **options).double()
        predictor = block.dependency.predictor
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
    for raw, squashed, start in zip(
        free.dependency.predictor(x), guarded.dependency.predictor(x), (1, 0), strict=True
    ):
        expected = start + 0.45 * torch.tanh((raw - start) / 0.45)
        torch.testing.assert_close(squashed, expected)
