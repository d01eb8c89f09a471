"""Lightning callbacks: metrics of each epoch, averaged weights, the best model, the last state.

The latter two are not Lightning's ModelCheckpoint: it writes pickles, knows no averaged weights,
and saves states within an epoch that cannot be resumed from bit for bit.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from scaseg.config.model import read_config
from scaseg.io.model_folder import BEST, CONFIG
from scaseg.io.table import Row, read_numbers, read_rows, write_rows
from scaseg.models.segmenter import Segmenter
from scaseg.progress import progress_bar
from scaseg.training.checkpoint_io import StateFiles
from scaseg.training.distributed import all_reduce_max
from scaseg.training.module import SegmentationModule
from scaseg.training.run_folder import LAST, METRICS, PER_CLASS
from scaseg.training.sharding import ShardedStrategy, gathered, local, reshard, shard, whole
from scaseg.training.signals import Signals

HEADER = "  epoch    loss     val    PPA    CAA   mIoU images/s   time"  # val: loss of validation


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
            self.rows = read_numbers(self.folder / METRICS)
            for row in self.rows:
                row.setdefault("val_loss", None)  # of a run that began before there was one
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

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, SegmentationModule)
        if not pl_module.is_skipping:  # else nothing was learned from it
            images = len(batch.names) * trainer.world_size
            self._images += images
            # summed on its device: reading the number would make a GPU wait at every step
            loss = outputs["loss"].detach()
            if pl_module.step_loss is not None:
                loss = pl_module.step_loss / trainer.accumulate_grad_batches
            self._loss = self._loss + loss * images
        assert trainer.max_epochs is not None
        steps = int(trainer.num_training_batches)
        done = trainer.current_epoch * steps + batch_idx + 1
        self._progress(done, trainer.max_epochs * steps, lambda: self._note(trainer))

    def _note(self, trainer: Trainer) -> str:
        backbone, head = _rates(trainer)
        rate = backbone or head
        speed = self._images / (time.perf_counter() - self._start)
        epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        return f"{epoch} loss {self._mean_loss(trainer):.3f} lr {rate:.1e} {speed:.1f} images/s"

    def _mean_loss(self, trainer: Trainer) -> float:
        return float(self._loss) / max(1, self._images) * trainer.accumulate_grad_batches

    def on_validation_start(self, *_: Any) -> None:
        self._training_seconds = time.perf_counter() - self._start

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
        seconds = self._training_seconds or time.perf_counter() - self._start
        backbone, head = _rates(trainer)
        row: Row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            "loss": self._mean_loss(trainer),
            "val_loss": None,
            "lr": backbone,
            "head_lr": head,
            **dict.fromkeys(("PPA", "CAA", "mIoU")),
            "seconds": round(time.perf_counter() - self._start, 3),
            "images_per_second": round(self._images / seconds, 2),
        }
        if self._training_seconds is not None and pl_module.scores is not None:
            row.update(pl_module.scores.summary(), val_loss=pl_module.validation_loss)
            names, scores = pl_module.model.config.classes, pl_module.scores
            self._class_rows += (
                {"epoch": row["epoch"], "class": name, "accuracy": 100 * accuracy, "IoU": 100 * iou}
                for name, accuracy, iou in zip(names, scores.accuracies, scores.ious, strict=True)
            )
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


def _rates(trainer: Trainer) -> tuple[float, float]:
    """The rates of the backbone's last layers, 0 where it is frozen, and of the head."""
    groups = trainer.optimizers[0].param_groups
    backbone = [group["lr"] for group in groups if group["name"].startswith("backbone")]
    return (backbone[-1] if backbone else 0.0), groups[-1]["lr"]


def _line(row: Row, epochs: int | None) -> str:
    def text(name: str, width: int, digits: int) -> str:
        value = row[name]
        return f"{'-' if value is None or value != value else f'{value:.{digits}f}':>{width}}"

    shares = "".join(text(name, 7, 1) for name in ("PPA", "CAA", "mIoU"))
    minutes, seconds = divmod(round(row["seconds"]), 60)
    return (
        f"{row['epoch']:>3}/{epochs:<3}{text('loss', 8, 4)}{text('val_loss', 8, 4)}{shares}"
        f"{text('images_per_second', 9, 1)}{minutes:>4}:{seconds:02}"
    )


@torch.no_grad()
def ema_update(averages: list[Tensor], values: list[Tensor], count: int, *, decay: float) -> None:
    """Move averages towards values of the same dtype, in place; count: updates so far.

    Early updates decay faster, or the average would keep the first weights for long (which is why
    this is not Lightning's EMAWeightAveraging). All tensors at once: one by one, hundreds of small
    weights are thousands of small kernels on a GPU.
    """
    averages, values = ([local(one) for one in tensors] for tensors in (averages, values))
    if not count or not averages[0].is_floating_point():  # there is no average of counters
        torch._foreach_copy_(averages, values)
        return
    kept = torch.tensor(min((1 + count) / (10 + count), decay))
    moves = torch._foreach_sub(values, averages)
    torch._foreach_mul_(moves, float(1 - kept))
    torch._foreach_add_(averages, moves)


class EMA(WeightAveraging):
    """Lightning's WeightAveraging with `ema_update`; validation uses the averaged weights.

    Lightning's own would lie on the CPU, where the network is when it is made, and every step
    would bring all weights there; on a GPU, it would wait for it twice a step.
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self._updates = 0
        self._pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._average_model is not None
        self._average_model.to(pl_module.device)
        self._updates, self._pairs = int(self._average_model.n_averaged), {}
        every = (
            [*one.parameters(), *one.buffers()] for one in (self._average_model.module, pl_module)
        )
        for average, value in zip(*every, strict=True):
            averages, values = self._pairs.setdefault(average.dtype, ([], []))
            averages.append(average)
            values.append(value)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step > self._latest_update_step:
            assert self._average_model is not None
            for averages, values in self._pairs.values():
                ema_update(averages, values, self._updates, decay=self.decay)
            self._average_model.n_averaged += 1
            self._updates += 1
            self._latest_update_step = trainer.global_step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if isinstance(trainer.strategy, ShardedStrategy):
            assert self._average_model is not None
            shard(self.averaged_model().to(pl_module.device))

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        checkpoint["state_dict"] = whole(checkpoint["state_dict"])

    def _swap_models(self, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, SegmentationModule)
        reshard(pl_module.model)
        super()._swap_models(pl_module)

    def copy_to(self, module: SegmentationModule) -> None:
        """Give a module the averaged weights, also where no step was left to train."""
        self._copy_average_to_current(module)

    def averaged_model(self) -> Segmenter:
        """Return the model with the averaged weights."""
        assert self._average_model is not None
        module = self._average_model.module
        assert isinstance(module, SegmentationModule)
        return module.model


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
        model = gathered(pl_module.model if self.ema is None else self.ema.averaged_model())
        if trainer.is_global_zero:
            record = {**model.config.training, "best": {"epoch": self.epoch, "mIoU": mean_iou}}
            model.config = replace(model.config, training=record)
            saved = model.config
            model.config = replace(saved, temperature=pl_module.calibration.fit())
            model.save_pretrained(self.folder / BEST)
            model.config = saved  # in training, probabilities are the network's own

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
        self._epochs: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._epochs = trainer.max_epochs

    def state_dict(self) -> dict[str, Any]:
        return {"over": self._is_over, "epochs": self._epochs}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """A run that had stopped early stays stopped, though only its model is missing.

        Unless it was given another number of epochs since: then its patience starts anew.
        """
        states = checkpoint["callbacks"]
        own = states[self.state_key]
        if own.get("epochs") == trainer.max_epochs:
            trainer.should_stop = own["over"]
            return
        for state in states.values():
            if "wait_count" in state:  # of EarlyStopping
                state["wait_count"] = 0

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
        for name, tensor in whole(pl_module.state_dict()).items():
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
