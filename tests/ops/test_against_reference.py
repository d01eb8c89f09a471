"""dense and linear give the reference's values and every gradient of it, in float64."""

import itertools
from dataclasses import replace

import pytest
import torch

from scaseg.ops import exact
from scaseg.ops.exact import blocked_prefix_sums
from tests.ops.cases import (
    ACTIVATION_NAMES,
    EXACT,
    SMOOTH,
    assert_agree,
    outputs_and_grads,
    random_case,
    relative_error,
)


def tolerance(activation: str) -> float:
    return 1e-8 if activation in SMOOTH else 1e-9


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 63, 257])
@pytest.mark.parametrize("batch", [1, 3])
def test_backends_agree_with_reference(activation, channels, n, batch):
    for masked, targets in itertools.product([False, True], [None, n + 4]):
        case = random_case(
            n,
            batch=batch,
            channels=channels,
            masked=masked,
            targets=targets,
            activation=activation,
        )
        expected = outputs_and_grads(case, "reference")
        note = f"masked={masked} targets={targets}"
        assert_agree(outputs_and_grads(case, "dense"), expected, 1e-9, note)
        assert_agree(outputs_and_grads(case, "linear"), expected, tolerance(activation), note)
        # a promise takes the interpolated path however few targets there are
        promised = outputs_and_grads(case, "linear", score_bound=8.0)
        assert_agree(promised, expected, tolerance(activation), note)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("low", [-60.0, -1e4])
def test_rows_whose_coefficients_are_all_tiny(activation, channels, low):
    """Here the error must be small beside each row, not only beside the largest."""
    case = random_case(257, channels=channels, activation=activation)
    ramp = torch.linspace(low, 3, 257, dtype=torch.float64)
    case.target_score.copy_(ramp.view(1, -1, *[1] * (case.target_score.dim() - 2)))
    expected = outputs_and_grads(case, "reference")
    for backend in ("dense", "linear"):
        found = outputs_and_grads(case, backend)
        assert_agree(found, expected, tolerance(activation))
        error = (found["context"] - expected["context"]).abs().amax(-1)
        size = expected["context"].abs().amax(-1)
        assert (error <= tolerance(activation) * size).all()


@pytest.mark.parametrize("activation", EXACT)
def test_exact_forms_do_not_interpolate(activation):
    """Exact means rounding: the error does not depend on how far the scores spread."""
    case = random_case(257, scale=30.0, activation=activation)
    found, expected = (outputs_and_grads(case, name) for name in ("linear", "reference"))
    assert relative_error(found["context"], expected["context"]) < 1e-12


def test_single_channel_may_be_given_with_or_without_its_axis():
    case = random_case(63)
    flat = outputs_and_grads(case, "linear")
    scores = {name: getattr(case, name).unsqueeze(-1) for name in ("target_score", "source_score")}
    wide = replace(case, **scores)
    for name, tensor in outputs_and_grads(wide, "linear").items():
        assert torch.equal(tensor.reshape(flat[name].shape), flat[name]), name


@pytest.mark.parametrize("backend", ["dense", "linear"])
def test_scores_of_another_dtype_than_values(backend):
    """Autocast gives bfloat16 values and float32 scores: the result follows the values."""
    case = random_case(300, dtype=torch.float32)
    found = case.context(backend, values=case.values.bfloat16())
    assert found.dtype == torch.bfloat16
    assert relative_error(found, case.context(backend)) < 2**-7


@pytest.mark.parametrize("n", [1, 255, 256, 257, 700])
def test_sums_in_blocks_are_the_same(n):
    """What relu adds up on a GPU; its steps may be none."""
    x = torch.randn(2, n, 3, dtype=torch.float64)
    assert relative_error(blocked_prefix_sums(x), x.cumsum(1)) < 1e-14


@pytest.mark.parametrize("channels", [1, 3])
def test_relu_by_sums_in_blocks(channels, monkeypatch):
    monkeypatch.setattr(exact, "prefix_sums", blocked_prefix_sums)
    case = random_case(601, batch=2, channels=channels, activation="relu", masked=True)
    expected = outputs_and_grads(case, "reference")
    assert_agree(outputs_and_grads(case, "linear"), expected, 1e-9)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("targets", [None, 300])
def test_values_of_an_ordinary_map(activation, targets):
    """Where neurons lie side by side in memory, as x.flatten(2).mT has them."""
    case = random_case(257, batch=2, channels=1, targets=targets, activation=activation)
    turned = replace(case, values=case.values.mT.contiguous().mT)
    expected = outputs_and_grads(case, "reference")
    assert_agree(outputs_and_grads(turned, "linear"), expected, tolerance(activation))
    # a ReLU behind it may work in place: no view may leave a step of autograd
    leaf = turned.values.requires_grad_()
    found = case.context("linear", values=leaf).relu_()
    if activation != "relu":  # two layouts would take ten times as long to add
        assert found.stride(1) == 1
    (grad,) = torch.autograd.grad(found, leaf, case.grad)
    (wanted,) = torch.autograd.grad(case.context("dense", values=leaf).relu(), leaf, case.grad)
    assert relative_error(grad, wanted) < tolerance(activation)
