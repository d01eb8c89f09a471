"""The outcome of a run: its model and metrics, written when it is over, read when it was."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scaseg.config.model import read_config
from scaseg.config.run import RunConfig
from scaseg.errors import plural
from scaseg.io.model_folder import BEST, CONFIG, MODEL
from scaseg.io.table import Row, read_numbers, read_rows
from scaseg.metrics import class_table
from scaseg.models.build import load_model
from scaseg.models.pretrained import read_weights
from scaseg.models.segmenter import Segmenter
from scaseg.plots.figures import curve_figure, save_figure
from scaseg.training.callbacks import BestCheckpoint
from scaseg.training.run_folder import CURVE, METRICS, PER_CLASS

COLUMNS = ("epoch", "loss", "PPA", "CAA", "mIoU", "seconds", "images_per_second")  # at least


@dataclass(frozen=True)
class Result:
    """The outcome of a run: the model, a row of metrics an epoch, and which epoch was best."""

    model: Segmenter
    rows: list[Row]
    best_epoch: int | None  # None: there was no validation
    folder: Path | None

    def __repr__(self) -> str:
        """One line: the network itself would take hundreds."""
        config = self.model.config
        parts = [f"{config.backbone}, {config.context}, {config.head}"]
        parts += [plural(len(config.classes), "class"), plural(len(self.rows), "epoch")]
        if self.best_epoch:
            row = next(row for row in self.rows if int(row["epoch"]) == self.best_epoch)
            parts.append(f"mIoU {float(row['mIoU']):.1f} in epoch {self.best_epoch}")
        if self.folder is not None:
            parts.append(str(self.folder))
        return f"Result({'; '.join(parts)})"

    def summary(self) -> str:
        """Return the metrics of each class in the best epoch, and what to do next, as text."""
        if self.folder is None:
            return "one batch went through training and validation; nothing was written"
        lines = [""]
        if self.best_epoch:
            rows = read_rows(self.folder / PER_CLASS)
            best = [row for row in rows if int(row["epoch"]) == self.best_epoch]
            shares = [[float(row[name]) / 100 for name in ("accuracy", "IoU")] for row in best]
            lines += [class_table([row["class"] for row in best], *zip(*shares, strict=True)), ""]
            row = next(row for row in self.rows if int(row["epoch"]) == self.best_epoch)
            lines.append(
                f"best epoch {self.best_epoch}: PPA/aAcc {float(row['PPA']):.1f}   "
                f"CAA/mAcc {float(row['CAA']):.1f}   mIoU {float(row['mIoU']):.1f}"
            )
        root = self.model.config.trained_on().root
        data = "" if root is None else f" --data {shlex.quote(str(root))}"
        lines.append(f"model: {self.folder / MODEL}")
        lines.append(f"next:  scaseg evaluate --model {shlex.quote(str(self.folder))}{data}")
        return "\n".join(lines)


def is_finished(folder: Path, epochs: int) -> bool:
    """Whether a run has its final model, for so many epochs."""
    if not (folder / MODEL / CONFIG).is_file():
        return False
    recipe = read_config(folder / MODEL).training.get("recipe", {})
    return bool(recipe.get("training", {}).get("epochs", epochs) == epochs)


def finished_result(folder: Path) -> Result:
    """The result of a run that is over, from its folder."""
    model, rows = load_model(folder / MODEL), read_numbers(folder / METRICS, columns=COLUMNS)
    record = model.config.training.get("validation")
    best = int(record["epoch"]) if record and any(row["mIoU"] is not None for row in rows) else None
    return Result(model, rows, best, folder)


def _share(text: str) -> float | None:
    number = float(text or "nan")
    return round(number, 2) if number == number else None


def finish(
    model: Segmenter, run: RunConfig, folder: Path, best: BestCheckpoint | None, rows: list[Row]
) -> None:
    """Write the final model: the best by validation, or the last where there was none."""
    chosen: Row = rows[-1] if rows else {}
    temperature = 1.0
    if best is not None and best.epoch and (folder / BEST).is_dir():
        read_weights(model, folder / BEST)
        temperature = read_config(folder / BEST).temperature
        chosen = next((row for row in rows if int(row["epoch"]) == best.epoch), chosen)
    judged = {name: chosen.get(name) for name in ("epoch", "PPA", "CAA", "mIoU")}
    classes = {
        row["class"]: {key: _share(row[key]) for key in ("accuracy", "IoU")}
        for row in read_rows(folder / PER_CLASS)
        if row["epoch"] == str(judged["epoch"])
    }
    record = {"recipe": asdict(run), "validation": {**judged, "per_class": classes}}
    if started_from := model.config.training.get("started_from"):
        record["started_from"] = started_from
    model.config = replace(model.config, training=record, temperature=temperature)
    model.save_pretrained(folder / MODEL)
    if rows:
        save_figure(curve_figure(rows), folder / CURVE)
