"""What a run came to, for people."""

from __future__ import annotations

from scaseg.config.run import RunConfig
from scaseg.io.table import read_rows
from scaseg.training.run import Result
from scaseg.training.run_folder import MODEL, PER_CLASS


def summary(result: Result, run: RunConfig) -> str:
    """The classes of the best epoch, its metrics, and what to do next."""
    if result.folder is None:
        return "one batch went through training and validation; nothing was written\n"
    lines = [""]
    if result.best_epoch:
        lines += [*_class_table(result), ""]
        row = next(row for row in result.rows if int(row["epoch"]) == result.best_epoch)
        lines.append(
            f"best epoch {result.best_epoch}: PPA/aAcc {float(row['PPA']):.1f}   "
            f"CAA/mAcc {float(row['CAA']):.1f}   mIoU {float(row['mIoU']):.1f}"
        )
    lines.append(f"model: {result.folder / MODEL}")
    data = "" if run.data.root is None else f" --data {run.data.root}"
    lines.append(f"next:  scaseg evaluate --model {result.folder}{data}")
    return "\n".join(lines) + "\n"


def _class_table(result: Result) -> list[str]:
    assert result.folder is not None
    found = read_rows(result.folder / PER_CLASS)
    rows = [row for row in found if int(row["epoch"]) == result.best_epoch]
    width = max(len(row["class"]) for row in rows)
    lines = [f"{'class':<{width}}  {'accuracy':>8}  {'IoU':>6}"]
    for row in rows:
        accuracy, iou = (_percent(row[name]) for name in ("accuracy", "IoU"))
        lines.append(f"{row['class']:<{width}}  {accuracy:>8}  {iou:>6}")
    return lines


def _percent(text: str) -> str:
    return "n/a" if text in ("", "nan") else f"{float(text):.1f}"
