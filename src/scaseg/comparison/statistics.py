"""Statistics of the results: means, paired differences, confidence intervals.

Runs of one fold share their test images, so seeds within a fold are not independent: they are
averaged first, and folds are counted. Without folds, seeds are counted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from scaseg.comparison.jobs import key_of

METRICS = ("PPA", "CAA", "mIoU")
CONFIDENCE = 0.95
Place = tuple[int | None, int]  # fold, seed


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences over n folds (or seeds), its interval and p; None: n is 1."""

    mean: float
    n: int
    error: float | None
    low: float | None
    high: float | None
    p: float | None


@dataclass(frozen=True)
class Summary:
    """One variant over folds and seeds; differences are to the first variant, pair by pair."""

    name: str
    runs: int
    counted: str  # what is counted: folds or seeds
    n: int
    mean: dict[str, float]
    error: dict[str, float | None]  # standard error of the mean, over what is counted
    spread: dict[str, float]  # standard deviation over all runs; 0 for one
    difference: dict[str, Difference | None]  # None: nothing to pair
    parameters: int
    milliseconds: float  # of training, an image
    seconds: float | None  # of a whole job
    mebibytes: float | None


@dataclass(frozen=True)
class VariantPair:
    """Two variants and their difference, second - first; holm: p corrected for all pairs."""

    first: str
    second: str
    difference: Difference
    holm: float | None


def summarize(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Summary]:
    """Mean and error of each variant that has rows, and its paired differences to the first."""
    found = []
    for name in names:
        own = [row for row in rows if row["variant"] == name]
        if not own:
            continue
        values = {metric: values_of(rows, name, metric) for metric in METRICS}
        units = {metric: list(average_seeds(values[metric]).values()) for metric in METRICS}
        memory = [float(row["mebibytes"]) for row in own if row["mebibytes"] not in (None, "")]
        seconds = [float(row["seconds"]) for row in own if row.get("seconds") not in (None, "")]
        found.append(
            Summary(
                name=name,
                runs=len(own),
                counted="seeds" if key_of(own[0])[2] is None else "folds",
                n=len(units["mIoU"]),
                mean={metric: statistics.fmean(units[metric]) for metric in METRICS},
                error={metric: _error(units[metric]) for metric in METRICS},
                spread={metric: _deviation(list(values[metric].values())) for metric in METRICS},
                difference={
                    metric: paired(values_of(rows, names[0], metric), values[metric])
                    for metric in METRICS
                },
                parameters=int(own[0]["parameters"]),
                milliseconds=statistics.median(float(row["milliseconds"]) for row in own),
                seconds=statistics.median(seconds) if seconds else None,
                mebibytes=max(memory) if memory else None,
            )
        )
    return found


def paired(first: Mapping[Place, float], second: Mapping[Place, float]) -> Difference | None:
    """The difference second - first over the folds and seeds that both have; None: none."""
    differences = {place: second[place] - first[place] for place in second if place in first}
    if not differences:
        return None
    units = list(average_seeds(differences).values())
    return interval(statistics.fmean(units), len(units), _error(units), len(units) - 1)


def interval(mean: float, n: int, error: float | None, freedom: int) -> Difference:
    """The confidence interval and p of a mean with this standard error, by Student's t."""
    if error is None:
        return Difference(mean, n, None, None, None, None)
    from scipy.stats import t  # takes a second to import

    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    # no spread at all: certainly equal, or certainly different
    p = 2 * float(t.sf(abs(mean / error), freedom)) if error else float(mean == 0)
    return Difference(mean, n, error, mean - half, mean + half, p)


def every_pair(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], metric: str = "mIoU"
) -> list[VariantPair]:
    """Every variant against each before it, where runs pair up."""
    values = {name: values_of(rows, name, metric) for name in names}
    found = {
        (first, second): difference
        for first, second in combinations(names, 2)
        if (difference := paired(values[first], values[second])) is not None
    }
    corrected = holm([difference.p for difference in found.values()])
    return [VariantPair(*key, found[key], p) for key, p in zip(found, corrected, strict=True)]


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


def values_of(rows: Sequence[Mapping[str, Any]], name: str, metric: str) -> dict[Place, float]:
    """A metric of a variant by fold and seed."""
    found = {}
    for row in rows:
        variant, seed, fold = key_of(row)
        if variant == name:
            found[fold, seed] = float(row[metric])
    return found


def average_seeds(values: Mapping[Place, float]) -> dict[int, float]:
    """Average the seeds of each fold; without folds, a seed stands for itself."""
    groups: dict[int, list[float]] = {}
    for (fold, seed), value in values.items():
        groups.setdefault(seed if fold is None else fold, []).append(value)
    return {unit: statistics.fmean(group) for unit, group in groups.items()}


def _error(values: Sequence[float]) -> float | None:
    return _deviation(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
