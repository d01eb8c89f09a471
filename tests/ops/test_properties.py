"""What must hold for any input, whatever the backend."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.cases import ACTIVATION_NAMES, random_case

activations = st.sampled_from(ACTIVATION_NAMES)
backends = st.sampled_from(["dense", "linear"])
sizes = st.integers(1, 90)
channels = st.integers(1, 3)
scales = st.sampled_from([0.0, 0.1, 1.0, 5.0, 40.0, 3000.0])
seeds = st.integers(0, 2**32 - 1)


def draw(seed, n, scale, activation, channels, **options):
    torch.manual_seed(seed)
    return random_case(n, batch=2, scale=scale, activation=activation, channels=channels, **options)


@given(seeds, sizes, scales, activations, channels, backends)
def test_permuting_neurons_permutes_the_context(seed, n, scale, activation, channels, backend):
    case = draw(seed, n, scale, activation, channels)
    order = torch.randperm(n)
    permuted = case.context(
        backend,
        values=case.values[:, order],
        target_score=case.target_score[:, order],
        source_score=case.source_score[:, order],
    )
    # identity rows that nearly cancel magnify rounding by up to 1 / GUARD
    loose = 1e-6 if activation == "identity" else 1e-8
    torch.testing.assert_close(permuted, case.context(backend)[:, order], rtol=loose, atol=loose)


@given(
    seeds,
    sizes,
    scales,
    st.sampled_from([name for name in ACTIVATION_NAMES if name != "identity"]),
    channels,
    backends,
    st.booleans(),
)
def test_a_mean_stays_within_what_it_averages(
    seed, n, scale, activation, channels, backend, masked
):
    case = draw(seed, n, scale, activation, channels, masked=masked)
    result = case.context(backend)
    counts = ~torch.eye(n, dtype=torch.bool).expand(2, n, n)
    if masked:
        counts = counts & case.source_mask.unsqueeze(1)
    inf = torch.inf
    candidates = case.values.unsqueeze(1).expand(-1, n, -1, -1)
    low = candidates.masked_fill(~counts.unsqueeze(-1), inf).amin(2)
    high = candidates.masked_fill(~counts.unsqueeze(-1), -inf).amax(2)
    silent = (result == 0).all(-1, keepdim=True)  # a row that hears nothing
    assert ((result >= low - 1e-8) | silent).all()
    assert ((result <= high + 1e-8) | silent).all()


@given(seeds, sizes, scales, channels, backends, st.floats(-500, 500))
def test_exp_does_not_see_a_constant_added_to_a_target(seed, n, scale, channels, backend, constant):
    case = draw(seed, n, scale, "exp", channels)
    shifted = case.context(backend, target_score=case.target_score + constant)
    torch.testing.assert_close(shifted, case.context(backend), rtol=1e-8, atol=1e-8)


@given(seeds, sizes, scales, activations, channels, backends)
def test_scaling_and_shifting_values(seed, n, scale, activation, channels, backend):
    """A weighted mean is affine in what it averages, wherever anything is averaged."""
    case = draw(seed, n, scale, activation, channels)
    if activation == "identity":
        case.target_score.abs_()  # positive sums: the guard is tested elsewhere
        case.source_score.abs_()
    result = case.context(backend)
    heard = ~(result == 0).all(-1, keepdim=True)
    expected = torch.where(heard, 3 * result - 2, 0.0)
    found = torch.where(heard, case.context(backend, values=3 * case.values - 2), 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@given(seeds, sizes, scales, activations, backends)
def test_every_neuron_ranks_the_sources_alike(seed, n, scale, activation, backend):
    """Static attention: with one channel, more of t is more context, for every target."""
    case = draw(seed, n, scale, activation, 1, targets=5)
    case.target_score.abs_()
    case.source_score.abs_()  # positive row sums: a literal negative sum reverses the order
    one_hot = torch.eye(n, dtype=torch.float64).expand(2, n, n)
    shares = case.context(backend, values=one_hot)  # (2, 5, n): the weights themselves
    order = case.source_score.argsort(-1).unsqueeze(1).expand(-1, 5, -1)
    assert (shares.gather(-1, order).diff(dim=-1) >= -1e-8).all()
