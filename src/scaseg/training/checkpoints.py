"""Checkpoint callbacks: the best model so far, and the last state to resume from.

Not Lightning's ModelCheckpoint: it writes pickles, knows no averaged weights, and saves states
within an epoch that cannot be resumed from bit for bit.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from scaseg.io.model_folder import CONFIG
from scaseg.models.checkpoint import read_config
from scaseg.training.checkpoint_io import StateFiles
from scaseg.training.distributed import all_reduce_max
from scaseg.training.ema import EMA
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import BEST, LAST
from scaseg.training.signals import Signals


class BestCheckpoint(Callback):
    """Save the model whenever a validation has a better mIoU than all before."""

    def __init__(self, folder: Path, ema: EMA | None) -> None:
        self.folder = folder
        self.ema = ema
        self.best = -math.inf
        self.epoch = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
        assert pl_module.scores is not None
        mean_iou = pl_module.scores.mean_iou
        if not mean_iou > self.best:  # NaN is not better
            return
        self.best, self.epoch = mean_iou, trainer.current_epoch + 1
        if trainer.is_global_zero:
            model = pl_module.model if self.ema is None else self.ema.averaged_model()
            record = {**model.config.training, "best": {"epoch": self.epoch, "mIoU": mean_iou}}
            model.config = replace(model.config, training=record)
            model.save_pretrained(self.folder / BEST)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Trust what is saved: a run may have died between saving the best and its state."""
        if self.epoch and (self.folder / BEST / CONFIG).is_file():
            saved = read_config(self.folder / BEST).training.get("best")
            if saved is not None:
                self.best, self.epoch = saved["mIoU"], saved["epoch"]

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.epoch = state_dict["best"], state_dict["epoch"]


class LastCheckpoint(Callback):
    """Save the state of a run: after epochs, every few minutes within, and on a signal.

    Lightning cannot resume from the last step of an epoch, before its validation. So the state
    before that step is held in memory until the epoch is over: a signal in between costs a step.
    """

    def __init__(
        self, folder: Path, files: StateFiles, *, every: int, minutes: float | None
    ) -> None:
        self.path = folder / LAST
        self.files = files
        self.every = every
        self.minutes = minutes
        self.signals = Signals()
        self._saved_at = time.monotonic()
        self._is_over = False

    def state_dict(self) -> dict[str, Any]:
        return {"over": self._is_over}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """A run that had stopped early stays stopped, though only its model is missing."""
        trainer.should_stop = checkpoint["callbacks"][self.state_key]["over"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signals.install()  # after Lightning, which installs its own
        self._saved_at = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        batches, step = int(trainer.num_training_batches), trainer.accumulate_grad_batches
        left = batches - batch_idx - 1
        if left and (batch_idx + 1) % step:
            return  # gradients that are not added up yet cannot be saved
        received, due = all_reduce_max(trainer, self.signals.received, int(self._is_due()))
        if not left:
            self._stop_at_held(received)
        elif received or due:
            self._save(trainer, pl_module)
            self.signals.obey(received)
        elif left <= step:
            self.files.hold(trainer)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:  # processes have different numbers of images: no agreement here
            self._stop_at_held(self.signals.received)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.files.drop_held()
        done = trainer.current_epoch + 1
        received, due = all_reduce_max(trainer, self.signals.received, int(self._is_due()))
        self._is_over = is_over = done == trainer.max_epochs or trainer.should_stop
        if done % self.every == 0 or received or due or is_over:
            self._save(trainer, pl_module)
        elif trainer.num_training_batches <= trainer.accumulate_grad_batches:
            self.files.hold(trainer)  # the next epoch is a single step
        if not is_over:
            self.signals.obey(received)

    def on_train_end(self, *_: Any) -> None:
        self.signals.restore()

    def on_exception(self, *_: Any) -> None:
        self.on_train_end()

    def _is_due(self) -> bool:
        return self.minutes is not None and time.monotonic() - self._saved_at >= 60 * self.minutes

    def _save(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, tensor in pl_module.state_dict().items():
            if not bool(torch.isfinite(tensor).all()):
                raise ArithmeticError(f"{name} is not finite any more; lower --lr")
        trainer.save_checkpoint(self.path)
        self.files.drop_held()
        self._saved_at = time.monotonic()

    def _stop_at_held(self, received: int) -> None:
        """Obey a signal where the current state cannot be resumed from, but a held one can."""
        if received:
            self.files.write_held(self.path)
            self.signals.obey(received)
