"""Every pair of a study, corrected for their number: by hand."""

import importlib

import pytest

from tests.comparison.test_statistics import row
from tests.docs.pages import ROOT


@pytest.fixture
def pairs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "results")
    return importlib.import_module("making.pairs")


def test_holms_correction_by_hand(pairs):
    """Smallest first: times 4, 3, 2, 1; never below the one before, never above 1."""
    assert pairs.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert pairs.holm([0.5, 0.6]) == pytest.approx([1, 1])
    assert pairs.holm([None, 0.02, None]) == [None, 0.02, None]  # what is no test is not counted
    assert pairs.holm([]) == []


def test_every_pair_is_compared(pairs):
    """none 10 12 14, sca 13 13 16, dot 14 14 18: dot - sca is 1 1 2, 4/3 ± 1/3."""
    scores = {"none": (10, 12, 14), "sca": (13, 13, 16), "dot": (14, 14, 18)}
    rows = [row(name, seed, value) for name in scores for seed, value in enumerate(scores[name])]
    found = pairs.every_pair(rows, list(scores))
    assert [(pair.first, pair.second) for pair in found] == [
        ("none", "sca"),
        ("none", "dot"),
        ("sca", "dot"),
    ]
    last = found[-1].difference
    assert (last.mean, last.error) == pytest.approx((4 / 3, 1 / 3))
    chances = [pair.difference.p for pair in found]
    assert [pair.holm for pair in found] == pairs.holm(chances)
    assert found[-1].holm == pytest.approx(2 * chances[-1])  # the second smallest of three
    table = pairs.pairs_table(found, "seeds")
    assert "| dot against sca | 3 | +1.33 [-0.10, +2.77] | 0.057 | " in table
    assert "the number of pairs in this table (3)." in table


def test_pairs_of_what_was_run_together_only(pairs):
    """dot has one seed, exp none of the others': no interval for one, no row for the other."""
    rows = [row(name, seed, 10 + seed) for name in ("none", "sca") for seed in (0, 1)]
    rows += [row("dot", 0, 12), row("exp", 7, 12)]
    found = pairs.every_pair(rows, ["none", "sca", "dot", "exp", "absent"])
    assert [(pair.first, pair.second, pair.difference.n) for pair in found] == [
        ("none", "sca", 2),
        ("none", "dot", 1),
        ("sca", "dot", 1),
    ]
    assert found[1].holm is None
    assert "| dot against sca | 1 | +2.00 | n/a | n/a |" in pairs.pairs_table(found, "seeds")


def test_pairs_with_one_are_corrected_for_their_own_number(pairs):
    """dot - none is 4 4 6, dot - sca 1 1 2: two pairs, not all three; the smaller p twice."""
    scores = {"none": (10, 10, 12), "sca": (13, 13, 16), "dot": (14, 14, 18)}
    rows = [row(name, seed, value) for name in scores for seed, value in enumerate(scores[name])]
    found = pairs.pairs_with(rows, list(scores), "dot")
    assert [(pair.first, pair.second) for pair in found] == [("dot", "none"), ("dot", "sca")]
    assert [pair.difference.mean for pair in found] == pytest.approx([-14 / 3, -4 / 3])
    chances = [pair.difference.p for pair in found]
    assert [pair.holm for pair in found] == pytest.approx([2 * chances[0], chances[1]])
