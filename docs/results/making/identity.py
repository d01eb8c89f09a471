"""What benchmarks/identity.py wrote: whether the literal coefficients train."""

from __future__ import annotations

import statistics

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.statistics import known
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import read_rows

FILE = "docs/results/hyper_parameters/identity.csv"


@maker("identity")
def identity(page: Page) -> str:
    """A line a variant: how many seeds diverged, how near the pole, what came of the rest."""
    rows = read_rows(page.root / FILE)
    if not rows:
        return NOT_YET
    table = []
    for name in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == name]
        ended = [row["diverged_at_step"] for row in own if row["diverged_at_step"]]
        cells = [
            name,
            len(own),
            ", ".join(ended) or "never",
            f"{min(known(own, 'nearest_to_the_pole')):.2g}",
            f"{max(known(own, 'largest_gradient')):,.0f}",
            ", ".join(f"{value:.1f}" for value in known(own, "accuracy")) or "none",
        ]
        table.append(cells)
    accuracies = known(rows, "accuracy")
    best = f"{statistics.fmean(accuracies):.1f}" if accuracies else "none"
    note = (
        f"Raw rows [identity.csv]({page.link(page.root / FILE)}); accuracy of each seed that came "
        f"through ({best} on average)."
    )
    head = ["variant", "seeds", "not a number at step", "nearest to the pole"]
    return markdown_table([*head, "largest gradient", "accuracy, %"], table, note)
