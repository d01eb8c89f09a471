"""How selective the compared models are: their dependency maps, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from scaseg.data.datasets import LabelledImages
from scaseg.explain import selectivity
from scaseg.models import Segmenter

MEASURES = {
    "entropy": "entropy of a map",
    "rank_correlation": "rank correlation of two maps",
    "difference": "difference of two maps",
}
IMAGES = 16


def measure_maps(model: Segmenter, dataset: LabelledImages) -> dict[str, float | None]:
    """Measure the maps of a model on a few images, evenly spread; nothing without a context."""
    if model.config.context == "none":
        return dict.fromkeys(MEASURES)
    count = min(IMAGES, len(dataset))
    chosen = (index * len(dataset) // count for index in range(count))
    found = selectivity(model, (dataset[index].image for index in chosen))
    return {name: getattr(found, name).mean for name in MEASURES}


def maps_table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """The maps of each variant, mean over its seeds; empty where nothing was measured."""
    lines = []
    for variant in names:
        own = [row for row in rows if row["variant"] == variant]
        values = [
            [float(row[measure]) for row in own if row.get(measure) not in (None, "")]
            for measure in MEASURES
        ]
        if all(values):
            cells = " | ".join(f"{statistics.fmean(some):.3f}" for some in values)
            lines.append(f"| {variant} | {cells} |")
    if not lines:
        return ""
    head = [f"| context | {' | '.join(MEASURES.values())} |", "|---|---|---|---|"]
    note = (
        "Entropy: 1 is an even map, 0 a single source. Rank correlation of the maps of two neurons "
        "of an image: 1 where both rank the others in one order. Difference: 0 is the same map, 1 "
        "disjoint ones."
    )
    return "\n".join([*head, *lines, "", note, ""])
