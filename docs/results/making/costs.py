"""Tables of what contexts cost: counted by `scaseg contexts --csv`, timed by `scaseg bench`."""

from __future__ import annotations

import math

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import Row, read_rows
from scaseg.nn.build import build_context
from scaseg.registry import CONTEXTS


@maker("costs")
def costs(page: Page) -> str:
    """Parameters, multiply-adds and memory at each size, and what a context sees and weighs."""
    rows = read_rows(page.root / "docs" / "contexts.csv")
    if not rows:
        return NOT_YET
    sizes = list(dict.fromkeys(int(row["n"]) for row in rows))
    table = []
    for name in dict.fromkeys(row["context"] for row in rows):
        own = [row for row in rows if row["context"] == name]
        block = build_context(name, 8, classes=2)
        facts = (block.input_dependent, block.neuron_selective, block.has_maps)
        table.append(
            [
                f"`{name}`",
                f"{int(own[0]['parameters']) / 1e6:.2f}",
                " / ".join(f"{int(row['multiply_adds']) / 1e9:.2f}" for row in own),
                " / ".join(f"{int(row['memory']) / 2**20:.0f}" for row in own),
                block.order,
                block.receptive_field,
                *("yes" if fact else "no" for fact in facts),
                block.reference.replace("^2", "²"),
            ]
        )
    missing = [f"`{name}`" for name in CONTEXTS if name not in {row["context"] for row in rows}]
    notes = [f"Not counted yet: {', '.join(missing)}."] if missing else []
    at = " / ".join(f"{size:,}" for size in sizes)
    head = ["context", "parameters, M", f"multiply-adds, G, at n = {at}", "memory, MiB", "order"]
    head += ["sees", "weights by the image", "an order for each neuron", "maps", "from"]
    return markdown_table(head, table, *notes)


@maker("timings")
def timings(page: Page, name: str) -> str:
    """Milliseconds of both passes by size, from docs/timings/NAME.csv, written by `bench --out`."""
    path = page.root / "docs" / "timings" / f"{name}.csv"
    rows = read_rows(path)
    if not rows:
        return NOT_YET
    sizes = list(dict.fromkeys(int(row["size"]) for row in rows))
    found = {(row["contender"], int(row["size"])): row for row in rows}
    names = dict.fromkeys(row["contender"] for row in rows)
    table = [
        [f"`{one}`", *(_milliseconds(found.get((one, size))) for size in sizes)] for one in names
    ]
    first = rows[0]
    note = (
        f"Forward / forward and backward, ms, by n; {first['machine']}, precision "
        f"{first['precision']}, batch {first['batch']}, {first['channels']} channels, "
        f"{first['date']} ([CSV]({page.link(path)}))."
    )
    return markdown_table(["context", *(f"{size:,}" for size in sizes)], table, note)


def _milliseconds(row: Row | None) -> str:
    if row is None:
        return "left out"
    times = [1000 * float(row[name]) for name in ("forward", "both")]
    if any(map(math.isnan, times)):
        return "no memory"
    return " / ".join(f"{one:,.0f}" if one >= 100 else f"{one:.3g}" for one in times)
