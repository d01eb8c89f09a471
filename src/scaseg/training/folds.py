"""The data of one fold of a cross-validation: a run's recipe says which."""

from __future__ import annotations

from collections.abc import Sequence

from scaseg.config.run import DataConfig
from scaseg.data.build import build_dataset
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.folds import merge_splits, split_fold

Opened = tuple[SegmentationDataset, SegmentationDataset | None, SegmentationDataset]


def open_fold(config: DataConfig, splits: Sequence[str]) -> Opened:
    """Open what a fold trains, validates and is tested on; of the listed images where lists are."""
    assert config.folds is not None
    if config.fold is None:
        raise ValueError(
            f"data.fold: nothing, but data.folds is {config.folds}; say which fold is tested, 1 to "
            f"{config.folds} (compare takes them all)"
        )
    if config.val not in ("auto", None) or config.train != "train":
        key, value = ("val", config.val) if config.train == "train" else ("train", config.train)
        fits = "auto or null" if key == "val" else "train"
        raise ValueError(
            f"data.{key}: {value!r}, but with data.folds all images take part; give {fits}"
        )
    whole = config.is_generated or not splits
    everything = merge_splits(
        [build_dataset(config, name) for name in ([None] if whole else splits)]
    )
    share = 0.0 if config.val is None else config.hold_out
    parts = split_fold(everything, config.folds, config.fold, share)
    train = everything.subset(parts.train[: config.limit])
    val = everything.subset(parts.val) if parts.val else None
    return train, val, everything.subset(parts.test)


def fold_split(
    config: DataConfig, wanted: str | None, splits: Sequence[str]
) -> tuple[SegmentationDataset, str]:
    """Open what a model of a fold is judged on: that fold's test images if nothing else is asked.

    The fold holds for data elsewhere too: they may be the same, moved, and a photograph that was
    trained on must not be judged.
    """
    train, val, test = open_fold(config, splits)
    said = f"fold {config.fold} of {config.folds}"
    if wanted in (None, "test"):
        return test, said
    if wanted == "train":
        return train, f"the training images of {said}"
    if wanted == "val" and val is not None:
        return val, f"the images held out in {said}"
    raise ValueError(f"--split: {wanted!r} of {said}; give train, test or all")
