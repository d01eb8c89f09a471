"""Measures of the maps of compared models: how selective, and whether decisions depend on them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import suppress

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.table import Row
from scaseg.models.segmenter import Segmenter

SELECTIVITY = ("entropy", "rank_correlation", "difference", "same_class", "same_class_if_even")
OCCLUSION = ("occlusion_pointed", "occlusion_random")
MEASURES = (*SELECTIVITY, *OCCLUSION)
IMAGES = 16
DECISIONS, REPEATS = 8, 2  # of the occlusion check, for each image

# the columns of the table, and how to read them
SHAPE = ("entropy of a map", "rank correlation of two maps", "difference of two maps")
SHAPE_NOTE = (
    "Entropy: 1 is an even map, 0 a single source. Rank correlation of the maps of two neurons of "
    "an image: 1 where both rank the others in one order. Difference: 0 is the same map, 1 "
    "disjoint ones."
)
OWN_CLASS = ("share on the own class (of an even map)",)
DROPS = ("drop without the sources pointed to", "without as many others", "difference of drops")
TRUTH_NOTE = (
    "Share of a map on neurons of the target's own predicted class, beside what an even map would "
    "have there. Drop: how much the probability of a neuron's class falls, in percentage points, "
    "when the strongest sources that hold a quarter of its map are no longer context, and when as "
    "many others, drawn at random, are not; the difference of the two with its standard error over "
    "the runs."
)


def measure_maps(model: Segmenter, dataset: SegmentationDataset) -> dict[str, float | None]:
    """Measure the maps of a model on a few images, evenly spread; None where it has no maps."""
    measured: dict[str, float | None] = dict.fromkeys(MEASURES)
    if model.config.context == "none":
        return measured
    count = min(IMAGES, len(dataset))
    chosen = [index * len(dataset) // count for index in range(count)]
    found = selectivity(model, (dataset[index].image for index in chosen))
    measured |= {name: getattr(found, name).mean for name in SELECTIVITY}
    with suppress(ValueError):  # maps of one or two neurons: nothing to take away
        images = (dataset[index].image for index in chosen)
        drops = occlusion(model, images, decisions=DECISIONS, repeats=REPEATS)
        measured |= {name: getattr(drops, name.split("_")[1]).mean for name in OCCLUSION}
    return measured


def maps_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The maps of each variant, mean over its runs; empty where nothing was measured.

    Earlier versions measured less: columns that would be empty are left out.
    """
    of = {name: [row for row in rows if row["variant"] == name] for name in names}
    of = {name: own for name, own in of.items() if _known(own, "entropy")}
    if not of:
        return ""
    whole = any(_known(own, "same_class") for own in of.values())
    head = ("context", *SHAPE, *(OWN_CLASS + DROPS if whole else ()))
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, own in of.items():
        cells = [_mean(own, measure) for measure in SELECTIVITY[:3]]
        if whole:
            same, even = (_mean(own, measure) for measure in SELECTIVITY[3:])
            cells += ["n/a" if same == "n/a" else f"{same} ({even})", *_drops(own)]
        lines.append(f"| {' | '.join([name, *cells])} |")
    note = f"{SHAPE_NOTE} {TRUTH_NOTE}" if whole else SHAPE_NOTE
    return "\n".join([*lines, "", note, ""])


def _drops(rows: Sequence[Row]) -> list[str]:
    """Drops without the sources pointed to and without others, and their paired difference."""
    pointed, random = (_known(rows, name) for name in OCCLUSION)
    if not pointed:
        return ["n/a"] * 3
    differences = [100 * (one - other) for one, other in zip(pointed, random, strict=True)]
    said = f"{statistics.fmean(differences):+.2f}"
    if len(differences) > 1:
        said += f" ± {statistics.stdev(differences) / len(differences) ** 0.5:.2f}"
    return [
        f"{100 * statistics.fmean(pointed):+.2f}",
        f"{100 * statistics.fmean(random):+.2f}",
        said,
    ]


def _known(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row.get(name) not in (None, "")]


def _mean(rows: Sequence[Row], name: str) -> str:
    values = _known(rows, name)
    return f"{statistics.fmean(values):.3f}" if values else "n/a"
