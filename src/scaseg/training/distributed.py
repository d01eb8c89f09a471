"""Several processes as one: what they agree on, and that none outlives the others."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

PERIOD = 0.5  # seconds between looks
LAST_WORDS = 30  # seconds that a process may take to end


def agree(trainer: Trainer, *numbers: int) -> list[int]:
    """The largest of each number over all processes, which must all ask at the same moment."""
    if trainer.world_size == 1:
        return list(numbers)
    there = torch.tensor(numbers, device=trainer.strategy.root_device)
    torch.distributed.all_reduce(there, torch.distributed.ReduceOp.MAX)
    return [int(number) for number in there.tolist()]


def gather(trainer: Trainer, names: list[str]) -> list[str]:
    """The names of all processes, which must all ask at the same moment."""
    if trainer.world_size == 1:
        return names
    found: list[list[str]] = [[] for _ in range(trainer.world_size)]
    torch.distributed.all_gather_object(found, names)
    return [name for names in found for name in names]


class AgreedError(ArithmeticError):
    """A fault that all processes have found together: the first one says it for all."""


class WatchProcesses(Callback):
    """End all processes of a run when one is lost: a collective would wait for it for ever.

    The first process watches those that it has started, they watch it.
    """

    def __init__(self) -> None:
        self._over = threading.Event()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._over.clear()
        if trainer.is_global_zero and _started(trainer):
            self._start(self._watch_started, trainer)
        elif trainer.global_rank != 0:
            self._start(self._watch_parent, os.getppid())

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._over.set()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if trainer.is_global_zero:  # the others may have found the same, and end as well
            self._over.set()

    def _start(self, watch: Any, whom: Any) -> None:
        threading.Thread(target=watch, args=(whom,), daemon=True, name="watch").start()

    def _watch_parent(self, parent: int) -> None:
        while not self._over.wait(PERIOD):
            if os.getppid() != parent:
                os._exit(1)

    def _watch_started(self, trainer: Trainer) -> None:
        while not self._over.wait(PERIOD):
            end_if_one_is_lost(trainer, seconds=0)


def end_if_one_is_lost(trainer: Trainer, seconds: float) -> None:
    """End this process and all that it has started if one of those was lost or has failed.

    A lost one shows as a broken connection first: wait up to some seconds for its end.
    """
    limit = time.monotonic() + seconds
    while started := _started(trainer):
        for process in started:
            if process.poll() not in (None, 0, 128 + signal.SIGTERM, 128 + signal.SIGINT):
                _give_up(process, started)
        if time.monotonic() >= limit:
            return
        time.sleep(0.05)


def end_with_the_first(trainer: Trainer, fault: Exception) -> None:
    """End without a word if this process has only lost the first one, which says why it ends."""
    if trainer.global_rank == 0 or not re.search("gloo|NCCL|[Cc]onnection", str(fault)):
        return
    parent, limit = os.getppid(), time.monotonic() + LAST_WORDS
    while time.monotonic() < limit and os.getppid() == parent:
        time.sleep(0.05)
    if os.getppid() != parent:
        os._exit(1)


def _started(trainer: Trainer) -> list[Any]:
    return getattr(trainer.strategy.launcher, "procs", [])


def _give_up(lost: Any, started: list[Any]) -> None:
    for process in started:
        if process.poll() is None:
            process.kill()
    if lost.returncode < 0:  # one that failed has said why
        sys.stderr.write(
            f"error: process {lost.pid} of this run was lost (signal {-lost.returncode}); what "
            "was saved is whole, continue with --resume\n"
        )
    sys.stderr.flush()
    os._exit(1)
