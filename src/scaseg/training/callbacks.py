"""What happens beside the loop: a row of metrics an epoch, the best model, the last state."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from scaseg.models import Segmenter, save_pretrained
from scaseg.models.saving import CONFIG, read_config
from scaseg.training.folder import BEST, LAST, METRICS, PER_CLASS
from scaseg.training.rows import Row, read_rows, write_rows
from scaseg.training.task import SegmentationTask, refuse_to_diverge
from scaseg.whole_files import whole_file


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
        self._loss: Tensor | float = 0.0
        self._training_seconds: float | None = None
        self._validated = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        images = len(batch.names)
        self._images += images
        # added up where it lies: asking for the number would make a GPU wait at every step
        self._loss = self._loss + outputs["loss"].detach() * images

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training_seconds = time.perf_counter() - self._start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationTask)
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
        refuse_to_diverge(row["loss"])
        self.rows.append(row)
        if self.folder is not None and trainer.is_global_zero:
            write_rows(self.folder / METRICS, self.rows)
            if self._class_rows:
                write_rows(self.folder / PER_CLASS, self._class_rows)


def running_mean(average: Tensor, current: Tensor, count: Tensor, *, decay: float) -> Tensor:
    """Move a mean towards a value; early on faster, or it would keep the first weights for long."""
    kept = ((1 + count) / (10 + count)).clamp(max=decay)
    return kept * average + (1 - kept) * current


class RunningMean(WeightAveraging):
    """Lightning's averaging of the weights, as a running mean that says what it holds."""

    def __init__(self, decay: float) -> None:
        super().__init__(avg_fn=partial(running_mean, decay=decay))

    def averaged(self) -> Segmenter:
        """The model with the averaged weights."""
        assert self._average_model is not None
        task = self._average_model.module
        assert isinstance(task, SegmentationTask)
        return task.model


class KeepBest(Callback):
    """Save the model whenever a validation has a better mIoU than all before."""

    def __init__(self, folder: Path, mean: RunningMean | None) -> None:
        self.folder = folder
        self.mean = mean
        self.best = -math.inf
        self.epoch = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationTask)
        assert pl_module.scores is not None
        reached = pl_module.scores.mean_iou
        if not reached > self.best:  # NaN is not better
            return
        self.best, self.epoch = reached, trainer.current_epoch + 1
        if trainer.is_global_zero:
            model = pl_module.model if self.mean is None else self.mean.averaged()
            record = {**model.config.training, "best": {"epoch": self.epoch, "mIoU": reached}}
            model.config = replace(model.config, training=record)
            save_pretrained(model, self.folder / BEST)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Believe what is saved: a run may have died between saving the best and its state."""
        if self.epoch and (self.folder / BEST / CONFIG).is_file():
            saved = read_config(self.folder / BEST).training.get("best")
            if saved is not None:
                self.best, self.epoch = saved["mIoU"], saved["epoch"]

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.epoch = state_dict["best"], state_dict["epoch"]


class KeepLast(Callback):
    """Save everything that it takes to continue, at the end of an epoch."""

    def __init__(self, folder: Path, every: int) -> None:
        self.folder = folder
        self.every = every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        done = trainer.current_epoch + 1
        if done % self.every == 0 or done == trainer.max_epochs or trainer.should_stop:
            trainer.save_checkpoint(self.folder / LAST)


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that appear whole or not at all, in their own folder, and load without code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        with whole_file(Path(path)) as temporary:
            torch.save(checkpoint, temporary)

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        return torch.load(path, map_location="cpu", weights_only=True)
