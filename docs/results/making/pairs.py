"""Every pair of variants of a study, with p corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from scaseg.comparison.statistics import Difference, Rows, paired, values_of
from scaseg.comparison.tables import markdown_table, p_value, paired_by, with_interval


@dataclass(frozen=True)
class VariantPair:
    """Two variants and their difference, second - first; holm: p corrected for all pairs."""

    first: str
    second: str
    difference: Difference
    holm: float | None


def every_pair(rows: Rows, names: Sequence[str], metric: str = "mIoU") -> list[VariantPair]:
    """Every variant against each before it, where runs pair up."""
    values = {name: values_of(rows, name, metric) for name in names}
    found = {
        (first, second): difference
        for first, second in combinations(names, 2)
        if (difference := paired(values[first], values[second])) is not None
    }
    corrected = holm([difference.p for difference in found.values()])
    return [VariantPair(*key, found[key], p) for key, p in zip(found, corrected, strict=True)]


def pairs_with(rows: Rows, names: Sequence[str], first: str) -> list[VariantPair]:
    """Every other variant against one, corrected for the number of these pairs alone."""
    others = [name for name in names if name != first]
    found = [pair for pair in every_pair(rows, [first, *others]) if pair.first == first]
    corrected = holm([pair.difference.p for pair in found])
    return [replace(pair, holm=p) for pair, p in zip(found, corrected, strict=True)]


def verdict(found: Difference) -> str:
    """What an interval says.

    >>> verdict(Difference(1.0, 3, 0.1, 0.6, 1.4, 0.01))
    'above'
    """
    if found.low is None or found.high is None:
        return "one pair, which proves nothing"
    if found.low > 0:
        return "above"
    return "below" if found.high < 0 else "not told apart"


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """Correct p values for their number, after Holm (1979); None is not a test and not counted.

    Calling different whatever stays below 0.05 then errs in at most 5 % of such families.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    tests = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    corrected: list[float | None] = [None] * len(chances)
    largest = 0.0
    for rank, (p, place) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - rank) * p))  # the order of p is kept
        corrected[place] = largest
    return corrected


def pairs_table(pairs: Sequence[VariantPair], counted: str) -> str:
    """Every pair of variants and its difference in mIoU, as a table for people."""
    rows = []
    for pair in pairs:
        found = pair.difference
        cells = (found.n, with_interval(found), p_value(found.p), p_value(pair.holm))
        rows.append([f"{pair.second} against {pair.first}", *cells])
    note = (
        f"{paired_by(counted)}; the last column is corrected, after Holm, for the number of "
        f"pairs in this table ({len(pairs)})."
    )
    return markdown_table(["pair", counted, "mIoU", "p", "p, Holm"], rows, note)
