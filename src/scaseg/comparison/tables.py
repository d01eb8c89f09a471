"""Tables of a comparison: Markdown for people, CSV and JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaseg.comparison.statistics import METRICS, Difference, Summary, VariantPair
from scaseg.io.atomic import write_text
from scaseg.io.table import write_rows

TABLE, CSV_TABLE = "table.md", "table.csv"
SHOWN = {"PPA": "PPA/aAcc", "CAA": "CAA/mAcc", "mIoU": "mIoU"}


def markdown(summaries: Sequence[Summary]) -> str:
    """The comparison as tables for people: scores and costs, then differences to the first."""
    lines = [
        f"| context | runs | {' | '.join(SHOWN.values())} | parameters | training, ms/image | "
        "peak memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in summaries:
        values = " | ".join(_score(row, metric) for metric in METRICS)
        memory = "n/a" if row.mebibytes is None else f"{row.mebibytes:,.0f} MiB"
        lines.append(
            f"| {row.name} | {row.runs} | {values} | {row.parameters / 1e6:.2f} M | "
            f"{row.milliseconds:.1f} | {memory} |"
        )
    counted = summaries[0].counted
    lines += ["", f"Mean ± standard error over {counted}{_averaged(counted)}."]
    others = [row for row in summaries[1:] if row.difference["mIoU"] is not None]
    if others:
        lines += [
            "",
            f"| against {summaries[0].name} | {counted} | {' | '.join(SHOWN.values())} | p, mIoU |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_differences(row) for row in others]
        lines += ["", f"{_paired_by(counted)}."]
    return "\n".join([*lines, ""])


def pairs_markdown(pairs: Sequence[VariantPair], counted: str) -> str:
    """Every pair of variants and its difference in mIoU, as a table for people."""
    lines = [
        f"| pair | {counted} | mIoU | p | p, Holm |",
        "|---|---|---|---|---|",
        *(
            f"| {pair.second} against {pair.first} | {pair.difference.n} | "
            f"{with_interval(pair.difference)} | {p_value(pair.difference.p)} | "
            f"{p_value(pair.holm)} |"
            for pair in pairs
        ),
        "",
        f"{_paired_by(counted)}; the last column is corrected, after Holm, for the number of "
        f"pairs in this table ({len(pairs)}).",
    ]
    return "\n".join([*lines, ""])


def write_tables(summaries: Sequence[Summary], folder: Path, maps: str = "") -> None:
    """Write table.md, with the measures of the maps below, and table.csv."""
    write_text(folder / TABLE, markdown(summaries) + (f"\n{maps}" if maps else ""))
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


def _score(row: Summary, metric: str) -> str:
    error = row.error[metric]
    return f"{row.mean[metric]:.2f}" + ("" if error is None else f" ± {error:.2f}")


def _differences(row: Summary) -> str:
    cells = []
    for metric in METRICS:
        found = row.difference[metric]
        assert found is not None  # a row that is paired in one metric is in all
        cells.append(with_interval(found))
    last = row.difference["mIoU"]
    assert last is not None
    return f"| {row.name} | {last.n} | {' | '.join(cells)} | {p_value(last.p)} |"


def with_interval(found: Difference) -> str:
    """A difference and, where there is one, its confidence interval."""
    said = f"{found.mean:+.2f}"
    return said if found.low is None else f"{said} [{found.low:+.2f}, {found.high:+.2f}]"


def p_value(p: float | None) -> str:
    """A p value for people."""
    return "n/a" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _paired_by(counted: str) -> str:
    by = "seed and fold" if counted == "folds" else "seed"
    return (
        f"Differences paired by {by}, with 95 % confidence intervals (Student's t over {counted})"
    )


def _averaged(counted: str) -> str:
    return ", seeds averaged within each" if counted == "folds" else ""
