"""The images that a run trains, validates and tests on: by lists, held out, or by folds."""

from __future__ import annotations

from pathlib import Path

from scaseg.config.run import DataConfig
from scaseg.data.build import build_dataset
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.folds import held_out, merge_splits, split_fold
from scaseg.errors import UserError
from scaseg.registry import DATASETS


def training_splits(
    config: DataConfig,
) -> tuple[SegmentationDataset, SegmentationDataset | None, str]:
    """Open training and validation images; without a val split, some images are held out."""
    splits = split_names(config)
    if config.folds is not None:
        train, val, _ = _open_fold(config)
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
    description = f"{len(held)} of {len(train)} training images held out"
    return train.subset(kept), train.subset(held), description


def evaluation_split(
    config: DataConfig, split: str | None, *, trained_on: str | None = None
) -> tuple[SegmentationDataset, str]:
    """Open what a model is evaluated on and describe it: the given split, else test, else val.

    Where a folder has neither: the images that training held out if the model was trained on it
    (`trained_on`, None: it was), else all of them.
    """
    if config.folds is not None and split != "all":
        return _fold_split(config, split)
    splits = split_names(config)
    own = (
        config.is_generated
        or trained_on is None
        or Path(trained_on).absolute() == _root(config).absolute()
    )
    if split == "all" or (split is None and not splits and not own):
        return build_dataset(config, None), "all images"
    if split is None:
        split = next((name for name in ("test", "val") if name in splits), None)
    held = own and config.val == "auto" and "val" not in splits
    if split is not None and not (held and split in ("val", config.train)):
        return build_dataset(config, split), f"the split {split}"
    train, val, description = training_splits(config)
    if split == config.train:
        return train, "the training images"
    if val is None:
        return build_dataset(config, None), "all images, those of the training among them"
    return val, description


def _open_fold(
    config: DataConfig,
) -> tuple[SegmentationDataset, SegmentationDataset | None, SegmentationDataset]:
    """Open what a fold trains, validates and tests on: the listed images where there are lists."""
    assert config.folds is not None
    if config.fold is None:
        remedy = f"give the fold to test, 1 to {config.folds} (compare takes them all)"
        raise UserError("data.fold", f"nothing, but data.folds is {config.folds}", remedy)
    takes_all = "but with data.folds all images take part"
    if config.train != "train":
        raise UserError("data.train", f"{config.train!r}, {takes_all}", "give train")
    if config.val not in ("auto", None):
        raise UserError("data.val", f"{config.val!r}, {takes_all}", "give auto or null")
    splits = () if config.is_generated else split_names(config)
    everything = merge_splits([build_dataset(config, name) for name in splits or [None]])
    share = 0.0 if config.val is None else config.hold_out
    parts = split_fold(everything, config.folds, config.fold, share)
    train = everything.subset(parts.train[: config.limit])
    val = everything.subset(parts.val) if parts.val else None
    return train, val, everything.subset(parts.test)


def _fold_split(config: DataConfig, split: str | None) -> tuple[SegmentationDataset, str]:
    """Open what a model of a fold is evaluated on: by default that fold's test images.

    The fold holds for data elsewhere too: they may be the same, moved, and a model must not be
    evaluated on images that it was trained on.
    """
    train, val, test = _open_fold(config)
    fold = f"fold {config.fold} of {config.folds}"
    if split in (None, "test"):
        return test, fold
    if split == "train":
        return train, f"the training images of {fold}"
    if split == "val" and val is not None:
        return val, f"the images held out in {fold}"
    raise UserError("--split", f"{split!r} of {fold}", "give train, test or all")


def split_names(config: DataConfig) -> tuple[str, ...]:
    """Return the names of the splits that the data have."""
    root = None if config.is_generated else _root(config)
    splits: tuple[str, ...] = DATASETS[config.name].splits(root)
    return splits


def _root(config: DataConfig) -> Path:
    if config.root is None:
        raise UserError("--data", "nothing", "give the folder of the data")
    root = Path(config.root)
    if not root.is_dir():
        raise UserError("--data", f"{root}: no such folder", "give the folder of the data")
    return root
