"""The fit of value = fold + variant: by hand, and against paired differences."""

import importlib
import math

import pytest

from scaseg.comparison.statistics import summarize
from tests.comparison.test_statistics import row
from tests.docs.pages import ROOT


@pytest.fixture
def adjusted(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "results")
    return importlib.import_module("making.adjusted").adjusted


def test_two_variants_that_ran_in_all_folds_are_adjusted_as_they_are_paired(adjusted):
    rows = [row("none", 0, value, fold) for fold, value in enumerate((10, 12, 17), start=1)]
    rows += [row("sca", 0, value, fold) for fold, value in enumerate((13, 13, 19), start=1)]
    found = adjusted(rows, ["none", "sca"])
    (_, sca) = summarize(rows, ["none", "sca"])
    assert found["none"].mean == pytest.approx(13)
    assert found["none"].difference is None
    assert found["sca"].mean == pytest.approx(15)
    expected = sca.difference["mIoU"]
    for name in ("mean", "n", "error", "low", "high", "p"):
        assert getattr(found["sca"].difference, name) == pytest.approx(getattr(expected, name))


def test_what_ran_in_few_folds_is_adjusted_for_them_and_takes_the_noise_of_all(adjusted):
    """Folds 10 and 30; b is a + 1 in both, c a + 2 -+ 1: residuals by hand below.

    d ran in the easy fold alone: its plain mean is far above, its difference is 3, and without a
    second run it says nothing about noise.
    """
    values = {"a": (10, 30), "b": (11, 31), "c": (11, 33), "d": (None, 33)}
    rows = [
        row(name, 0, value, fold)
        for name, own in values.items()
        for fold, value in enumerate(own, start=1)
        if value is not None
    ]
    found = adjusted(rows, ["a", "b", "c", "d"])
    # of a, b, c: residuals -+1/3, -+1/3, +-2/3 around fold + variant, 2 degrees of freedom
    residual = math.sqrt((2 / 9 + 2 / 9 + 8 / 9) / 2)
    assert [found[name].mean for name in "abc"] == pytest.approx([20, 21, 22])
    assert found["b"].difference.error == pytest.approx(residual)  # sqrt(2 / 2 folds)
    assert found["c"].difference.mean == pytest.approx(2)
    # fold 2 lies 1/3 above what a alone says of it, so d is that much less above a
    assert found["d"].difference.mean == pytest.approx(3 - 1 / 3)
    assert (found["d"].difference.error, found["d"].difference.p) == (None, None)
    alone = adjusted([*rows, row("e", 0, 99, 7)], ["a", "b", "c", "d", "e"])
    assert "e" not in alone  # no fold in common with anybody
    assert alone == found
    assert adjusted(rows[:2], ["a"])["a"].difference is None
    single = adjusted([row("a", 0, 1, 1), row("b", 0, 2, 1)], ["a", "b"])["b"].difference
    assert (single.mean, single.low, single.p) == (1, None, None)
