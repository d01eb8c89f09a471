"""In low precision, linear is as good as dense: a dtype costs what it costs, not more."""

import pytest
import torch

from tests.ops.cases import ACTIVATION_NAMES, NAMES, outputs_and_grads, random_case, relative_error


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("n", [63, 257, 1009])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_linear_costs_no_more_than_dense(activation, dtype, channels, n, scale):
    case = random_case(
        n, batch=2, channels=channels, activation=activation, scale=scale, dtype=dtype
    )
    exact = outputs_and_grads(case.to(torch.float64), "reference")
    dense = outputs_and_grads(case, "dense")
    for options in ({}, {"score_bound": 40.0}):
        linear = outputs_and_grads(case, "linear", **options)
        for name in NAMES if channels > 1 else NAMES[:-1]:
            assert linear[name].dtype == dtype
            if activation == "exp" and channels == 1 and name == "grad target_score":
                continue  # exactly zero: the score cancels
            allowed = 2 * relative_error(dense[name], exact[name]) + 1e-5
            assert relative_error(linear[name], exact[name]) <= allowed, name


@pytest.mark.parametrize("backend", ["dense", "linear"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_sums_are_accumulated_in_float32(backend, activation):
    """1000 equal values average to themselves; a bfloat16 sum of ones would stop at 256."""
    from scaseg import selective_context

    values = torch.ones(1, 1000, 2, dtype=torch.bfloat16)
    score = torch.full((1, 1000), 0.5, dtype=torch.bfloat16)
    context = selective_context(values, score, score, activation=activation, backend=backend)
    assert torch.equal(context, values)


@pytest.mark.parametrize("bound", [100.0, 300.0])
def test_wide_promises_keep_their_digits(bound):
    case = random_case(2400, dtype=torch.float32)
    case.target_score.uniform_(-bound, bound)
    case.source_score.uniform_(-bound, bound)
    exact = outputs_and_grads(case.to(torch.float64), "dense")
    dense = outputs_and_grads(case, "dense")
    linear = outputs_and_grads(case, "linear", score_bound=bound)
    for name in NAMES[:-1]:
        allowed = 2 * relative_error(dense[name], exact[name]) + 2e-6
        assert relative_error(linear[name], exact[name]) <= allowed, name
