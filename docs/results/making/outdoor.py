"""What benchmarks/maps.py wrote of the built-in model's maps."""

from __future__ import annotations

from making.marks import NOT_YET, Page, maker
from scaseg.io.table import read_rows

FILE = "docs/results/outdoor_maps.csv"
SAID = {
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
    lines = ["| measure | mean ± standard error |", "|---|---|"]
    for name, said in SAID.items():
        mean, error = (float(rows[name][key] or 0) for key in ("mean", "error"))
        lines.append(f"| {said} | {mean:.4f} ± {error:.4f} |")
    images = next(iter(rows.values()))["images"]
    return "\n".join(
        [
            *lines,
            "",
            f"{images} photographs; raw numbers [{FILE.rpartition('/')[2]}]"
            f"({page.link(page.root / FILE)}).",
        ]
    )
