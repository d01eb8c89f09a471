"""What benchmarks/identity.py wrote: whether the literal coefficients train."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from making.marks import NOT_YET, Page, maker
from scaseg.io.table import Row, read_rows

FILE = "docs/results/hyper_parameters/identity.csv"


@maker("identity")
def identity(page: Page) -> str:
    """A line a variant: how many seeds diverged, how near the pole, what came of the rest."""
    rows = read_rows(page.root / FILE)
    if not rows:
        return NOT_YET
    lines = [
        "| variant | seeds | not a number at step | nearest to the pole | largest gradient | "
        "accuracy, % |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["variant"] for row in rows):
        own = [row for row in rows if row["variant"] == name]
        ended = [row["diverged_at_step"] for row in own if row["diverged_at_step"]]
        cells = [
            name,
            str(len(own)),
            ", ".join(ended) or "never",
            f"{min(_numbers(own, 'nearest_to_the_pole')):.2g}",
            f"{max(_numbers(own, 'largest_gradient')):,.0f}",
            ", ".join(f"{value:.1f}" for value in _numbers(own, "accuracy")) or "none",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    accuracies = _numbers(rows, "accuracy")
    best = f"{statistics.fmean(accuracies):.1f}" if accuracies else "none"
    note = (
        f"Raw rows [identity.csv]({page.link(page.root / FILE)}); accuracy of each seed that came "
        f"through ({best} on average)."
    )
    return "\n".join([*lines, "", note])


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row.get(name) not in (None, "")]
