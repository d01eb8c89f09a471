"""What a comparison proves: by hand, and against scipy."""

import pytest

from scaseg.comparison.statistics import summarize
from scaseg.comparison.tables import markdown, to_row


def row(variant, seed, value, fold=None):
    metrics = {"PPA": value + 2, "CAA": value + 1, "mIoU": value}
    more = {"parameters": 10, "milliseconds": 4.0, "mebibytes": ""}
    return {"variant": variant, "seed": seed, "fold": fold, **metrics, **more}


def test_the_summary_by_hand():
    """none 10 12 14, sca 13 13 16: differences 3 1 2, their deviation 1, its error 1/sqrt(3).

    Student's t for 95 % and 2 degrees of freedom is 4.303; t = 2 sqrt(3), p = 0.0742.
    """
    rows = [row("none", seed, value) for seed, value in enumerate((10, 12, 14))]
    rows += [row("sca", seed, value) for seed, value in enumerate((13, 13, 16))]
    none, sca = summarize(rows, ["none", "sca"])
    assert none.mean == {"PPA": 14, "CAA": 13, "mIoU": 12}
    assert none.spread["mIoU"] == 2
    assert none.error["mIoU"] == pytest.approx(2 / 3**0.5)
    assert (sca.n, sca.counted, sca.runs) == (3, "seeds", 3)
    found = sca.difference["mIoU"]
    assert (found.mean, found.n) == (2, 3)
    assert found.error == pytest.approx(1 / 3**0.5)
    assert found.low == pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-5)
    assert found.high == pytest.approx(2 + 4.30265 / 3**0.5, abs=1e-5)
    assert found.p == pytest.approx(0.0742, abs=1e-4)
    table = markdown([none, sca])
    assert "| none | 3 | 14.00 ± 1.15 | 13.00 ± 1.15 | 12.00 ± 1.15 | 0.00 M | 4.0 | n/a |" in table
    cell = "+2.00 [-0.48, +4.48]"
    assert f"| sca | 3 | {cell} | {cell} | {cell} | 0.074 |" in table
    assert "Student's t over seeds" in table
    assert to_row(sca)["mIoU_difference_low"] == found.low


def test_seeds_of_a_fold_are_one_piece_of_evidence():
    """Folds differ by 10, seeds by 2: n is the number of folds, and seeds are averaged in each."""
    rows = [row("none", seed, 10 * fold + 2 * seed, fold) for fold in (1, 2) for seed in (0, 1)]
    rows += [
        row("sca", seed, 10 * fold + 2 * seed + gain, fold)
        for fold, seed, gain in ((1, 0, 1), (1, 1, 3), (2, 0, 4), (2, 1, 4))
    ]
    none, sca = summarize(rows, ["none", "sca"])
    assert (none.n, none.counted, none.runs) == (2, "folds", 4)
    assert none.mean["mIoU"] == 16
    assert none.error["mIoU"] == pytest.approx(5)  # of 11 and 21
    found = sca.difference["mIoU"]
    assert (found.mean, found.n) == (3, 2)  # of 2 and 4
    assert found.error == pytest.approx(1)
    assert found.high == pytest.approx(3 + 12.7062, abs=1e-4)
    assert "Student's t over folds" in markdown([none, sca])


def test_pairs_are_of_one_seed_and_fold_and_not_mixed():
    rows = [row("none", 0, 10), row("none", 1, 20), row("sca", 1, 21)]  # sca's seed 0 is missing
    found = summarize(rows, ["none", "sca"])[1].difference["mIoU"]
    assert (found.mean, found.n, found.p) == (1, 1, None)
    rows = [row("none", 0, 10, 1), row("sca", 0, 30, 2)]
    none, sca = summarize(rows, ["none", "sca"])
    assert sca.difference["mIoU"] is None
    assert "against" not in markdown([none, sca])


def test_a_variant_without_rows_is_left_out():
    rows = [row("none", 0, 10)]
    assert [one.name for one in summarize(rows, ["none", "sca"])] == ["none"]


def test_equal_for_sure_and_different_for_sure():
    rows = [row("none", seed, 10 + seed) for seed in (0, 1)]
    rows += [row("sca", seed, 10 + seed) for seed in (0, 1)]
    rows += [row("dot", seed, 11 + seed) for seed in (0, 1)]
    _, sca, dot = summarize(rows, ["none", "sca", "dot"])
    assert sca.difference["mIoU"].p == 1
    assert dot.difference["mIoU"].p == 0
    assert "< 0.001" in markdown(summarize(rows, ["none", "sca", "dot"]))
