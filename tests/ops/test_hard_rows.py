"""Rows that break careless implementations."""

from dataclasses import replace

import pytest
import torch

from scaseg.ops.dense import GUARD, reciprocal
from scaseg.ops.dispatch import aggregate
from tests.ops.cases import (
    ACTIVATION_NAMES,
    SMOOTH,
    assert_agree,
    outputs_and_grads,
    random_case,
    relative_error,
)

BACKENDS = ("reference", "dense", "linear")


def assert_finite(result):
    for name, tensor in result.items():
        assert tensor.isfinite().all(), name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_to_listen_to_gives_zero(backend, activation, channels):
    alone = random_case(1, batch=2, channels=channels, activation=activation)
    masked = random_case(9, batch=2, channels=channels, activation=activation, masked=True)
    masked.source_mask.fill_(False)
    for case in (alone, masked):
        result = outputs_and_grads(case, backend)
        assert_finite(result)
        for name, tensor in result.items():
            assert (tensor == 0).all(), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_relu_row_that_hears_nothing_gives_zero(backend):
    case = random_case(9, batch=2, activation="relu")
    case.target_score[:, 4] = -100
    result = outputs_and_grads(case, backend)
    assert_finite(result)
    assert (result["context"][:, 4] == 0).all()
    assert (result["context"][:, 3] != 0).any()


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("n", [2, 40, 257])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    "kind",
    ["50", "1e4", "equal", "target outlier", "source outlier", "both", "no weight", "strong, none"],
)
def test_extreme_scores(backend, activation, n, channels, kind):
    case = random_case(n, channels=channels, activation=activation)
    s, t = case.target_score, case.source_score
    if kind == "50":
        s.mul_(25).clamp_(-50, 50)
        t.mul_(25).clamp_(-50, 50)
    elif kind == "1e4":
        s.mul_(5e3).clamp_(-1e4, 1e4)
        t.mul_(5e3).clamp_(-1e4, 1e4)
    elif kind == "equal":
        s.fill_(0.3)
        t.fill_(-0.1)
    elif kind == "target outlier":
        s[:, 0] += 1e4
    elif kind == "source outlier":
        t[:, 0] += 30
    elif kind == "both":
        s[:, 0] -= 1e4
        t[:, 0] += 1e4
    elif kind == "no weight":
        case.channel_weight[0] = 0
    elif kind == "strong, none":  # a channel that would drown the others, but for its weight
        case.channel_weight[0] = 0
        s.view(n, -1)[:, 0] += 1000
    expected = outputs_and_grads(case, "reference")
    found = outputs_and_grads(case, backend)
    assert_finite(expected)
    assert_finite(found)
    if kind == "strong, none":  # e^1000 in truth, so any finite number is as good
        expected["grad channel_weight"] = found["grad channel_weight"]
    assert_agree(found, expected, 1e-8 if activation in SMOOTH else 1e-9)
    in_float32 = outputs_and_grads(case.to(torch.float32), backend)
    assert_finite(in_float32)


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ["exp", "sigmoid", "softplus", "relu"])
def test_a_dominant_neuron_loses_no_digits(backend, activation):
    """Total minus own would give 4e-2 here in float32 (exp)."""
    case = random_case(200, activation=activation, dtype=torch.float32)
    case.source_score[:, 7] += 20
    case.target_score[:, 7] -= 25
    exact = outputs_and_grads(case.to(torch.float64), "reference")["context"]
    found = outputs_and_grads(case, backend)["context"]
    assert relative_error(found[:, 7], exact[:, 7]) < 3e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_scores_that_cancel_lose_no_digits(dtype):
    """Identity with s near -1e4 and t near 1e4: only their sum means anything."""
    case = random_case(200, activation="identity")
    case.target_score.add_(3 - 1e4)
    case.source_score.add_(1e4)
    case = case.to(dtype)
    exact = outputs_and_grads(case.to(torch.float64), "reference")["context"]
    dense, linear = (outputs_and_grads(case, name)["context"] for name in ("dense", "linear"))
    allowed = 2 * relative_error(dense, exact) + 100 * torch.finfo(dtype).eps
    assert relative_error(linear, exact) <= allowed


@pytest.mark.parametrize("backend", BACKENDS)
def test_identity_sums_that_cross_zero_stay_finite(backend):
    """s runs through the point where the row sums vanish, and exactly over it."""
    case = random_case(101, activation="identity")
    case.source_score.copy_(torch.linspace(-1, 1, 101))
    case.target_score.copy_(torch.linspace(-1e-2, 1e-2, 101))
    result = outputs_and_grads(case, backend)
    assert_finite(result)
    assert result["context"].abs().max() <= case.values.abs().max() / GUARD
    assert_agree(result, outputs_and_grads(case, "reference"), 1e-9)


def test_the_guard_changes_nothing_where_sums_are_safe():
    """Literal division, wherever the sum is at least GUARD of the sum of magnitudes."""
    case = random_case(101, activation="identity")
    a = case.target_score.unsqueeze(2) + case.source_score.unsqueeze(1)
    a.diagonal(dim1=1, dim2=2).fill_(0)
    total = a.sum(-1, keepdim=True)
    safe = (total.abs() >= GUARD * a.abs().sum(-1, keepdim=True)).squeeze(-1)
    assert 90 < safe.sum() <= 101
    literal = (a @ case.values) / total
    for backend in ("dense", "linear"):
        assert relative_error(case.context(backend)[safe], literal[safe]) < 1e-10


def test_the_guard_limits_a_matrix_of_the_users():
    values = torch.tensor([[[1.0], [-1.0], [2.0]]])
    coefficients = torch.tensor([[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, -1.0, 7.0]]])
    context = aggregate(values, coefficients)
    # row 0: (-1 + 2) / 2; row 1: nothing counts; row 2: a sum of 0
    torch.testing.assert_close(context.flatten(), torch.tensor([0.5, 0.0, 0.0]))


def test_the_guard_is_continuous():
    """1 / sum up to the floor, then down to 0 in a straight line; nowhere more than 1 / floor."""
    floor = GUARD * 2.0
    magnitude = torch.full((5,), 2.0)
    total = torch.tensor([2 * floor, floor, floor / 2, 0.0, -floor / 2])
    expected = torch.tensor([0.5, 1.0, 0.5, 0.0, -0.5]) / floor
    torch.testing.assert_close(reciprocal(total, magnitude), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("where", ["values", "target_score", "source_score"])
def test_nan_in_nan_out(backend, activation, where):
    case = random_case(150, activation=activation)
    getattr(case, where)[0, 5] = torch.nan
    case.target_score[0, 0] = 50  # hears everything, whatever the activation
    context = outputs_and_grads(case, backend)["context"]
    if where == "target_score":
        assert context[0, 5].isnan().all()
        others = torch.arange(150) != 5
        assert context[0, others].isfinite().all(), "one bad score must not spoil other rows"
    else:
        assert context[0, 0].isnan().all()
    if where == "source_score":
        literally = outputs_and_grads(case, "reference")["context"].isnan()
        assert context[literally].isnan().all(), "hidden in a row that hears little"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_what_is_masked_does_not_matter_at_all(backend, activation):
    """Not its value, not its score, not even NaN; and it gets no gradient."""
    case = random_case(70, activation=activation, masked=True, targets=33)
    expected = outputs_and_grads(case, backend)
    case.values[~case.source_mask] = torch.nan
    case.source_score[~case.source_mask] = torch.nan
    found = outputs_and_grads(case, backend)
    for name in ("context", "grad target_score"):
        torch.testing.assert_close(found[name], expected[name])
    for name in ("grad values", "grad source_score"):
        assert (found[name][~case.source_mask] == 0).all(), name


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_a_padded_batch_gives_what_single_images_give(activation):
    small, large = (random_case(n, activation=activation) for n in (90, 130))
    batch = {}
    for name in ("values", "target_score", "source_score"):
        one, other = getattr(small, name), getattr(large, name)
        batch[name] = torch.cat([torch.cat([one, torch.full_like(other[:, :40], 99)], 1), other])
    mask = torch.ones(2, 130, dtype=torch.bool)
    mask[0, 90:] = False
    together = large.context("linear", **batch, source_mask=mask)
    for image, case in ((together[:1, :90], small), (together[1:], large)):
        torch.testing.assert_close(image, case.context("linear"), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_masked_sources_set_no_scale(backend, activation):
    """All visible scores are far below what stands at the masked ones."""
    case = random_case(30, activation=activation, masked=True, dtype=torch.float32)
    case.source_score[case.source_mask] -= 90
    case.target_score.sub_(20)
    if activation == "identity":
        case.target_score.add_(500)
    found = outputs_and_grads(case, backend)
    assert_finite(found)
    exact = outputs_and_grads(case.to(torch.float64), "reference")
    assert relative_error(found["context"], exact["context"]) < 1e-5


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("size", [1e17, 1e200])
def test_absurd_scores(backend, activation, size):
    case = random_case(50, activation=activation, scale=size)
    context = outputs_and_grads(case, backend)["context"]
    expected = outputs_and_grads(case, "reference")["context"]
    assert relative_error(context, expected) < 1e-8


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ["sigmoid", "softplus", "exp", "relu"])
def test_a_source_at_minus_infinity_is_not_heard(backend, activation):
    case = random_case(80, activation=activation)
    case.source_score[:, 7] = -torch.inf
    context = outputs_and_grads(case, backend)["context"]
    case.source_score[:, 7] = 0
    masked = torch.ones(1, 80, dtype=torch.bool)
    masked[:, 7] = False
    expected = outputs_and_grads(replace(case, source_mask=masked), "reference")["context"]
    assert relative_error(context, expected) < 1e-8


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("bound", [None, 8.0])
@pytest.mark.parametrize(("batch", "targets"), [(0, None), (2, 0), (0, 0)])
def test_nothing_to_compute(backend, activation, bound, batch, targets):
    case = random_case(9, batch=batch, targets=targets, activation=activation)
    result = outputs_and_grads(case, backend, score_bound=bound)
    assert result["context"].shape == (batch, 9 if targets is None else targets, 5)
    assert (result["grad values"] == 0).all()


def test_softplus_gradients_carry_no_noise_below_the_ceiling():
    """A weak source with a huge value: d fall / d mean must be exactly zero there."""
    case = random_case(257, activation="softplus", scale=2.0, targets=257, dtype=torch.float32)
    case.values[:, 5] *= 1e8
    case.source_score[:, 5] -= 20
    exact = outputs_and_grads(case.to(torch.float64), "reference")["grad source_score"]
    dense, linear = (outputs_and_grads(case, b)["grad source_score"] for b in ("dense", "linear"))
    assert relative_error(linear, exact) <= 2 * relative_error(dense, exact) + 1e-5


@pytest.mark.parametrize("activation", ["sigmoid", "exp"])
def test_the_weight_of_a_silent_channel_gets_its_true_gradient(activation):
    case = random_case(20, channels=2, activation=activation)
    case.channel_weight.copy_(torch.tensor([0.0, 1.0]))
    case.target_score[..., 1] -= 35  # so the silent channel would be e^35 times the other
    results = [outputs_and_grads(case, name) for name in BACKENDS]
    a = [torch.sigmoid, torch.exp][activation == "exp"](
        case.target_score.unsqueeze(2) + case.source_score.unsqueeze(1)
    ) * (1 - torch.eye(20, dtype=torch.float64)).view(1, 20, 20, 1)
    sums = torch.einsum("bijr,bjm->birm", a, case.values)
    total = a.sum(2)[..., 1:]
    context = sums[:, :, 1] / total
    literal = ((sums[:, :, 0] - context * a.sum(2)[..., :1]) / total * case.grad).sum()
    for result in results:
        assert result["grad channel_weight"][0] == pytest.approx(float(literal), rel=1e-9)


def test_a_broken_promise_that_nobody_checked_counts_as_the_bound(monkeypatch):
    """As in a compiled graph or on a GPU: never outside, whatever the row."""
    from scaseg.ops import checks

    for activation in SMOOTH:
        case = random_case(50, activation=activation)
        case.target_score.clamp_(-4, 4)
        case.source_score.clamp_(-4, 4)
        case.target_score[0, 3], case.source_score[0, 8] = 5.0, -5.0
        expected = outputs_and_grads(case, "linear", score_bound=5.0)["context"]
        case.target_score[0, 3], case.source_score[0, 8] = 100.0, -77.0
        with monkeypatch.context() as patch:
            patch.setattr(checks, "_values_can_be_read", lambda tensor: False)
            found = outputs_and_grads(case, "linear", score_bound=5.0)["context"]
        torch.testing.assert_close(found, expected)


def test_a_promise_is_about_what_counts():
    case = random_case(30, masked=True, dtype=torch.bfloat16)
    case.source_score[~case.source_mask] = 99
    case.target_score.clamp_(-5.3, 5.3)
    case.target_score[0, 0] = 5.3  # 5.3125 in bfloat16
    case.context("auto", score_bound=5.3)
    case.target_score[0, 1] = torch.nan  # must not hide what the sources do
    with pytest.raises(ValueError, match="source_score: reaches 99"):
        case.context("auto", source_mask=None, score_bound=5.3)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_torch_func(activation):
    """Functional transforms see the same gradients as autograd."""
    case = random_case(400, activation=activation)

    def loss(values, target_score, source_score):
        scores = {"target_score": target_score, "source_score": source_score}
        return (case.context("linear", values=values, **scores) * case.grad).sum()

    found = torch.func.grad(loss, argnums=(0, 1, 2))(
        case.values, case.target_score, case.source_score
    )
    expected = outputs_and_grads(case, "linear")
    for name, tensor in zip(("values", "target_score", "source_score"), found, strict=True):
        torch.testing.assert_close(tensor, expected[f"grad {name}"])
