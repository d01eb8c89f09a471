"""Sums gathered piece by piece give what the operator gives for all sources at once."""

import pytest
import torch

from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.dispatch import selective_context
from scaseg.ops.streaming import AffineSums, ExponentialSums, InterpolatedSums, UniformSums
from scaseg.ops.uniform import uniform_context

BOUND = 5.0
SUMS = {
    "identity": lambda weight: AffineSums(weight),
    "exp": lambda weight: ExponentialSums(weight),
    "sigmoid": lambda weight: InterpolatedSums(ACTIVATIONS["sigmoid"], BOUND, weight),
    "softplus": lambda weight: InterpolatedSums(ACTIVATIONS["softplus"], BOUND, weight),
}


def problem(count, channels, dtype=torch.float64):
    values = torch.randn(count, 6, dtype=dtype)
    scores = 2 * torch.randn(2, count, channels, dtype=dtype)
    return values, *scores.clamp(-BOUND, BOUND)


def in_pieces(sums, values, target, source, size=7):
    pieces = [slice(start, start + size) for start in range(0, len(values), size)]
    for piece in pieces:
        sums.add(values[piece], source[piece])
    everyone = torch.ones(len(values), dtype=torch.bool)
    return torch.cat([sums.context(target[p], values[p], source[p], everyone[p]) for p in pieces])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [2, 3, 63])
@pytest.mark.parametrize("activation", SUMS)
def test_pieces_give_the_whole(activation, count, channels):
    if activation == "identity" and channels > 1:
        channels = 2  # one channel in disguise, but the operator takes it
    values, target, source = problem(count, channels)
    weight = None if channels == 1 else torch.rand(channels, dtype=values.dtype) + 0.1
    expected = selective_context(
        values[None],
        target[None],
        source[None],
        activation=activation,
        channel_weight=weight,
        backend="dense",
    )[0]
    found = in_pieces(SUMS[activation](weight), values, target, source)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", SUMS)
def test_float32_keeps_its_digits(activation):
    values, target, source = problem(500, 1, torch.float32)
    expected = selective_context(
        values[None].double(),
        target[None].double(),
        source[None].double(),
        activation=activation,
        backend="dense",
    )[0]
    found = in_pieces(SUMS[activation](None), values, target, source, size=100)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["exp", "sigmoid", "softplus"])
def test_a_source_that_outweighs_all_others_is_left_out_of_its_own_context(activation):
    values, target, source = problem(50, 1)
    source[:] = -BOUND
    source[17] = BOUND
    target[:] = -BOUND
    values[17] = 100.0
    expected = selective_context(
        values[None], target[None], source[None], activation=activation, backend="dense"
    )[0]
    found = in_pieces(SUMS[activation](None), values, target, source)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert found[17].abs().max() < 5 < found[0].abs().min()


def test_average():
    values, target, source = problem(63, 1)
    found = in_pieces(UniformSums(), values, target, source)
    torch.testing.assert_close(found, uniform_context(values[None])[0])


def test_what_was_not_counted_is_not_taken_out():
    values, target, source = problem(20, 1)
    for activation in (*SUMS, "average"):
        sums = UniformSums() if activation == "average" else SUMS[activation](None)
        sums.add(values, source)
        stranger = torch.zeros(1, dtype=torch.bool)
        found = sums.context(target[:1], values[:1] + 9, source[:1] + 1, stranger)
        if activation == "average":
            expected = values.mean(0, keepdim=True)
        else:
            expected = selective_context(
                values[None],
                target[None, :1],
                source[None],
                activation=activation,
                exclude_self=False,
                backend="dense",
            )[0]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", [*SUMS, "average"])
def test_a_neuron_alone_has_no_context(activation):
    values, target, source = problem(1, 1)
    sums = UniformSums() if activation == "average" else SUMS[activation](None)
    assert (in_pieces(sums, values, target, source) == 0).all()


def test_exponentials_of_any_size():
    values, target, source = problem(30, 1)
    source = source * 400  # e^2000
    expected = selective_context(
        values[None], target[None], source[None], activation="exp", backend="dense"
    )[0]
    found = in_pieces(ExponentialSums(None), values, target, source)
    strongest = int(source.argmax())  # it outweighs all others by far more than float64 can tell
    assert (found[strongest] == 0).all()
    found[strongest] = expected[strongest]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
