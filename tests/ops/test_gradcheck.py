"""Numerical differentiation: no formula of ours is involved."""

import pytest
from torch.autograd import gradcheck, gradgradcheck

from tests.ops.cases import ACTIVATION_NAMES, ARGUMENTS, EXACT, random_case


def as_function(case, backend, **options):
    def function(*leaves):
        return case.context(backend, **dict(zip(ARGUMENTS, leaves, strict=True)), **options)

    return function, [getattr(case, name).clone().requires_grad_() for name in ARGUMENTS]


def away_from_zero_sums(case):
    # identity rows that nearly cancel are guarded, which is not differentiation's business
    if case.activation == "identity":
        case.target_score.add_(4)
    return case


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize(("n", "channels"), [(2, 1), (3, 3), (63, 1), (63, 3)])
def test_first_derivatives(activation, backend, n, channels):
    case = random_case(n, channels=channels, features=2, activation=activation)
    function, leaves = as_function(away_from_zero_sums(case), backend)
    assert gradcheck(function, leaves, fast_mode=n > 3)


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
@pytest.mark.parametrize("targets", [None, 4])
def test_first_derivatives_of_the_interpolated_form(activation, targets):
    case = random_case(
        7, batch=2, channels=2, features=2, masked=True, targets=targets, activation=activation
    )
    function, leaves = as_function(case, "linear", score_bound=4.0)
    assert gradcheck(function, leaves)


@pytest.mark.parametrize("activation", EXACT)
@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("channels", [1, 3])
def test_second_derivatives_of_exact_forms(activation, backend, channels):
    case = random_case(6, channels=channels, features=2, activation=activation)
    function, leaves = as_function(away_from_zero_sums(case), backend)
    assert gradgradcheck(function, leaves)


@pytest.mark.parametrize("activation", ["sigmoid", "softplus"])
def test_second_derivatives_of_the_interpolated_form(activation):
    case = random_case(6, channels=2, features=2, activation=activation)
    function, leaves = as_function(case, "linear", score_bound=4.0)
    assert gradgradcheck(function, leaves)
