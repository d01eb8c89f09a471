"""The data of a run: checked before the first epoch, class weights, caches, loaders."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from scaseg.config.model import ModelConfig
from scaseg.config.reading import read
from scaseg.config.run import DataConfig, MachineConfig, RunConfig
from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.datasets.own import CHECKED, OwnDataset
from scaseg.data.datasets.shards import ShardDataset
from scaseg.data.decode.bands import band_header
from scaseg.data.device_augmentation import collate_planned, split_chain
from scaseg.data.loading import (
    DiskCache,
    EpochBatchSampler,
    EvaluationDataset,
    EvaluationSampler,
    RamCache,
    SamplerState,
    Samples,
    TrainingDataset,
)
from scaseg.data.sample import collate
from scaseg.data.splits import build_dataset, split_names, training_splits
from scaseg.data.statistics import BandStatistics, band_statistics
from scaseg.data.validation.check import (
    Notify,
    Part,
    Pixels,
    count_pixels,
    quick_check,
    require_labelled,
    require_valid,
)
from scaseg.errors import UserError, some_of
from scaseg.io.paths import shown, user_cache
from scaseg.progress import Progress, progress_bar
from scaseg.system import available_memory, usable_cores
from scaseg.training.run_folder import PIXELS
from scaseg.training.signals import ignore_signals

if TYPE_CHECKING:
    from pytorch_lightning import Trainer


DECODED_BYTES = 50 << 30  # that may lie in the user's cache when a run begins
# training and validation images, and where the latter come from
Given = tuple[SegmentationDataset, SegmentationDataset | None, str]


@dataclass(frozen=True)
class TrainingData:
    """Training and validation images; `validation` describes where the latter come from."""

    train: SegmentationDataset
    val: SegmentationDataset | None
    validation: str
    classes: tuple[str, ...]
    pixels: tuple[int, ...] | None  # of each class in train; None where nothing needs them
    bands: BandStatistics | None = None  # None: photographs
    counted: Pixels | None = None  # of each class in train (and val); None: not all were read


def open_data(
    run: RunConfig,
    folder: Path | None,
    *,
    given: Given | None = None,
    start: ModelConfig | None = None,
    quiet: bool = True,
    notify: Notify = lambda note: None,
) -> TrainingData:
    """Open the splits of a run, or take those that are given; UserError where they are no use.

    folder: of the run, where the pixels of each class may have been counted before. start: of the
    model that the run starts from, which takes its own bands alone. quiet=False shows a progress
    bar: every file is read, unless that has been done before. notify: called with what is worth
    knowing about the data.
    """
    config = run.data
    train, val, validation = given or training_splits(config)
    both = set(train.names) & set(val.names) if val else set()
    if both and config.val != config.train:
        raise UserError(
            config.root or config.name,
            f"{min(both)!r} is in {config.train} and in validation, {len(both)} in all",
            "take each out of one list: an image that was trained on measures nothing",
        )
    if isinstance(train, (PairedDataset, ShardDataset)) and train.bands is not None:
        # one type for all: the same number means something else in another
        first = train.pairs[0].image if isinstance(train, PairedDataset) else train.image(0)
        found = band_header(first, max_pixels=config.max_pixels)
        train.dtype = found.dtype
        if start is not None and found[2:4] != (start.in_channels, start.dtype):
            remedy = f"the model of --start-from reads {start.in_channels} bands of {start.dtype}"
            place = shown(first) if isinstance(first, Path) else str(train.root)
            raise UserError(place, f"has {found.bands} bands of {found.dtype}", remedy)
        if val is not None:
            val.dtype = train.dtype
    counted: Pixels | None = None
    if isinstance(train, PairedDataset):
        with progress_bar("checking the data", shown=not quiet) as progress:
            counted = _validate(config, train, val, progress, notify)
        for note in train.notes:  # some know only after reading
            notify(f"note: {train.root}: {note}")
    elif isinstance(train, (OwnDataset, ShardDataset)):
        _read_some(config, train, val)
        if isinstance(train, ShardDataset) and train.pixels is not None:
            counted = (train.pixels,)
    pixels = None
    if train.classes is None or run.training.class_weights != "none":
        pixels = _class_pixels(train, folder, counted)
    classes = train.classes
    if classes is None:
        assert pixels is not None
        count = len(pixels)
        if val is not None:
            count = max(count, len(count_pixels(val) if counted is None else counted[-1]))
        classes = tuple(f"class {index}" for index in range(count))
        pixels = (*pixels, *(0,) * (count - len(pixels)))
        for images in (train, val):
            if images is not None:
                images.classes = classes
    if counted is not None and len(counted) > 1:
        learned = (*counted[0], *(0,) * len(classes))
        pairs = zip(classes, learned, counted[-1], strict=False)
        if lost := [name for name, own, held in pairs if held and not own]:
            notify(f"note: in no training image, though in validation: {some_of(lost)}")
    bands = None if train.bands is None else _band_statistics(config, train, folder, quiet)
    return TrainingData(train, val, validation, classes, pixels, bands, counted)


def _band_statistics(
    config: DataConfig, train: SegmentationDataset, folder: Path | None, quiet: bool
) -> BandStatistics:
    """Mean and std as the run gives them, as it has measured them before, or measured now."""
    assert train.dtype is not None
    if config.mean is not None and config.std is not None:
        return BandStatistics(train.dtype, config.mean, config.std)
    found = None
    if folder is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            recorded = json.loads((folder / PIXELS).read_text(encoding="utf-8"))["bands"]
            found = read(BandStatistics, recorded)
    if found is None or len(found.mean) != train.bands:
        with progress_bar("measuring the bands", shown=not quiet) as progress:
            found = band_statistics(train, progress=progress)
    return replace(found, mean=config.mean or found.mean, std=config.std or found.std)


def _read_some(
    config: DataConfig, train: SegmentationDataset, val: SegmentationDataset | None
) -> None:
    """Read samples of the user's own Dataset once: all, or some where data.check is quick.

    Of shards the first: others may have to be fetched.
    """
    for images in (train, val):
        if images is not None:
            is_quick = config.check == "quick" or isinstance(images, ShardDataset)
            count = min(CHECKED, len(images)) if is_quick else len(images)
            step = 1 if isinstance(images, ShardDataset) else len(images) / count
            for place in range(count):
                images[int(place * step)]


def _validate(
    config: DataConfig,
    train: PairedDataset,
    val: SegmentationDataset | None,
    progress: Progress,
    notify: Notify,
) -> Pixels | None:
    """Refuse data with errors; return the pixels of each class, in each split, if all were read."""
    splits = split_names(config) if config.root is not None else ()  # else they are given
    parts = [Part(config.train, train)]
    if isinstance(val, PairedDataset):
        # held out, or the same list on purpose: an image that is in both is no leak between lists
        name = "val" if config.val == "auto" and "val" in splits else config.val
        held = config.folds is not None or name in ("auto", None)
        parts.append(Part(config.train if held or name is None else name, val))
    if config.check == "quick":
        everything = train.subset(range(len(train)))
        for part in parts[1:]:
            everything.pairs += part.data.pairs  # what all have in common shows in all
        quick_check(everything, notify=notify)
        for part in parts[1:]:
            require_labelled(part.data, "validation")
        return None
    test = None  # what will be tested on, where lists have their usual names
    if config.folds is None and config.train == "train" and "test" in set(splits) - {config.val}:
        with suppress(ValueError):  # without label maps, or torn: reported when it is evaluated
            test = build_dataset(replace(config, classes=None), "test")
    assert test is None or isinstance(test, PairedDataset)
    return require_valid(parts, test=test, progress=progress, notify=notify)


def _class_pixels(
    train: SegmentationDataset, folder: Path | None, counted: Pixels | None
) -> tuple[int, ...]:
    """Count the labelled pixels of each class, or read what this run has counted before."""
    if folder is not None:
        # not there, torn or foreign: counted again
        with suppress(OSError, ValueError, KeyError, TypeError):
            pixels = json.loads((folder / PIXELS).read_text(encoding="utf-8"))["pixels"]
            classes = pixels if train.classes is None else train.classes
            if len(pixels) == len(classes) and all(type(count) is int for count in pixels):
                return tuple(pixels)
    return count_pixels(train, training=True) if counted is None else counted[0]


def cached(dataset: SegmentationDataset, run: RunConfig, folder: Path | None) -> Samples:
    """Cache decoded images where the run asks for it."""
    if run.data.cache == "ram":
        return RamCache(dataset, room=available_memory(torch.device("cpu")))
    if run.data.cache != "disk":
        return dataset
    if run.data.cache_dir is not None:
        return DiskCache(dataset, run.data.cache_dir)
    if (shared := user_cache()) is not None:
        return DiskCache(dataset, shared / "decoded", most=DECODED_BYTES)
    return dataset if folder is None else DiskCache(dataset, folder / "cache")


def can_plan(run: RunConfig, examples: TrainingDataset, device: str) -> bool:
    """Whether the device augments, wholly or in part; UserError where it should and cannot."""
    wanted = run.machine.augment
    if wanted == "loader" or (wanted == "auto" and device != "cuda"):
        return False
    problem = ""
    if examples.mixtures:
        problem = "cutmix and classmix are the loaders'"
    elif not split_chain(examples.transforms)[1]:
        problem = "nothing of this run's augmentation is the device's"
    if problem and wanted == "device":
        raise UserError("--machine.augment", f"device, but {problem}", "give auto")
    return not problem


def training_loader(run: RunConfig, examples: TrainingDataset, trainer: Trainer) -> DataLoader[Any]:
    """Load augmented batches in the order of (seed, epoch)."""
    batches = EpochBatchSampler(
        len(examples), run.training.batch_size, seed=run.training.seed, state=_position(trainer)
    )
    if isinstance(shards := getattr(examples.samples, "dataset", examples.samples), ShardDataset):
        batches.shards, batches.buffer = shards.shard_numbers, run.data.shuffle_buffer
    return DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=batches,
        collate_fn=collate_planned if examples.plans else collate,
        **loader_options(run.machine),
    )


def evaluation_loader(
    samples: Samples, machine: MachineConfig, trainer: Trainer
) -> DataLoader[Any]:
    """Load images one by one, each in one process only."""
    images = EvaluationDataset(samples)
    return DataLoader(
        images,  # type: ignore[arg-type]
        batch_size=None,
        sampler=EvaluationSampler(len(images), state=_position(trainer)),
        **loader_options(machine),
    )


def _position(trainer: Trainer) -> Callable[[], SamplerState]:
    """The position of this process in the run, called when an epoch starts.

    `processed` and not `current_epoch`: right after a checkpoint is loaded only the former knows.
    """

    def position() -> SamplerState:
        loop = trainer.fit_loop
        epoch: int = loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        # saved within an epoch: its counters are loaded before the first batch is
        within = loop.epoch_loop.batch_progress.current
        done: int = within.processed if loop.restarting else 0  # type: ignore[attr-defined]
        return SamplerState(epoch, trainer.global_rank, trainer.world_size, done)

    return position


def loader_options(machine: MachineConfig) -> dict[str, Any]:
    """How a training's loaders work: how many processes, which end with it alone."""
    workers = machine.workers
    if workers is None:
        workers = min(8, max(0, usable_cores() // machine.devices - 1))
    # a fork server (Python's own choice from 3.14 on) would die of a signal to the whole group,
    # and its workers with it; without one, each worker ignores such signals by itself
    forked = workers > 0 and sys.platform == "linux"
    return {
        "num_workers": workers,
        "multiprocessing_context": "fork" if forked else None,
        "worker_init_fn": ignore_signals,
        "persistent_workers": workers > 0,
        "pin_memory": torch.cuda.is_available() and machine.device in ("auto", "cuda"),
    }
