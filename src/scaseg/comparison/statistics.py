"""Statistics of the results: means, paired differences, confidence intervals.

Runs of one fold share their test images, so seeds within a fold are not independent: they are
averaged first, and folds are counted. Without folds, seeds are counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaseg.comparison.jobs import Job
from scaseg.plots.figures import Bar, Runs

# columns of results.csv: scores in percent, and what was measured of the maps
METRICS = ("PPA", "CAA", "mIoU")
SELECTIVITY = ("entropy", "rank_correlation", "difference", "same_class", "same_class_if_even")
OCCLUSION = ("occlusion_pointed", "occlusion_random")
CONFIDENCE = 0.95
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences over n folds (or seeds), its interval and p; None: n is 1."""

    mean: float
    n: int
    error: float | None
    low: float | None
    high: float | None
    p: float | None

    @property
    def bar(self) -> Bar:
        """What is drawn: the mean and its interval."""
        low, high = (self.mean if end is None else end for end in (self.low, self.high))
        return self.mean, low, high


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

    @property
    def bar(self) -> Bar:
        """What is drawn: the mean mIoU and its standard error."""
        mean, error = self.mean["mIoU"], self.error["mIoU"] or 0.0
        return mean, mean - error, mean + error


def summarize(rows: Rows, names: Sequence[str]) -> list[Summary]:
    """Mean and error of each variant that has rows, and its paired differences to the first."""
    found = []
    for name in names:
        own = [row for row in rows if row["variant"] == name]
        if not own:
            continue
        values = {metric: values_of(rows, name, metric) for metric in METRICS}
        units = {metric: list(average_seeds(values[metric]).values()) for metric in METRICS}
        memory, seconds = known(own, "mebibytes"), known(own, "seconds")
        found.append(
            Summary(
                name=name,
                runs=len(own),
                counted="seeds" if Job.of_row(own[0]).fold is None else "folds",
                n=len(units["mIoU"]),
                mean={metric: statistics.fmean(units[metric]) for metric in METRICS},
                error={metric: standard_error(units[metric]) for metric in METRICS},
                spread={
                    metric: statistics.stdev(values[metric].values()) if len(own) > 1 else 0.0
                    for metric in METRICS
                },
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


def paired(first: Runs, second: Runs) -> Difference | None:
    """The difference second - first over the folds and seeds that both have; None: none."""
    differences = {run: second[run] - first[run] for run in second if run in first}
    if not differences:
        return None
    units = list(average_seeds(differences).values())
    return interval(statistics.fmean(units), len(units), standard_error(units), len(units) - 1)


def interval(mean: float, n: int, error: float | None, freedom: int) -> Difference:
    """The confidence interval and p of a mean with this standard error, by Student's t."""
    if error is None:
        return Difference(mean, n, None, None, None, None)
    from scipy.stats import t  # takes a second to import

    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    # no spread at all: certainly equal, or certainly different
    p = 2 * float(t.sf(abs(mean / error), freedom)) if error else float(mean == 0)
    return Difference(mean, n, error, mean - half, mean + half, p)


def values_of(rows: Rows, name: str, metric: str) -> Runs:
    """A metric of a variant by fold and seed."""
    jobs = ((Job.of_row(row), float(row[metric])) for row in rows if row["variant"] == name)
    return {(job.fold, job.seed): value for job, value in jobs}


def average_seeds(values: Runs) -> dict[int, float]:
    """Average the seeds of each fold; without folds, a seed stands for itself."""
    groups: dict[int, list[float]] = {}
    for (fold, seed), value in values.items():
        groups.setdefault(seed if fold is None else fold, []).append(value)
    return {unit: statistics.fmean(group) for unit, group in groups.items()}


def known(rows: Rows, name: str) -> list[float]:
    """A column where it is not empty: earlier versions measured less."""
    return [float(row[name]) for row in rows if row.get(name) not in (None, "")]


def standard_error(values: Sequence[float]) -> float | None:
    """The standard error of a mean; None for a single value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
