"""How selective a model's dependency maps are, in numbers.

A dependency map is a distribution over the other neurons. Four questions, each averaged over
neurons drawn at random and then over photographs:

- *entropy*: how evenly is it spread? Its entropy over that of the even one, log(n - 1): 1 is the
  plain average, 0 a single source.
- *rank_correlation*: do different neurons rank the sources in the same order? Spearman's
  correlation between the maps of two neurons, both of their own entries left out of both maps.
  With the paper's predictor (`pair_channels=1`) the coefficient phi(s_i + t_j) is monotone in t_j,
  so all neurons rank alike and this is 1, whatever the image: static attention. It falls
  short of 1 only by ties: where phi saturates, sources that differ for one neuron are equal for
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

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from scaseg.errors import UserError
from scaseg.explanation.features import ContextFeatures, extract_features
from scaseg.explanation.maps import Row, distance
from scaseg.inference.preprocessing import ImageLike
from scaseg.models.segmenter import Segmenter


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error; None where there was nothing, or one value only."""

    mean: float | None
    error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Average what is there; NaN stands for nothing measured.

        >>> print(Mean.of([1.0, 2.0, 3.0, float("nan")]))
        2.0000 ± 0.5774
        """
        known = np.array([value for value in values if value == value])
        if len(known) < 2:
            return cls(float(known[0]) if len(known) else None, None)
        return cls(float(known.mean()), float(known.std(ddof=1) / len(known) ** 0.5))

    def __str__(self) -> str:
        if self.mean is None:
            return "n/a"
        return f"{self.mean:.4f}" + ("" if self.error is None else f" ± {self.error:.4f}")


class Measurement:
    """Named means, as plain numbers and as a table."""

    LABELS: ClassVar[dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; null where there was nothing to measure."""
        return asdict(self)  # type: ignore[call-overload]

    def table(self) -> str:
        """Return a line for each mean."""
        return "\n".join(
            f"{label.format(**vars(self)):<53} {getattr(self, name)}"
            for name, label in self.LABELS.items()
        )


@dataclass(frozen=True)
class Selectivity(Measurement):
    """How selective a model is, over `images` photographs; each a mean with its standard error."""

    LABELS: ClassVar = {
        "entropy": "entropy of a map (1: even, 0: one source)",
        "rank_correlation": "rank correlation of two maps (1: one order for all)",
        "difference": "difference of two maps (0: the same, 1: disjoint)",
        "same_class": "share of a map on the neuron's own class",
        "same_class_if_even": "... if all neurons counted alike",
    }
    entropy: Mean
    rank_correlation: Mean
    difference: Mean
    same_class: Mean
    same_class_if_even: Mean
    images: int


def selectivity(
    model: Segmenter,
    images: Iterable[ImageLike],
    *,
    neurons: int = 64,
    pairs: int = 128,
    seed: int = 0,
) -> Selectivity:
    """Measure how selective a model's neurons are, on some photographs.

    `neurons` and `pairs` of neurons are drawn from each. The module says what is measured.
    """
    found = [
        _measure(extract_features(model, image), neurons, pairs, [seed, number])
        for number, image in enumerate(images, start=1)
    ]
    if not found:
        raise UserError("images", "none", "give at least one photograph")
    means = {name: Mean.of([own[name] for own in found]) for name in Selectivity.LABELS}
    return Selectivity(**means, images=len(found))


def _measure(
    features: ContextFeatures, neurons: int, pairs: int, seed: list[int]
) -> dict[str, float]:
    """Measure one photograph; NaN where there is nothing to measure."""
    random = np.random.default_rng(seed)
    total = features.grid.map_size[0] * features.grid.map_size[1]
    chosen = np.sort(random.permutation(total)[: max(2, neurons)])
    rows = features.coefficients(torch.from_numpy(chosen)).cpu().double().numpy()  # (P, n)
    classes = features.classes().flatten().numpy()
    found: dict[str, list[float]] = {name: [] for name in Selectivity.LABELS}
    for row, own in zip(rows, chosen, strict=True):
        others = np.delete(np.abs(row), own)  # coefficients of the identity may be negative
        if others.sum() == 0 or len(others) < 2:
            continue
        others = others / others.sum()
        some = others[others > 0]
        found["entropy"].append(-float((some * np.log(some)).sum() / np.log(len(others))))
        same = np.delete(classes == classes[own], own)
        if same.any() and not same.all():
            found["same_class"].append(float(others[same].sum()))
            found["same_class_if_even"].append(float(same.mean()))
    if total >= 4:  # two sources at least, besides the two
        every = np.stack(np.triu_indices(len(rows), 1), 1)
        for a, b in random.permutation(every)[:pairs]:
            one, other = (np.delete(rows[place], [chosen[a], chosen[b]]) for place in (a, b))
            found["rank_correlation"].append(rank_correlation(one, other))
            found["difference"].append(distance(one, other, []))
    return {name: float(np.mean(own)) if own else float("nan") for name, own in found.items()}


def rank_correlation(one: Row, other: Row) -> float:
    """Spearman's; 1 for two even maps, which are the same, and 0 where only one is even."""
    from scipy.stats import spearmanr  # takes a second to import

    even = [bool(np.ptp(row) == 0) for row in (one, other)]  # scipy knows no correlation then
    return float(all(even)) if any(even) else float(spearmanr(one, other).statistic)
