"""Tables of a comparison: Markdown for people, CSV and JSON for programs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaseg.comparison.statistics import (
    METRICS,
    OCCLUSION,
    SELECTIVITY,
    Difference,
    Rows,
    Summary,
    known,
    standard_error,
)
from scaseg.errors import plural
from scaseg.io.atomic import write_text
from scaseg.io.table import write_rows

TABLE, CSV_TABLE = "table.md", "table.csv"
SCORES = ("PPA/aAcc", "CAA/mAcc", "mIoU")  # what METRICS are called in tables
# columns of the table of maps, and how to read them
SHAPE = ("entropy of a map", "rank correlation of two maps", "difference of two maps")
SHAPE_NOTE = (
    "Entropy: 1 is an even map, 0 a single source. Rank correlation of the maps of two neurons of "
    "an image: 1 where both rank the others in one order. Difference: 0 is the same map, 1 "
    "disjoint ones."
)
OWN_CLASS = "share on the own class (of an even map)"
DROPS = ("drop without the sources pointed to", "without as many others", "difference of drops")
TRUTH_NOTE = (
    "Share of a map on neurons of the target's own predicted class, beside what an even map would "
    "have there. Drop: how much the probability of a neuron's class falls, in percentage points, "
    "when the strongest sources that hold a quarter of its map are no longer context, and when as "
    "many others, drawn at random, are not; the difference of the two with its standard error over "
    "the runs."
)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]], *notes: str) -> str:
    """A table in Markdown; notes are paragraphs below it.

    >>> print(markdown_table(["context", "mIoU"], [["none", 48.3]]), end="")
    | context | mIoU |
    |---|---|
    | none | 48.3 |
    """
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    for note in notes:
        lines += ["", note]
    return "\n".join([*lines, ""])


def evaluated_on(rows: Rows) -> str:
    """The images that all rows are of, as `evaluate` says it; empty where they are several.

    >>> evaluated_on([{"split": "the split test", "images": 4}] * 2)
    '4 images: the split test'
    """
    known = (row for row in rows if row.get("split") and row.get("images"))
    found = {row["split"]: plural(int(row["images"]), "image") for row in known}
    return "".join(f"{images}: {split}" for split, images in found.items() if len(found) == 1)


def markdown(summaries: Sequence[Summary], images: str = "") -> str:
    """The comparison as tables for people: scores and costs, then differences to the first.

    images: what all of it was evaluated on.
    """
    first, counted = summaries[0].name, summaries[0].counted
    averaged = ", seeds averaged within each" if counted == "folds" else ""
    text = markdown_table(
        ["context", "runs", *SCORES, "parameters", "training, ms/image", "peak memory"],
        [
            [
                *(one.name, one.runs, *(mean_and_error(one, metric) for metric in METRICS)),
                *(f"{one.parameters / 1e6:.2f} M", f"{one.milliseconds:.1f}"),
                "n/a" if one.mebibytes is None else f"{one.mebibytes:,.0f} MiB",
            ]
            for one in summaries
        ],
        f"Mean ± standard error over {counted}{averaged}."
        + (f" Evaluated on {images}." if images else ""),
    )
    rows = []
    for one in summaries[1:]:
        found = [difference for difference in one.difference.values() if difference is not None]
        if found:
            cells = map(with_interval, found)
            rows.append([one.name, found[-1].n, *cells, p_value(found[-1].p)])
    if not rows:
        return text
    head = [f"against {first}", counted, *SCORES, "p, mIoU"]
    return f"{text}\n{markdown_table(head, rows, f'{paired_by(counted)}.')}"


def maps_markdown(rows: Rows, names: Sequence[str]) -> str:
    """The maps of each variant, mean over its runs; empty where nothing was measured.

    Earlier versions measured less: columns that would be empty are left out.
    """
    of = {name: [row for row in rows if row["variant"] == name] for name in names}
    of = {name: own for name, own in of.items() if known(own, "entropy")}
    if not of:
        return ""
    whole = any(known(own, "same_class") for own in of.values())
    table = []
    for name, own in of.items():
        *cells, same, even = (_mean(known(own, measure), ".3f") for measure in SELECTIVITY)
        if whole:
            pointed, random = ([100 * drop for drop in known(own, key)] for key in OCCLUSION)
            gaps = [one - other for one, other in zip(pointed, random, strict=True)]
            error = standard_error(gaps)
            gap = _mean(gaps, "+.2f") + ("" if error is None else f" ± {error:.2f}")
            cells.append("n/a" if same == "n/a" else f"{same} ({even})")
            cells += [_mean(pointed, "+.2f"), _mean(random, "+.2f"), gap]
        table.append([name, *cells])
    if not whole:
        return markdown_table(["context", *SHAPE], table, SHAPE_NOTE)
    head = ["context", *SHAPE, OWN_CLASS, *DROPS]
    return markdown_table(head, table, f"{SHAPE_NOTE} {TRUTH_NOTE}")


def write_tables(summaries: Sequence[Summary], rows: Rows, folder: Path) -> None:
    """Write table.md, with the measures of the maps below, and table.csv."""
    maps = maps_markdown(rows, [one.name for one in summaries])
    scores = markdown(summaries, evaluated_on(rows))
    write_text(folder / TABLE, scores + (f"\n{maps}" if maps else ""))
    write_rows(folder / CSV_TABLE, [to_row(one) for one in summaries])


def to_row(one: Summary) -> dict[str, Any]:
    """A summary as names and numbers."""
    row = {"context": one.name, "runs": one.runs, "counted": one.counted, "n": one.n}
    for name in METRICS:
        row |= {name: one.mean[name], f"{name}_error": one.error[name]}
        row |= {f"{name}_spread": one.spread[name]}
        difference = one.difference[name]
        facts = asdict(difference) if difference else dict.fromkeys(Difference.__annotations__)
        row[f"{name}_difference"] = facts.pop("mean")
        row |= {f"{name}_difference_{key}": value for key, value in facts.items()}
    row |= {"parameters": one.parameters, "milliseconds": one.milliseconds}
    return row | {"seconds": one.seconds, "mebibytes": one.mebibytes}


def mean_and_error(one: Summary, metric: str) -> str:
    """The mean of a metric and, where there is one, its standard error."""
    error = one.error[metric]
    return f"{one.mean[metric]:.2f}" + ("" if error is None else f" ± {error:.2f}")


def with_interval(found: Difference) -> str:
    """A difference and, where there is one, its confidence interval."""
    text = f"{found.mean:+.2f}"
    return text if found.low is None else f"{text} [{found.low:+.2f}, {found.high:+.2f}]"


def p_value(p: float | None) -> str:
    """A p value for people."""
    return "n/a" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _mean(values: Sequence[float], form: str) -> str:
    return format(statistics.fmean(values), form) if values else "n/a"


def paired_by(counted: str) -> str:
    """How differences were taken, for a note below them."""
    by = "seed and fold" if counted == "folds" else "seed"
    return (
        f"Differences paired by {by}, with 95 % confidence intervals (Student's t over {counted})"
    )
