"""Lightning's Trainer as we use it, and the loaders that feed it."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch.utils.data import DataLoader

from scaseg.config.model import ModelConfig
from scaseg.config.run import MachineConfig, RunConfig
from scaseg.data.build import build_transforms
from scaseg.data.cache import DiskCache, RamCache
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.loading import (
    EpochBatchSampler,
    EvaluationDataset,
    EvaluationSampler,
    SamplerState,
    Samples,
    TrainingDataset,
)
from scaseg.data.sample import collate
from scaseg.data.transforms import Transform
from scaseg.system import available_memory, usable_cores
from scaseg.training.checkpoint_io import StateFiles
from scaseg.training.distributed import (
    AgreedError,
    WatchProcesses,
    end_if_one_is_lost,
    end_with_the_first,
)
from scaseg.training.signals import TerminatedError, leave_signals

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


class WorkError(RuntimeError):
    """Something went wrong during work; says where, and the cause has the rest."""


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks."""
    return getattr(rank_zero_only, "rank", None) in (None, 0)  # Lightning asks the launcher


def build_trainer(
    machine: MachineConfig,
    *,
    callbacks: list[Callback],
    states: StateFiles | None = None,
    **options: Any,
) -> Trainer:
    """Make a Trainer that does nothing unasked: no files, no bar, no summary."""
    processes = machine.devices * machine.nodes
    if processes > 1:
        callbacks = [WatchProcesses(), *callbacks]
    trainer = Trainer(
        accelerator=check_device(machine),
        devices=machine.devices,
        num_nodes=machine.nodes,
        strategy="ddp" if processes > 1 else "auto",
        precision=PRECISIONS[machine.precision],  # type: ignore[arg-type]
        callbacks=callbacks,
        plugins=[states or StateFiles()],
        use_distributed_sampler=False,  # ours know the processes
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    if trainer.accelerator.name() == "cuda":
        torch.set_float32_matmul_precision("high")
    return trainer


def check_device(machine: MachineConfig) -> str:
    """Turn a device into Lightning's word for it; ValueError where it is not there."""
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    device = machine.device
    if device == "auto":
        device = "cuda" if cuda else "mps" if mps else "cpu"
    if (device == "cuda" and not cuda) or (device == "mps" and not mps):
        raise ValueError(f"--device: {device} is not available here; use cpu or auto")
    # a few more processes than cores do no harm; a thousand take the machine
    most = {"cuda": cuda, "mps": 1, "cpu": max(8, os.cpu_count() or 1)}[device]
    if machine.devices > most:
        raise ValueError(f"--devices: {machine.devices}; there are {most} of {device} here")
    return device


def training_examples(
    run: RunConfig,
    samples: Samples,
    model: ModelConfig,
    transforms: Sequence[Transform] | None = None,
) -> TrainingDataset:
    """Samples as this run (or transforms of the user's own) augments and the model normalises."""
    return TrainingDataset(
        samples,
        build_transforms(run.augment) if transforms is None else transforms,
        mean=model.mean,
        std=model.std,
        seed=run.training.seed,
    )


def training_loader(run: RunConfig, examples: TrainingDataset, trainer: Trainer) -> DataLoader[Any]:
    """Feed augmented batches in the order of (seed, epoch)."""
    batches = EpochBatchSampler(
        len(examples),
        run.training.batch_size,
        seed=run.training.seed,
        state=_sampler_state(trainer),
    )
    return DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=batches,
        collate_fn=collate,
        **_loading(run.machine),
    )


def evaluation_loader(
    samples: Samples, machine: MachineConfig, trainer: Trainer
) -> DataLoader[Any]:
    """Feed photographs one by one, each to one process."""
    photographs = EvaluationDataset(samples)
    share = EvaluationSampler(len(photographs), state=_sampler_state(trainer))
    return DataLoader(
        photographs,  # type: ignore[arg-type]
        batch_size=None,
        sampler=share,
        **_loading(machine),
    )


def cached(dataset: SegmentationDataset, run: RunConfig, folder: Path | None) -> Samples:
    """Keep decoded images where the run wants them."""
    if run.data.cache == "ram":
        return RamCache(dataset, room=available_memory(torch.device("cpu")))
    if run.data.cache == "disk":
        if run.data.cache_dir is None and folder is None:
            return dataset
        return DiskCache(dataset, run.data.cache_dir or Path(str(folder)) / "cache")
    return dataset


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Keep Lightning's advice for its own users from ours; what goes wrong still shows."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for said in (
                ".*does not have many workers.*",
                ".*DataLoader will create .* worker processes.*",  # as many as were asked for
                ".*in eval mode at the start of training.*",  # frozen norms, on purpose
                ".*have no `val_dataloader`.*",
                ".*sync_dist=True.*",  # all processes log the same sum
                ".*is smaller than the logging interval.*",
                ".*LeafSpec.*",  # its own use of what torch has since renamed
                ".*isinstance.treespec.*",
                ".*your dataloader is not resumable.*",  # its sampler asks where the run is
            ):
                warnings.filterwarnings("ignore", said)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def one_line_faults(trainer: Trainer, place: Callable[[], str]) -> Iterator[None]:
    """Turn what goes wrong in Lightning's loop into a WorkError of one line; Ctrl-C stays that."""
    try:
        yield
    except TerminatedError:
        raise
    except SIGTERMException:  # heard by Lightning, before or without KeepLast
        raise TerminatedError from None
    except SystemExit as stop:
        if trainer.interrupted and stop.code == 1:  # Lightning makes Ctrl-C an exit of its own
            raise KeyboardInterrupt from None
        raise
    except Exception as fault:
        if trainer.world_size > 1 and not isinstance(fault, AgreedError):
            end_if_one_is_lost(trainer, seconds=3)
            end_with_the_first(trainer, fault)
        lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
        if not lines:
            said = type(fault).__name__
        else:  # a loader's process sends its whole traceback
            said = lines[-1] if lines[0].startswith("Caught") else lines[0]
        raise WorkError(f"{place()}: {said}") from fault


def _sampler_state(trainer: Trainer) -> Callable[[], SamplerState]:
    """Where this process stands, asked when an epoch starts.

    `processed` and not `current_epoch`: right after a checkpoint is loaded only the former knows.
    """

    def state() -> SamplerState:
        loop = trainer.fit_loop
        epoch: int = loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        # saved within an epoch: its counters are loaded before the first batch is asked for
        within = loop.epoch_loop.batch_progress.current
        done: int = within.processed if loop.restarting else 0  # type: ignore[attr-defined]
        return SamplerState(epoch, trainer.global_rank, trainer.world_size, done)

    return state


def _loading(machine: MachineConfig) -> dict[str, Any]:
    workers = machine.workers
    if workers is None:
        workers = min(8, max(0, usable_cores() // machine.devices - 1))
    return {
        "num_workers": workers,
        "worker_init_fn": leave_signals,
        "persistent_workers": workers > 0,
        "pin_memory": torch.cuda.is_available() and machine.device in ("auto", "cuda"),
    }
