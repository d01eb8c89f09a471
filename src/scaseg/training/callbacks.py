"""Metrics of each epoch: written to CSV files, and shown on stderr with a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from scaseg.io.table import Row, read_rows, write_rows
from scaseg.progress import progress_bar
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import METRICS, PER_CLASS

HEADER = "  epoch     loss    PPA    CAA   mIoU  images/s    time"


class MetricsTable(Callback):
    """Keep a row an epoch in metrics.csv, and a row an epoch and class in per_class.csv.

    A resumed run drops the rows of epochs that it will run again, and files are atomic; Lightning's
    CSVLogger does neither. Without a folder, the rows are only kept here. Unless quiet, each row is
    printed to stderr, above a progress bar where that is a terminal.
    """

    def __init__(self, folder: Path | None, *, quiet: bool = True) -> None:
        self.folder = folder
        self.quiet = quiet
        self.rows: list[Row] = []
        self._class_rows: list[Row] = []
        self._stack = ExitStack()
        self._progress: Callable[..., None]
        self.on_train_epoch_start()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.folder is not None:
            self.rows = read_rows(self.folder / METRICS)
            self._class_rows = read_rows(self.folder / PER_CLASS)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for rows in (self.rows, self._class_rows):
            rows[:] = [row for row in rows if int(row["epoch"]) <= trainer.current_epoch]
        if not self.quiet:
            print(HEADER, file=sys.stderr)
        self._progress = self._stack.enter_context(progress_bar("training", shown=not self.quiet))

    def on_train_epoch_start(self, *_: Any) -> None:  # not called where an epoch is resumed
        self._start = time.perf_counter()
        self._images = 0
        self._loss: Tensor | float = 0.0
        self._training_seconds: float | None = None
        self._validated = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, SegmentationModule)
        if not pl_module.is_skipping:  # else nothing was learned from it
            self._images += len(batch.names)
            # summed on its device: reading the number would make a GPU wait at every step
            self._loss = self._loss + outputs["loss"].detach() * len(batch.names)
        assert trainer.max_epochs is not None
        steps = int(trainer.num_training_batches)
        done = trainer.current_epoch * steps + batch_idx + 1
        self._progress(done, trainer.max_epochs * steps, lambda: self._note(trainer))

    def _note(self, trainer: Trainer) -> str:
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        speed = self._images * trainer.world_size / (time.perf_counter() - self._start)
        epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        return f"{epoch} loss {self._mean_loss(trainer):.3f} lr {rate:.1e} {speed:.1f} images/s"

    def _mean_loss(self, trainer: Trainer) -> float:
        return float(self._loss) / max(1, self._images) * trainer.accumulate_grad_batches

    def on_validation_start(self, *_: Any) -> None:
        self._training_seconds = time.perf_counter() - self._start

    def on_validation_end(self, *_: Any) -> None:
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
        seconds = self._training_seconds or time.perf_counter() - self._start
        rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
        row: Row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "loss": self._mean_loss(trainer),
            "lr": rates[0] if len(rates) == 2 else 0.0,
            "head_lr": rates[-1],
            **dict.fromkeys(("PPA", "CAA", "mIoU")),
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
        if not self.quiet:
            print(_line(row, trainer.max_epochs), file=sys.stderr)

    def on_train_end(self, *_: Any) -> None:
        self._stack.close()

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()

    def state_dict(self) -> dict[str, Any]:
        """The sums within an epoch: a run that was interrupted in it goes on adding to them."""
        seconds = time.perf_counter() - self._start
        return {"images": self._images, "loss": self._loss, "seconds": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._images, self._loss = state_dict["images"], state_dict["loss"]
        self._start = time.perf_counter() - state_dict["seconds"]


def _line(row: Row, epochs: int | None) -> str:
    shares = [row[name] for name in ("PPA", "CAA", "mIoU")]
    texts = [f"{'-' if one is None or one != one else f'{one:.1f}':>7}" for one in shares]
    minutes, seconds = divmod(round(row["seconds"]), 60)
    return (
        f"{row['epoch']:>3}/{epochs:<3}  {row['loss']:7.4f}{''.join(texts)}  "
        f"{row['images_per_second']:8.1f}  {minutes:>3}:{seconds:02}"
    )
