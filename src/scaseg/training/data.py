"""The data of a run: its splits, checked before any epoch starts, its classes and their weights."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from scaseg.config.run import DataConfig, RunConfig, TrainingConfig
from scaseg.data.build import build_dataset
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.folds import held_out
from scaseg.data.validation.check import quick_check
from scaseg.data.validation.require import Part, Pixels, require_sound
from scaseg.data.validation.scan import scan_labels
from scaseg.losses import inverse_class_weights, paper_class_weights
from scaseg.progress import Progress, progress_bar
from scaseg.registry import DATASETS
from scaseg.training.folds import fold_split, open_fold
from scaseg.training.run_folder import PIXELS


@dataclass(frozen=True)
class RunData:
    """What is trained and validated on; `validation` says where the latter comes from."""

    train: SegmentationDataset
    val: SegmentationDataset | None
    validation: str
    classes: tuple[str, ...]
    pixels: tuple[int, ...] | None  # of each class in train; None where nobody needs them


def open_data(run: RunConfig, folder: Path | None, *, quiet: bool = True) -> RunData:
    """Open the splits of a run and refuse what cannot be trained on; ValueError says why.

    quiet=False shows a progress bar: every file is read, unless that has been done before.
    """
    config = run.data
    train, val, validation = open_splits(config)
    both = set(train.names) & set(val.names) if val else set()
    if both and config.val != config.train:
        raise ValueError(
            f"{config.root or config.name}: {min(both)!r} is in {config.train} and in validation, "
            f"{len(both)} in all; a photograph that was trained on says nothing, take it out of "
            "one list"
        )
    counted: Pixels | None = None
    if isinstance(train, PairedDataset):
        with progress_bar("checking the data", shown=not quiet) as progress:
            counted = _require_sound(config, train, val, progress)
    pixels = None
    if train.classes is None or run.training.class_weights != "none":
        pixels = _class_pixels(train, folder, counted)
    classes = train.classes
    if classes is None:
        assert pixels is not None
        count = len(pixels)
        if val is not None:
            of_val = counted[-1] if counted is not None else scan_labels(val).pixels
            count = max(count, len(of_val))
        classes = tuple(f"class {index}" for index in range(count))
        pixels = (*pixels, *(0,) * (count - len(pixels)))
        train.classes = classes
        if val is not None:
            val.classes = classes
    return RunData(train, val, validation, classes, pixels)


def _require_sound(
    config: DataConfig, train: PairedDataset, val: SegmentationDataset | None, progress: Progress
) -> Pixels | None:
    """Refuse data with errors; the labelled pixels of train, then of val, where all were read."""
    parts = [Part(config.train, train)]
    if isinstance(val, PairedDataset):
        # held out, or the same list on purpose: a photograph that is in both is no leak of lists
        name = "val" if config.val == "auto" and "val" in _splits(config) else config.val
        held = config.folds is not None or name in ("auto", None)
        parts.append(Part(config.train if held or name is None else name, val))
    if config.check == "quick":
        everything = train.subset(range(len(train)))
        for part in parts[1:]:
            everything.pairs += part.data.pairs  # what all have in common shows in all
        quick_check(everything)
        return None
    return require_sound(parts, apart_from=_test_images(config), progress=progress)


def _test_images(config: DataConfig) -> PairedDataset | None:
    """What will be tested on later, where the lists have their usual names."""
    if config.folds is not None or config.train != "train" or "test" not in _splits(config):
        return None
    if config.val == "test":
        return None
    try:
        test = build_dataset(replace(config, classes=None), "test")
    except ValueError:  # without label maps, or torn: told when it is judged
        return None
    assert isinstance(test, PairedDataset)
    return test


def open_splits(config: DataConfig) -> tuple[SegmentationDataset, SegmentationDataset | None, str]:
    """Open the training and validation images; where there is no val split, hold some out."""
    splits = _splits(config)
    if config.folds is not None:
        train, val, _ = open_fold(config, splits)
        beside = "no validation" if val is None else f"{len(val)} more held out for validation"
        return train, val, f"fold {config.fold} of {config.folds}, {beside}"
    whole = not splits and config.train == "train"  # a folder without lists
    train = build_dataset(config, None if whole else config.train)
    if config.limit is not None:
        train = train.subset(range(min(config.limit, len(train))))
    if config.val is None:
        return train, None, "no validation"
    if config.val != "auto" or "val" in splits:
        name = "val" if config.val == "auto" else config.val
        return train, build_dataset(config, name, train.classes), f"the split {name}"
    held = held_out(len(train), config.hold_out)
    if not held:
        return train, None, "no validation"
    kept = sorted(set(range(len(train))) - set(held))
    said = f"{len(held)} of {len(train)} training images held out"
    return train.subset(kept), train.subset(held), said


def evaluation_split(
    config: DataConfig, wanted: str | None, *, trained_on: str | None = None
) -> tuple[SegmentationDataset, str]:
    """Open what a model is judged on: the split that was asked for, else test, else val.

    Where a folder has neither: the images that training held out if the model was trained on it
    (`trained_on`, None: it was), else all of them.
    """
    splits = _splits(config)
    if config.folds is not None and wanted != "all":
        return fold_split(config, wanted, splits)
    own = (
        config.is_generated
        or trained_on is None
        or Path(trained_on).absolute() == _root(config).absolute()
    )
    if wanted == "all" or (wanted is None and not splits and not own):
        return build_dataset(config, None), "all images"
    if wanted is None:
        wanted = next((name for name in ("test", "val") if name in splits), None)
    held = own and config.val == "auto" and "val" not in splits
    if wanted is not None and not (held and wanted in ("val", config.train)):
        return build_dataset(config, wanted), f"the split {wanted}"
    train, val, said = open_splits(config)
    if wanted == config.train:
        return train, "the training images"
    if val is None:
        return build_dataset(config, None), "all images, those of the training among them"
    return val, said


def class_weights(
    config: TrainingConfig, pixels: tuple[int, ...] | None
) -> tuple[float, ...] | None:
    """What classes weigh in the loss; None: all the same."""
    if config.class_weights == "none" or pixels is None:
        return None
    if config.class_weights == "inverse":
        weights = inverse_class_weights(pixels)
    else:
        weights = paper_class_weights(pixels).weights
    if config.class_weight_range is not None:
        low, high = config.class_weight_range
        weights = tuple(min(max(weight, low), high) if weight else 0.0 for weight in weights)
    return weights


def _splits(config: DataConfig) -> tuple[str, ...]:
    root = None if config.is_generated else _root(config)
    splits: tuple[str, ...] = DATASETS[config.name].splits(root)
    return splits


def _root(config: DataConfig) -> Path:
    if config.root is None:
        raise ValueError("--data: nothing; say where the data are")
    root = Path(config.root)
    if not root.is_dir():
        raise ValueError(f"--data: {root}: no such folder; say where the data are")
    return root


def _class_pixels(
    train: SegmentationDataset, folder: Path | None, counted: Pixels | None
) -> tuple[int, ...]:
    """Count the labelled pixels of each class, or read what this run has counted before."""
    known = None if folder is None else folder / PIXELS
    if known is not None and known.is_file():
        with suppress(ValueError, KeyError, TypeError):  # torn or foreign: counted again
            pixels = json.loads(known.read_text(encoding="utf-8"))["pixels"]
            classes = len(train.classes) if train.classes is not None else len(pixels)
            if len(pixels) == classes and all(type(count) is int for count in pixels):
                return tuple(pixels)
    if counted is not None:
        return counted[0]
    scan = scan_labels(train)
    if scan.problems:
        rest = len(scan.problems) - 1
        more = f" (and {rest} more problems; `scaseg data check` lists them)" if rest else ""
        raise ValueError(f"{scan.problems[0]}{more}")
    return tuple(scan.pixels)
