"""What benchmarks/maps.py wrote of the built-in model's maps."""

from __future__ import annotations

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.explanation.occlusion import Occlusion
from scaseg.explanation.selectivity import Selectivity
from scaseg.io.table import read_rows

FILE = "docs/results/outdoor_maps.csv"
LABELS = Selectivity.LABELS | {
    f"occlusion_{name}": label.format(mass=0.25) for name, label in Occlusion.LABELS.items()
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
    note = f"{images} photographs; drops are those of a decision's probability. Raw numbers {link}."
    return markdown_table(["measure", "mean ± standard error"], table, note)
