import pytest

from scaseg.training.module import poly_factor


@pytest.mark.parametrize(
    ("step", "factor"),
    [(0, 1.0), (1, 0.99**0.9), (50, 0.5**0.9), (99, 0.01**0.9), (100, 0.0), (101, 0.0)],
)
def test_poly_values(step, factor):
    assert poly_factor(step, 100, power=0.9) == pytest.approx(factor)


def test_a_power_of_zero_is_constant():
    assert [poly_factor(step, 10, power=0) for step in range(10)] == [1.0] * 10


def test_the_rate_rises_first():
    rates = [poly_factor(step, 100, power=0, warmup=4) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
