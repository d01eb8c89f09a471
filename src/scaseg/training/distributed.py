"""Several processes of one run: what they agree on, and that none outlives the others."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

Item = TypeVar("Item")
PERIOD = 0.5  # seconds between checks
GRACE = 30  # seconds that the first process may take to end


def is_rank_zero() -> bool:
    """Whether this process is the one that writes files and messages."""
    return getattr(rank_zero_only, "rank", None) in (None, 0)  # Lightning reads the launcher's


def join_restarted(device: str) -> None:
    """Meet the other processes after a restart by torchrun under a name of this attempt.

    torchrun keeps its store, and in it the addresses of processes that are gone: gloo would call
    them. Lightning takes a group that is there.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or torch.distributed.is_initialized():
        return
    port = int(os.environ["MASTER_PORT"])
    store = TCPStore(os.environ["MASTER_ADDR"], port, is_master=False)
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=PrefixStore(f"attempt_{attempt}", store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def all_reduce_max(trainer: Trainer, *numbers: int) -> list[int]:
    """Return the largest of each number over all processes; all must call at the same point."""
    if trainer.world_size == 1:
        return list(numbers)
    tensor = torch.tensor(numbers, device=trainer.strategy.root_device)
    torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)
    return [int(number) for number in tensor.tolist()]


def all_reduce_sum(trainer: Trainer, *numbers: float) -> list[float]:
    """Return the sum of each number over all processes; all must call at the same point."""
    if trainer.world_size == 1:
        return list(numbers)
    tensor = torch.tensor(numbers, dtype=torch.float64, device=trainer.strategy.root_device)
    torch.distributed.all_reduce(tensor)
    return [float(number) for number in tensor.tolist()]


def all_gather(trainer: Trainer, items: list[Item]) -> list[Item]:
    """Return the items of all processes; all must call at the same point."""
    if trainer.world_size == 1:
        return items
    found: list[list[Item]] = [[] for _ in range(trainer.world_size)]
    torch.distributed.all_gather_object(found, items)
    return [item for items in found for item in items]


class SharedError(ArithmeticError):
    """An error that all processes raise at the same point: the first one reports it for all."""


class ProcessWatchdog(Callback):
    """End all processes of a run when one is lost: a collective would wait for it for ever.

    The first process watches those that it has started, they watch it.
    """

    def __init__(self) -> None:
        self._over = threading.Event()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._over.clear()
        parent = os.getppid()
        if trainer.is_global_zero and _children(trainer):
            self._start(lambda: exit_if_child_lost(trainer, seconds=0))
        elif not trainer.is_global_zero:
            self._start(lambda: os._exit(1) if os.getppid() != parent else None)

    def teardown(self, *_: Any, **__: Any) -> None:
        self._over.set()

    def on_exception(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:  # the others may have found the same, and end as well
            self._over.set()

    def _start(self, check: Callable[[], None]) -> None:
        def watch() -> None:
            while not self._over.wait(PERIOD):
                check()

        threading.Thread(target=watch, daemon=True, name="watchdog").start()


def exit_if_child_lost(trainer: Trainer, seconds: float) -> None:
    """End this process and all that it has started if one of those was lost or has failed.

    A lost one shows as a broken connection first: wait up to some seconds for its end.
    """
    limit = time.monotonic() + seconds
    while children := _children(trainer):
        for process in children:
            if process.poll() not in (None, 0, 128 + signal.SIGTERM, 128 + signal.SIGINT):
                for other in children:
                    other.kill()
                if process.returncode < 0:  # one that failed has said why
                    sys.stderr.write(
                        f"error: process {process.pid} of this run was lost (signal "
                        f"{-process.returncode}); what was saved is whole, continue with --resume\n"
                    )
                sys.stderr.flush()
                os._exit(1)
        if time.monotonic() >= limit:
            return
        time.sleep(0.05)


def exit_if_parent_lost(trainer: Trainer, error: Exception) -> None:
    """End silently if this process has only lost the first one, which reports why it ended."""
    if trainer.is_global_zero or not re.search("gloo|NCCL|[Cc]onnection", str(error)):
        return
    parent, limit = os.getppid(), time.monotonic() + GRACE
    while time.monotonic() < limit and os.getppid() == parent:
        time.sleep(0.05)
    if os.getppid() != parent:
        os._exit(1)


def _children(trainer: Trainer) -> list[Any]:
    return getattr(trainer.strategy.launcher, "procs", [])
