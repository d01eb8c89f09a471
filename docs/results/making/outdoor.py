"""What benchmarks/maps.py wrote of the built-in model's maps."""

from __future__ import annotations

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import read_rows

FILE = "docs/results/outdoor_maps.csv"
LABELS = {
    "entropy": "entropy of a map (1: even, 0: one source)",
    "rank_correlation": "rank correlation of two maps (1: one order for all)",
    "difference": "difference of two maps (0: the same, 1: disjoint)",
    "same_class": "share of a map on the neuron's own class",
    "same_class_if_even": "... if all neurons counted alike",
    "occlusion_pointed": "drop of the decision's probability without the sources of a quarter of "
    "its map",
    "occlusion_random": "... without as many others at random",
    "occlusion_difference": "difference of the two",
    "occlusion_removed": "part of the neurons that this was",
}


@maker("outdoor-maps")
def outdoor_maps(page: Page) -> str:
    """A line a number, with its standard error over the photographs."""
    rows = {row["measure"]: row for row in read_rows(page.root / FILE)}
    if not rows:
        return NOT_YET
    table = []
    for name, label in LABELS.items():
        mean, error = (float(rows[name][key] or 0) for key in ("mean", "error"))
        table.append([label, f"{mean:.4f} ± {error:.4f}"])
    images = next(iter(rows.values()))["images"]
    link = f"[{FILE.rpartition('/')[2]}]({page.link(page.root / FILE)})"
    note = f"{images} photographs; raw numbers {link}."
    return markdown_table(["measure", "mean ± standard error"], table, note)
