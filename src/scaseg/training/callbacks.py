"""Metrics of each epoch: written to CSV files, and shown on stderr with a progress bar."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from scaseg.io.table import Row, read_rows, write_rows
from scaseg.progress import NotedProgress, progress_bar
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import METRICS, PER_CLASS

HEADER = (
    f"{'epoch':>7}  {'loss':>7}  {'PPA':>5}  {'CAA':>5}  {'mIoU':>5}  {'images/s':>8}  {'time':>6}"
)


class MetricsTable(Callback):
    """Keep a row an epoch in metrics.csv, and a row an epoch and class in per_class.csv.

    A resumed run drops the rows of epochs that it will run again, and files are atomic; Lightning's
    CSVLogger does neither. Without a folder, the rows are only kept here.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows: list[Row] = []
        self._class_rows: list[Row] = []
        self._start_epoch()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.folder is not None:
            self.rows = read_rows(self.folder / METRICS)
            self._class_rows = read_rows(self.folder / PER_CLASS)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for rows in (self.rows, self._class_rows):
            rows[:] = [row for row in rows if int(row["epoch"]) <= trainer.current_epoch]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start_epoch()

    def _start_epoch(self) -> None:
        self._start = time.perf_counter()
        self._images = 0
        self._loss: Tensor | float = 0.0
        self._training_seconds: float | None = None
        self._validated = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, SegmentationModule)
        if pl_module.is_skipping:  # nothing was learned from it
            return
        images = len(batch.names)
        self._images += images
        # summed on its device: reading the number would make a GPU wait at every step
        self._loss = self._loss + outputs["loss"].detach() * images

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training_seconds = time.perf_counter() - self._start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
        seconds = self._training_seconds or time.perf_counter() - self._start
        rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
        row: Row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "loss": float(self._loss) / max(1, self._images) * trainer.accumulate_grad_batches,
            "lr": rates[0] if len(rates) == 2 else 0.0,
            "head_lr": rates[-1],
            "PPA": None,
            "CAA": None,
            "mIoU": None,
            "seconds": round(time.perf_counter() - self._start, 3),
            "images_per_second": round(self._images * trainer.world_size / seconds, 2),
        }
        if self._validated and pl_module.scores is not None:
            row.update(pl_module.scores.summary())
            names, scores = pl_module.model.config.classes, pl_module.scores
            for name, accuracy, iou in zip(names, scores.accuracies, scores.ious, strict=True):
                shares = {"accuracy": 100 * accuracy, "IoU": 100 * iou}
                self._class_rows.append({"epoch": row["epoch"], "class": name, **shares})
        self.rows.append(row)
        if self.folder is not None and trainer.is_global_zero:
            write_rows(self.folder / METRICS, self.rows)
            if self._class_rows:
                write_rows(self.folder / PER_CLASS, self._class_rows)

    def state_dict(self) -> dict[str, Any]:
        """The sums within an epoch: a run that was interrupted in it goes on adding to them."""
        seconds = time.perf_counter() - self._start
        return {"images": self._images, "loss": self._loss, "seconds": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._images, self._loss = state_dict["images"], state_dict["loss"]
        self._start = time.perf_counter() - state_dict["seconds"]


class ProgressDisplay(Callback):
    """On stderr: a progress bar where that is a terminal, and a row for each epoch in any case."""

    def __init__(self, table: MetricsTable) -> None:
        self.table = table
        self._stack = ExitStack()
        self._progress: NotedProgress

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        shown = trainer.is_global_zero
        if shown:
            print(HEADER, file=sys.stderr)
        self._progress = self._stack.enter_context(progress_bar("training", shown=shown))
        self.on_train_epoch_start(trainer, pl_module)  # not called where an epoch is resumed

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._epoch_start, self._images = time.perf_counter(), 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._images += len(batch.names) * trainer.world_size

        def note() -> str:
            loss = float(outputs["loss"]) * trainer.accumulate_grad_batches
            rate = trainer.optimizers[0].param_groups[0]["lr"]
            speed = self._images / (time.perf_counter() - self._epoch_start)
            epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            return f"{epoch} loss {loss:.3f} lr {rate:.1e} {speed:.1f} images/s"

        assert trainer.max_epochs is not None
        steps = int(trainer.num_training_batches)
        done = trainer.current_epoch * steps + batch_idx + 1
        self._progress(done, trainer.max_epochs * steps, note)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and self.table.rows:
            print(_line(self.table.rows[-1], trainer.max_epochs), file=sys.stderr)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stack.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._stack.close()


def _line(row: Row, epochs: int | None) -> str:
    def share(name: str) -> str:
        return "-" if row[name] is None or row[name] != row[name] else f"{row[name]:.1f}"

    minutes, seconds = divmod(round(row["seconds"]), 60)
    return (
        f"{row['epoch']:>3}/{epochs:<3}  {row['loss']:7.4f}  {share('PPA'):>5}  {share('CAA'):>5}  "
        f"{share('mIoU'):>5}  {row['images_per_second']:8.1f}  {minutes:>3}:{seconds:02}"
    )
