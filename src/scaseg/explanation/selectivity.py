"""Numbers that say how selective a model really is.

A dependency map is a distribution over the other neurons. Four questions, each averaged over
neurons drawn at random and then over photographs:

- *entropy*: how evenly is it spread? Its entropy over that of the even one, log(n - 1): 1 is the
  plain average, 0 a single source.
- *rank_correlation*: do different neurons rank the sources in the same order? Spearman's
  correlation between the maps of two neurons, both of their own entries left out of both maps.
  With the paper's predictor (`pair_channels=1`) the coefficient phi(s_i + t_j) is monotone in t_j,
  so all neurons rank alike and this is 1, however much the image says: static attention. It falls
  short of 1 only by ties: where phi saturates, sources that one neuron tells apart are equal for
  another. (With phi = identity a row whose sum is negative is turned round, and gives -1.) Two even
  maps are the same and count as 1. Near 0: each neuron has an order of its own.
- *difference*: how much do they differ all the same? Half the sum of |differences| between the
  two maps, again without both own entries: 0 the same, 1 nothing in common. A static predictor can
  be above 0 here, for its neurons may differ in how sharply they choose.
- *same_class*: do maps follow class boundaries? The share of a map that falls on neurons of the
  target's own predicted class; *same_class_if_even* is what the even map would give, the class's
  share of the other neurons. Equal: boundaries play no role. Neurons whose class has no other
  neuron, or all of them, say nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.explanation.features import context_of, decide, look, shares
from scaseg.explanation.statistics import Mean, mean_of
from scaseg.inference.image_input import Photograph
from scaseg.models.segmenter import Segmenter

Row = NDArray[np.float64]


@dataclass(frozen=True)
class Selectivity:
    """How selective a model is, over `images` photographs; each a mean with its standard error."""

    entropy: Mean
    rank_correlation: Mean
    difference: Mean
    same_class: Mean
    same_class_if_even: Mean
    images: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON; null where there was nothing to measure."""
        return asdict(self)

    def table(self) -> str:
        """A line a number, for people."""
        lines = (
            ("entropy of a map (1: even, 0: one source)", self.entropy),
            ("rank correlation of two maps (1: one order for all)", self.rank_correlation),
            ("difference of two maps (0: the same, 1: disjoint)", self.difference),
            ("share of a map on the neuron's own class", self.same_class),
            ("... if all neurons counted alike", self.same_class_if_even),
        )
        return "\n".join(f"{said:<53} {mean}" for said, mean in lines)


def selectivity(
    model: Segmenter,
    images: Iterable[Photograph],
    *,
    neurons: int = 64,
    pairs: int = 128,
    seed: int = 0,
) -> Selectivity:
    """Measure how selective a model's neurons are, on some photographs.

    `neurons` and `pairs` of neurons are drawn from each. The module says what is measured.
    """
    context = context_of(model)
    found: dict[str, list[float]] = {name: [] for name in _MEASURES}
    count = 0
    for count, image in enumerate(images, start=1):
        random = np.random.default_rng([seed, count])
        seen = look(model, image)
        total = seen.grid.map[0] * seen.grid.map[1]
        chosen = np.sort(random.permutation(total)[: max(2, neurons)])
        targets = torch.from_numpy(chosen).to(seen.features.device)
        rows = shares(context, seen.features, targets).cpu().double().numpy()  # (P, n)
        classes = decide(model, seen.features).flatten().numpy()
        values = _of_neurons(rows, chosen, classes) | _of_pairs(rows, chosen, pairs, random)
        for name, value in values.items():
            found[name].append(value)
    if not count:
        raise ValueError("images: none; give at least one photograph")
    return Selectivity(**{name: mean_of(values) for name, values in found.items()}, images=count)


_MEASURES = ("entropy", "rank_correlation", "difference", "same_class", "same_class_if_even")


def _of_neurons(
    rows: Row, chosen: NDArray[np.int64], classes: NDArray[np.int64]
) -> dict[str, float]:
    entropies, inside, even = [], [], []
    for row, own in zip(rows, chosen, strict=True):
        others = np.delete(np.abs(row), own)  # coefficients of the identity may be negative
        if others.sum() == 0 or len(others) < 2:
            continue
        others = others / others.sum()
        some = others[others > 0]
        entropies.append(-float((some * np.log(some)).sum() / np.log(len(others))))
        same = np.delete(classes == classes[own], own)
        if same.any() and not same.all():
            inside.append(float(others[same].sum()))
            even.append(float(same.mean()))
    return {
        "entropy": _mean(entropies),
        "same_class": _mean(inside),
        "same_class_if_even": _mean(even),
    }


def _of_pairs(
    rows: Row, chosen: NDArray[np.int64], pairs: int, random: np.random.Generator
) -> dict[str, float]:
    correlations, differences = [], []
    if rows.shape[1] >= 4:  # two sources at least, besides the two
        every = np.stack(np.triu_indices(len(rows), 1), 1)
        for a, b in random.permutation(every)[:pairs]:
            left_out = [chosen[a], chosen[b]]
            one, other = (np.delete(rows[index], left_out) for index in (a, b))
            correlations.append(rank_correlation(one, other))
            one, other = (part / (np.abs(part).sum() or 1) for part in (one, other))
            differences.append(float(np.abs(one - other).sum() / 2))
    return {"rank_correlation": _mean(correlations), "difference": _mean(differences)}


def rank_correlation(one: Row, other: Row) -> float:
    """Spearman's: the correlation of ranks, tied values sharing the mean of theirs.

    1 for two even maps, which are the same; 0 where only one is even.
    """
    first, second = _ranks(one), _ranks(other)
    first, second = first - first.mean(), second - second.mean()
    size = np.sqrt((first**2).sum() * (second**2).sum())
    if size == 0:
        return float((first == second).all())
    return float((first * second).sum() / size)


def _ranks(values: Row) -> Row:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
