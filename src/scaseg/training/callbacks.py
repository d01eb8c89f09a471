"""What happens beside the loop: a row of metrics an epoch, a running mean of the weights."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from scaseg.io.table import Row, read_rows, write_rows
from scaseg.models.segmenter import Segmenter
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import METRICS, PER_CLASS


class MetricsTable(Callback):
    """Keep a row an epoch in metrics.csv, and a row an epoch and class in per_class.csv.

    A continued run drops the rows of epochs that it will run again. Without a folder, the rows are
    only kept here.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.rows: list[Row] = []
        self._class_rows: list[Row] = []
        self._validated = False
        self._images = 0
        self._loss: Tensor | float = 0.0
        self._start = time.perf_counter()
        self._training_seconds: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.folder is not None:
            self.rows = read_rows(self.folder / METRICS)
            self._class_rows = read_rows(self.folder / PER_CLASS)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for rows in (self.rows, self._class_rows):
            rows[:] = [row for row in rows if int(row["epoch"]) <= trainer.current_epoch]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start = time.perf_counter()
        self._images = 0
        self._loss = 0.0
        self._training_seconds = None
        self._validated = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, SegmentationModule)
        if pl_module.skipping:  # nothing was learned from it
            return
        images = len(batch.names)
        self._images += images
        # added up where it lies: asking for the number would make a GPU wait at every step
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
        """The sums within an epoch: a run that was cut off in it goes on adding to them."""
        return {
            "images": self._images,
            "loss": self._loss,
            "seconds": time.perf_counter() - self._start,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._images, self._loss = state_dict["images"], state_dict["loss"]
        self._start = time.perf_counter() - state_dict["seconds"]


def move_means(means: list[Tensor], values: list[Tensor], count: Tensor, *, decay: float) -> None:
    """Move means towards values; early on faster, or they would keep the first weights for long.

    All at once: one by one, hundreds of small weights are thousands of small kernels on a GPU.
    """
    if not means[0].is_floating_point():  # counters: there is no mean of them
        for mean, value in zip(means, values, strict=True):
            mean.copy_(value)
        return
    kept = ((1 + count) / (10 + count)).clamp(max=decay).to(means[0])
    moves = torch._foreach_sub(values, means)
    torch._foreach_mul_(moves, 1 - kept)
    torch._foreach_add_(means, moves)


class EMA(WeightAveraging):
    """Lightning's averaging of the weights, as a running mean that says what it holds."""

    def __init__(self, decay: float) -> None:
        super().__init__(multi_avg_fn=partial(move_means, decay=decay))
        self._has_ended = False

    def take_over(self, task: SegmentationModule) -> None:
        """Give a task the averaged weights, unless the end of its training just did."""
        if not self._has_ended:
            self._copy_average_to_current(task)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self._has_ended = True

    def averaged(self) -> Segmenter:
        """The model with the averaged weights."""
        assert self._average_model is not None
        task = self._average_model.module
        assert isinstance(task, SegmentationModule)
        return task.model
