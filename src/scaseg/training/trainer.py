"""Lightning's Trainer as we use it: what it may do unasked, and how its errors are reported."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException

from scaseg.config.run import MachineConfig, RunConfig
from scaseg.errors import UserError, WorkError
from scaseg.registry import BACKBONES
from scaseg.system import choose_device, choose_precision, matmul_precision
from scaseg.training.checkpoint_io import StateFiles
from scaseg.training.distributed import (
    ProcessWatchdog,
    SharedError,
    exit_if_child_lost,
    exit_if_parent_lost,
    join_restarted,
)
from scaseg.training.sharding import ShardedStrategy
from scaseg.training.signals import TerminatedError

# advice of Lightning to its own users
UNSHOWN = (
    ".*does not have many workers.*",
    ".*DataLoader will create .* worker processes.*",  # as many as were asked for
    ".*in eval mode at the start of training.*",  # frozen norms, on purpose
    ".*have no `val_dataloader`.*",
    ".*`srun` command is available on your system but is not used.*",  # one process needs none
    ".*sync_dist=True.*",  # all processes log the same sum
    ".*is smaller than the logging interval.*",
    ".*LeafSpec.*",  # its own use of what torch has since renamed
    ".*isinstance.treespec.*",
    ".*your dataloader is not resumable.*",  # its sampler knows where the run is
)


def choose_accelerator(machine: MachineConfig) -> str:
    """Return the device to compute on; UserError where there are not as many as asked for."""
    device = choose_device(machine.device)
    # a few more processes than cores do no harm; a thousand take the machine
    most = {"cuda": torch.cuda.device_count(), "mps": 1, "cpu": max(8, os.cpu_count() or 1)}[device]
    if machine.devices > most:
        raise UserError("--devices", f"{machine.devices}", f"there are {most} of {device} here")
    return device


def build_trainer(
    machine: MachineConfig,
    *,
    callbacks: list[Callback],
    files: StateFiles | None = None,
    **options: Any,
) -> Trainer:
    """Build a Trainer that does nothing unasked: no files, no bar, no summary."""
    processes, device = machine.devices * machine.nodes, choose_accelerator(machine)
    precision = choose_precision(machine.precision, device)
    if processes > 1:
        join_restarted(device)
    strategy: Any = "ddp" if processes > 1 else "auto"
    if machine.strategy == "fsdp":
        strategy = ShardedStrategy()
    return Trainer(
        accelerator=device,
        devices=machine.devices,
        num_nodes=machine.nodes,
        strategy=strategy,
        inference_mode=machine.strategy != "fsdp",  # shares are no tensors of it
        precision="32-true" if precision == "32" else f"{precision}-mixed",  # type: ignore[arg-type]
        callbacks=[ProcessWatchdog(), *callbacks] if processes > 1 else callbacks,
        plugins=[files or StateFiles()],
        use_distributed_sampler=False,  # ours know the processes
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def tf32(device: str) -> AbstractContextManager[None]:
    """Let a GPU multiply float32 in TF32, within `with`."""
    return matmul_precision("high") if device == "cuda" else nullcontext()


def wants_search(run: RunConfig) -> bool:
    """Whether `cudnn_search` pays: batches have one size, and kernels are what takes time."""
    has_one_size = run.augment.crop is not None or run.augment.fit is not None
    return has_one_size and not BACKBONES[run.model.backbone].launch_bound


@contextmanager
def cudnn_search(wanted: bool) -> Iterator[None]:
    """Let cuDNN search, within `with`, for the fastest algorithm of each size of images.

    Not after it: whoever predicts images of many sizes next would wait for a search at each.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide Lightning's advice; errors still show."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message in UNSHOWN:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def work_errors(trainer: Trainer, place: str | None = None) -> Iterator[None]:
    """Turn any exception within into a WorkError of one line; Ctrl-C and SIGTERM stay that.

    place: what was being done; None: the epoch and step.
    """
    try:
        yield
    except SIGTERMException:  # received by Lightning, before or without LastCheckpoint
        raise TerminatedError from None
    except SystemExit as stop:  # also a TerminatedError of ours
        if trainer.interrupted and stop.code == 1:  # Lightning makes Ctrl-C an exit of its own
            raise KeyboardInterrupt from None
        raise
    except Exception as error:
        if isinstance(error, SharedError):
            if not trainer.is_global_zero:
                raise SystemExit(1) from error
        elif trainer.world_size > 1:
            exit_if_child_lost(trainer, seconds=3)
            exit_if_parent_lost(trainer, error)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        lines = lines or [type(error).__name__]
        # a loader's process sends its whole traceback
        problem = lines[-1] if lines[0].startswith("Caught") else lines[0]
        step = f"epoch {trainer.current_epoch + 1}, step {trainer.global_step + 1}"
        raise WorkError(place or step, problem) from error
