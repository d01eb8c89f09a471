"""The table of what contexts cost, from the CSV that `scaseg contexts --csv` printed."""

from __future__ import annotations

from making.marks import NOT_YET, Page, maker
from scaseg.comparison.tables import markdown_table
from scaseg.io.table import read_rows
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
