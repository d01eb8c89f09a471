"""What a run keeps as it goes: the best model so far, and all that it takes to continue."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from scaseg.models.checkpoint import CONFIG, read_config, save_pretrained
from scaseg.training.callbacks import EMA
from scaseg.training.checkpoint_io import StateFiles
from scaseg.training.distributed import agree
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import BEST, LAST
from scaseg.training.signals import Signals


class KeepBest(Callback):
    """Save the model whenever a validation has a better mIoU than all before."""

    def __init__(self, folder: Path, mean: EMA | None) -> None:
        self.folder = folder
        self.mean = mean
        self.best = -math.inf
        self.epoch = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
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
    """Save everything that it takes to continue: after epochs, in long ones, and when told to end.

    Lightning cannot continue from the last step of an epoch, before its validation. So the state
    before that step is held in memory until the epoch is over: who is told to end then loses a
    step.
    """

    def __init__(
        self, folder: Path, states: StateFiles, *, every: int, minutes: float | None
    ) -> None:
        self.path = folder / LAST
        self.states = states
        self.every = every
        self.minutes = minutes
        self.signals = Signals()
        self._saved = time.monotonic()
        self._is_over = False

    def state_dict(self) -> dict[str, Any]:
        return {"over": self._is_over}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """A run that had stopped early stays stopped, though only its model is missing."""
        trainer.should_stop = checkpoint["callbacks"][self.state_key]["over"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signals.listen()  # after Lightning, which listens as well
        self._saved = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        batches, step = int(trainer.num_training_batches), trainer.accumulate_grad_batches
        left = batches - batch_idx - 1
        if left and (batch_idx + 1) % step:
            return  # gradients that are not added up yet cannot be saved
        heard, due = agree(trainer, self.signals.heard, int(self._is_due()))
        if not left:
            self._end(heard)
        elif heard or due:
            self._save(trainer, pl_module)
            self.signals.raise_if(heard)
        elif left <= step:
            self.states.hold(trainer)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:  # processes judge different numbers of images: they cannot agree
            self._end(self.signals.heard)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.states.forget()
        done = trainer.current_epoch + 1
        heard, due = agree(trainer, self.signals.heard, int(self._is_due()))
        self._is_over = is_over = done == trainer.max_epochs or trainer.should_stop
        if done % self.every == 0 or heard or due or is_over:
            self._save(trainer, pl_module)
        elif trainer.num_training_batches <= trainer.accumulate_grad_batches:
            self.states.hold(trainer)  # the next epoch is a single step
        if not is_over:
            self.signals.raise_if(heard)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signals.leave()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.signals.leave()

    def _is_due(self) -> bool:
        return self.minutes is not None and time.monotonic() - self._saved >= 60 * self.minutes

    def _save(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, tensor in pl_module.state_dict().items():
            if not bool(torch.isfinite(tensor).all()):
                raise ArithmeticError(f"{name} is not finite any more; lower --lr")
        trainer.save_checkpoint(self.path)
        self.states.forget()
        self._saved = time.monotonic()

    def _end(self, heard: int) -> None:
        """Obey a signal where the state now cannot be continued from, but a held one can."""
        if heard:
            self.states.write_held(self.path)
            self.signals.raise_if(heard)
