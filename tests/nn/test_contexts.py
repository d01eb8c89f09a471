"""What every context does, shows, and survives."""

import copy

import pytest
import torch

from scaseg import ContextAggregation, create_model, load_model
from scaseg.errors import UserError
from scaseg.nn.context import Context
from scaseg.nn.contexts.baselines import AverageContext
from scaseg.nn.streaming import StreamedContext
from scaseg.registry import CONTEXTS
from tests.nn.blocks import BLOCKS, FROM_ELSEWHERE, WITH_CONTEXT, WITH_MAPS, WITHOUT_MAPS, make


def test_every_context_of_the_registry_is_tested():
    assert {name.partition(",")[0] for name in BLOCKS} == set(CONTEXTS)


class Pooled(Context):
    """A context without coefficients: the mean over all neurons, after a nonlinearity."""

    def target_context(self, x, source, source_mask):
        return self.values(x).relu().mean(1, keepdim=True)


def test_a_new_context_is_one_method_and_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(CONTEXTS._homes, "pooled", f"{__name__}:Pooled")
    model = create_model("tiny", "pooled", "pointwise", classes=3, share_features=True)
    assert isinstance(model.context, Pooled)
    assert model.context.context is None
    images = torch.randn(2, 3, 40, 48)
    assert model(images, torch.tensor([[40, 48], [32, 40]])).shape == (2, 3, 40, 48)
    model.save_pretrained(tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model")(images), model.eval()(images))
    x = torch.randn(2, model.context.in_channels, 5, 6)
    for ask in (model.context.coefficients, lambda x: model.context.dependency_map(x, 0, 0)):
        with pytest.raises(UserError, match=r"context: Pooled .* has no coefficients; use sca"):
            ask(x)
    with pytest.raises(UserError, match=r"context_scope: image does not work .* Pooled; use"):
        StreamedContext(model.context)


@pytest.mark.parametrize("name", BLOCKS)
def test_score_parameters_are_those_that_coefficients_follow_from(name):
    block = make(name).double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    found = {id(one) for one in block.score_parameters()}
    if not block.has_maps:
        assert not found
        return
    rows = block.shares(x, torch.arange(20))
    # the classifier of `object` is trained by a loss of its own
    learned = [one for part, one in block.named_parameters() if not part.startswith("classifier.")]
    if rows.requires_grad:
        random = torch.rand_like(rows)
        grads = torch.autograd.grad((rows * random).sum(), learned, allow_unused=True)
        learned = [one for one, grad in zip(learned, grads, strict=True) if grad is not None]
    else:
        learned = []
    assert found == {id(one) for one in learned}


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
        layer(x).flatten(2).transpose(1, 2) for layer in (block.query, block.key, block.context)
    )
    attention = torch.softmax(q @ k.mT / key_channels**0.5, -1) @ c
    expected = block.identity(x) + attention.transpose(1, 2).unflatten(2, (4, 5))
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("name", WITH_MAPS)
def test_map_and_matrix_tell_what_the_block_does(name):
    block = make(name, score_bound=None).double()
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64)
    matrix = block.coefficients(x)
    assert matrix.shape == (2, 35, 35)
    if name != "heads":  # a mean of means: see the test of its own
        torch.testing.assert_close(block(x, coefficients=matrix), block(x), rtol=1e-8, atol=1e-9)
    shown = block.dependency_map(x, row=2, col=3)
    own = 2 * 7 + 3
    row = matrix[:, own].clone()
    if block.exclude_self:
        assert (matrix[:, own, own] == 1).all()
        assert (shown[:, 2, 3] == 0).all()
        row[:, own] = 0
    assert shown.shape == (2, 5, 7)
    torch.testing.assert_close(shown.sum((1, 2)), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(shown.flatten(1), row / row.sum(-1, keepdim=True))


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
    if name in WITH_MAPS:
        shown = block.dependency_map(batch, 0, 0, mask=mask)
        assert (shown[~mask] == 0).all()


@pytest.mark.parametrize("name", [name for name in FROM_ELSEWHERE if name in WITH_MAPS])
@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_context_from_another_image(name, backend):
    block = make(name, out_channels=4, backend=backend).double()
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    y = torch.randn(2, 6, 7, 3, dtype=torch.float64)
    result = block(x, source=y)
    assert result.shape == (2, 4, 4, 5)
    shown = torch.stack(
        [block.dependency_map(x, i // 5, i % 5, source=y).flatten(1) for i in range(20)], 1
    )
    torch.testing.assert_close(shown.sum(-1), torch.ones(2, 20, dtype=torch.float64))
    if name != "heads":
        expected = block(x, source=y, coefficients=shown)
        torch.testing.assert_close(result, expected, rtol=1e-8, atol=1e-8)
    # every neuron of y counts, the one at a target's own place too
    assert (block.coefficients(x, source=y)[:, 3, 3] > 0).all()
    everything_masked = torch.zeros(2, 7, 3, dtype=torch.bool)
    alone = block(x, source=y, mask=everything_masked)
    if name != "gcnet":  # its bottleneck has biases
        torch.testing.assert_close(alone, block.combine(x, None))


def test_coefficients_of_the_users():
    block = ContextAggregation(6, 4).double()
    x = torch.randn(2, 6, 3, 3, dtype=torch.float64)
    uniform = block(x, coefficients=torch.ones(1, 9, 9, dtype=torch.float64))
    average = make("average", out_channels=4).double()
    average.load_state_dict(block.state_dict())
    torch.testing.assert_close(uniform, average(x))


@pytest.mark.parametrize("name", BLOCKS)
def test_training_starts_near_the_average_and_can_move(name):
    """Fresh coefficients are nearly equal, and every parameter gets a gradient."""
    torch.manual_seed(3)
    block = make(name, in_channels=16, spread=False)
    x = torch.randn(2, 16, 8, 8)
    loss = block(x).square().mean()
    loss.backward()
    cancels = {"predictor.score.bias"} if name == "sca, exp" else set()
    for parameter, tensor in block.named_parameters():
        assert tensor.grad.isfinite().all(), parameter
        assert parameter in cancels or (tensor.grad != 0).any(), parameter
    if name in ("none", "sca, 3 channels", "balanced", "position", "ema", *WITHOUT_MAPS):
        return  # alike, pair channels would stay alike
    shown = block.dependency_map(x, 2, 2).flatten(1)
    others = shown[:, torch.arange(64) != 2 * 8 + 2]
    assert others.max() < (2 if block.exclude_self else 20) * others.min()


def test_output_is_about_as_large_as_the_input():
    for name in BLOCKS:
        x = torch.randn(2, 64, 16, 16).relu()
        out = make(name, in_channels=64, spread=False)(x)
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
    block = make(name, in_channels=16)
    x = torch.randn(2, 16, *size)
    expected = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = block(x)
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("name", BLOCKS)
def test_in_bfloat16_throughout(name):
    block = make(name).bfloat16()
    out = block(torch.randn(2, 6, 15, 15, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out.isfinite().all()


@pytest.mark.parametrize("name", BLOCKS)
def test_shapes_alone_on_the_meta_device(name):
    """As tools do that count operations without computing them."""
    x = torch.randn(2, 6, 5, 7, device="meta", requires_grad=True)
    out = make(name).to("meta")(x)
    assert out.shape == x.shape
    out.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("name", BLOCKS)
def test_an_empty_batch(name):
    assert make(name)(torch.randn(0, 6, 9, 9)).shape == (0, 6, 9, 9)


@pytest.mark.parametrize("name", WITH_CONTEXT)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_not_even_nan_leaks_from_padding(name, elsewhere):
    """Not forward, not backward, not into a parameter."""
    if elsewhere and name not in FROM_ELSEWHERE:
        return
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
    if name in WITH_MAPS:
        shown = block.dependency_map(x, 3, 4, mask=mask, source=y if elsewhere else None)
        torch.testing.assert_close(shown.sum(), torch.tensor(1.0))
        assert (shown[~mask] == 0).all()


def test_numpys_whole_numbers_are_whole_numbers():
    import numpy as np

    block, x = make("sca"), torch.randn(1, 6, 5, 5)
    shown = block.dependency_map(x, np.int64(3), np.argmax([0, 1]))
    assert torch.equal(shown, block.dependency_map(x, 3, 1))


def test_one_matrix_for_both_features():
    own, shared = (make("average", share_features=share) for share in (False, True))
    assert set(own.state_dict()) - set(shared.state_dict()) == {"context.weight"}
    x, coefficients = torch.ones(1, 6, 2, 2), torch.ones(1, 4, 4)
    assert ContextAggregation(6, share_features=True)(x, coefficients=coefficients).isfinite().all()


@pytest.mark.parametrize("share", [False, True])
def test_averaging_first_gives_the_average(share):
    """What a GPU computes: one product over the map, with W_c's own share taken out of W_d."""
    block = AverageContext(6, 5, share_features=share).double()
    x = torch.randn(2, 6, 4, 7, dtype=torch.float64, requires_grad=True)
    leaves = [x, *block.parameters()]
    found, expected = block.averaged_first(x), block(x)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(expected, leaves, grad)
    )
