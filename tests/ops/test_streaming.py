"""Sums gathered piece by piece give what the operator gives for all sources at once."""

import pytest
import torch

from scaseg.ops.activation import ACTIVATIONS
from scaseg.ops.dispatch import selective_context
from scaseg.ops.exact import uniform_context
from scaseg.ops.streaming import ExpSums, IdentitySums, Neurons, SmoothSums

BOUND = 5.0
SUMS = {
    "identity": IdentitySums,
    "exp": ExpSums,
    "sigmoid": lambda weight: SmoothSums(ACTIVATIONS["sigmoid"], BOUND, weight),
    "softplus": lambda weight: SmoothSums(ACTIVATIONS["softplus"], BOUND, weight),
}


def draw(count, channels=1, dtype=torch.float64):
    values = torch.randn(count, 6, dtype=dtype)
    scores = 2 * torch.randn(2, count, channels, dtype=dtype)
    return Neurons(values, *scores.clamp(-BOUND, BOUND))


def dense(neurons, activation, **options):
    batch = [tensor.unsqueeze(0) for tensor in neurons]
    return selective_context(*batch, activation=activation, backend="dense", **options)[0]


def in_pieces(sums, neurons, size=7):
    pieces = [Neurons(*part) for part in zip(*(t.split(size) for t in neurons), strict=True)]
    for piece in pieces:
        sums.add(piece)
    counted = [torch.ones(len(piece.values), dtype=torch.bool) for piece in pieces]
    return torch.cat([sums.context(*part) for part in zip(pieces, counted, strict=True)])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [2, 3, 63])
@pytest.mark.parametrize("activation", SUMS)
def test_pieces_give_the_whole(activation, count, channels):
    if activation == "identity" and channels > 1:
        channels = 2  # one channel in disguise, but the operator takes it
    neurons = draw(count, channels)
    weight = None if channels == 1 else torch.rand(channels, dtype=torch.float64) + 0.1
    expected = dense(neurons, activation, channel_weight=weight)
    found = in_pieces(SUMS[activation](weight), neurons)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", SUMS)
def test_float32_keeps_its_digits(activation):
    neurons = draw(500, dtype=torch.float32)
    expected = dense((tensor.double() for tensor in neurons), activation)
    found = in_pieces(SUMS[activation](None), neurons, size=100)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["exp", "sigmoid", "softplus"])
def test_a_source_that_outweighs_all_others_is_left_out_of_its_own_context(activation):
    neurons = draw(50)
    neurons.source_score[:] = -BOUND
    neurons.source_score[17] = BOUND
    neurons.target_score[:] = -BOUND
    neurons.values[17] = 100.0
    found = in_pieces(SUMS[activation](None), neurons)
    torch.testing.assert_close(found, dense(neurons, activation), rtol=1e-5, atol=1e-6)
    assert found[17].abs().max() < 5 < found[0].abs().min()


def test_average():
    neurons = draw(63)
    zeros = torch.zeros_like(neurons.source_score)
    found = in_pieces(ExpSums(), Neurons(neurons.values, zeros, zeros))
    torch.testing.assert_close(found, uniform_context(neurons.values[None])[0])


@pytest.mark.parametrize("activation", SUMS)
def test_what_was_not_counted_is_not_taken_out(activation):
    neurons = draw(20)
    sums = SUMS[activation](None)
    sums.add(neurons)
    values, target, source = (tensor[:1] for tensor in neurons)
    stranger = Neurons(values + 9, target, source + 1)
    found = sums.context(stranger, torch.zeros(1, dtype=torch.bool))
    expected = dense(neurons._replace(target_score=target), activation, exclude_self=False)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", SUMS)
def test_a_neuron_alone_has_no_context(activation):
    assert (in_pieces(SUMS[activation](None), draw(1)) == 0).all()


def test_exponentials_of_any_size():
    neurons = draw(30)
    neurons = neurons._replace(source_score=neurons.source_score * 400)  # e^2000
    found, expected = in_pieces(ExpSums(None), neurons), dense(neurons, "exp")
    # the strongest outweighs all others by far more than float64 can express
    strongest = int(neurons.source_score.argmax())
    assert (found[strongest] == 0).all()
    found[strongest] = expected[strongest]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
