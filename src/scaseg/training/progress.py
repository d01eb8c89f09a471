"""What a person sees as it trains: a bar with loss, rate, speed and time left; a row an epoch."""

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from scaseg.io.table import Row
from scaseg.training.callbacks import MetricsTable

REFRESH = 0.5  # seconds between looks at the loss: each makes a GPU wait
HEADER = (
    f"{'epoch':>7}  {'loss':>7}  {'PPA':>5}  {'CAA':>5}  {'mIoU':>5}  {'images/s':>8}  {'time':>6}"
)


class ProgressDisplay(Callback):
    """On stderr: a live bar where that is a terminal, and a row for each epoch in any case."""

    def __init__(self, table: MetricsTable) -> None:
        self.table = table
        self.console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._steps = 0
        self._looked = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        self.console.print(HEADER, soft_wrap=True)
        self._steps = int(trainer.num_training_batches)
        if not self.console.is_terminal:
            return
        columns: list[ProgressColumn] = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
        ]
        # refreshed by hand: a thread of its own would be forked along with the loaders' processes
        self._bar = Progress(
            *columns, console=self.console, transient=True, expand=True, auto_refresh=False
        )
        assert trainer.max_epochs is not None
        self._task = self._bar.add_task("", total=trainer.max_epochs * self._steps, facts="")
        self._bar.update(self._task, completed=trainer.current_epoch * self._steps)
        self._bar.start()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._epoch_start, self._images = time.perf_counter(), 0
        if self._bar is not None:
            said = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            self._bar.update(self._task, description=said)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._bar is None:
            return
        self._images += len(batch.names) * trainer.world_size
        self._bar.update(self._task, advance=1)
        if time.perf_counter() - self._looked > REFRESH:
            loss = float(outputs["loss"]) * trainer.accumulate_grad_batches
            rate = trainer.optimizers[0].param_groups[0]["lr"]
            speed = self._images / (time.perf_counter() - self._epoch_start)
            facts = f"loss {loss:.3f} lr {rate:.1e} {speed:.1f} img/s"
            self._bar.update(self._task, facts=facts, refresh=True)
            self._looked = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is not None:
            self._bar.update(self._task, facts="validating", refresh=True)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and self.table.rows:
            self.console.print(_line(self.table.rows[-1], trainer.max_epochs), soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _line(row: Row, epochs: int | None) -> str:
    def share(name: str) -> str:
        return "-" if row[name] is None or row[name] != row[name] else f"{row[name]:.1f}"

    minutes, seconds = divmod(round(row["seconds"]), 60)
    return (
        f"{row['epoch']:>3}/{epochs:<3}  {row['loss']:7.4f}  {share('PPA'):>5}  {share('CAA'):>5}  "
        f"{share('mIoU'):>5}  {row['images_per_second']:8.1f}  {minutes:>3}:{seconds:02}"
    )
