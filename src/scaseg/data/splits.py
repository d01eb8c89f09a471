"""The images that a run trains, validates and tests on: by lists, held out, or by folds.

With folds (cross-validation) every image is tested once, by a network that never saw it or a copy
of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TypeVar

from scaseg.config.run import DataConfig
from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.errors import UserError
from scaseg.io.paths import on_disk
from scaseg.io.remote import is_remote
from scaseg.registry import DATASETS

FILE_SETTINGS = ("classes", "label_map", "reduce_zero_label", "ignore_index", "bands")
Images = TypeVar("Images", bound=SegmentationDataset)


def build_dataset(
    config: DataConfig, split: str | None, classes: Sequence[str] | None = None
) -> SegmentationDataset:
    """Open one split of the data; `classes` are used if neither config nor files name them."""
    dataset: Callable[..., SegmentationDataset] = DATASETS.choose(config.name)
    if config.is_generated:
        for key in ("root", *FILE_SETTINGS):
            if (value := getattr(config, key)) != getattr(DataConfig(), key):
                option = "--data" if key == "root" else f"data.{key}"
                problem = f"{value!r}, but {config.name} is generated"
                raise UserError(option, problem, "leave it out")
        return dataset(split)
    if split is not None and (".." in PurePath(split).parts or PurePath(split).is_absolute()):
        raise UserError("split", f"{split!r} leads out of the data", "give the name of a list")
    settings = {key: getattr(config, key) for key in (*FILE_SETTINGS, "max_pixels")}
    if config.name == "shards":
        settings |= {key: getattr(config, key) for key in ("fields", "cache_dir", "shard_cache")}
    opened = dataset(_root(config), split, **settings)
    if opened.classes is None and classes is not None:
        opened.classes = tuple(classes)
    return opened


def split_names(config: DataConfig) -> tuple[str, ...]:
    """Return the names of the splits that the data have."""
    splits: tuple[str, ...] = DATASETS[config.name].splits(_root(config))
    return splits


def _root(config: DataConfig) -> str | Path | None:
    if config.is_generated:
        return None
    if config.root is None:
        raise UserError("--data", "nothing", "give the folder of the data")
    if is_remote(config.root):
        if config.name != "shards":
            remedy = "read shards there (--data.name shards), or fetch it"
            raise UserError("--data", f"{config.root} is not on this machine", remedy)
        return config.root
    if not Path(config.root).is_dir():
        raise UserError("--data", f"{config.root}: no such folder", "give the folder of the data")
    return Path(config.root)


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
    if config.val is not None and (config.val != "auto" or "val" in splits):
        name = "val" if config.val == "auto" else config.val
        return train, build_dataset(config, name, train.classes), f"the split {name}"
    return hold_out(train, config)


def hold_out(
    train: SegmentationDataset, config: DataConfig
) -> tuple[SegmentationDataset, SegmentationDataset | None, str]:
    """Divide training images into those that train and those that validate; say how."""
    held = [] if config.val is None else held_out(len(train), config.hold_out)
    if not held:
        return train, None, "no validation"
    kept = sorted(set(range(len(train))) - set(held))
    description = f"{len(held)} of {len(train)} training images held out"
    return train.subset(kept), train.subset(held), description


def require_held_out(config: DataConfig, typed: Container[str]) -> None:
    """Refuse data.hold_out where it was typed and the data have a split to validate on."""
    auto = config.val == "auto" and config.folds is None
    if "data.hold_out" in typed and auto and "val" in split_names(config):
        remedy = "leave it out, or move the list away"
        raise UserError("--data.hold_out", "has no effect: there is a val list", remedy)


def evaluation_split(
    config: DataConfig, split: str | None, *, trained_on: str | None = None
) -> tuple[SegmentationDataset, str]:
    """Open what a model is evaluated on and describe it: the given split, else test, else val.

    Where a folder has neither: the images that training held out if the model was trained on it
    (`trained_on`, None: it was), else all of them.
    """
    if config.folds is not None and split != "all":
        return _fold_split(config, split)
    splits, root = split_names(config), _root(config)
    own = root is None or trained_on is None or str(trained_on) == str(root)
    own = own or (isinstance(root, Path) and Path(str(trained_on)).absolute() == root.absolute())
    if split == "all" or (split is None and not splits and not own):
        return build_dataset(config, None), "all images"
    if split is None:
        split = next((name for name in ("test", "val") if name in splits), None)
    held = own and config.val == "auto" and "val" not in splits
    if split is not None and not (held and split in ("val", config.train)):
        opened = build_dataset(config, split)
        return opened, f"the split {split}" + _shared_with_val(config, split, opened)
    train, val, description = training_splits(config)
    if split == config.train:
        return train, "the training images"
    if val is None:
        return build_dataset(config, None), "all images, those of the training among them"
    return val, description


def _shared_with_val(config: DataConfig, split: str, opened: SegmentationDataset) -> str:
    """Say how many test images training validates on: a score on those is no test score."""
    shared = 0
    if split == "test" and not config.is_generated and "val" in split_names(config):
        with suppress(UserError):  # what is wrong with val is said where it is used
            shared = len(set(opened.names) & set(build_dataset(config, "val").names))
    worth = "of them in val too: as optimistic as a validation score"
    return f", {shared} {worth}" if shared else ""


def _fold_split(config: DataConfig, split: str | None) -> tuple[SegmentationDataset, str]:
    """Open what a model of a fold is evaluated on: by default that fold's test images.

    The fold holds for data elsewhere too: they may be the same, moved, and a model must not be
    evaluated on images that it was trained on.
    """
    parts = dict(zip(("train", "val", "test"), _open_fold(config), strict=True))
    before = {"train": "the training images of ", "val": "the images held out in ", "test": ""}
    fold, found = f"fold {config.fold} of {config.folds}", parts.get(split or "test")
    if found is None:
        raise UserError("--split", f"{split!r} of {fold}", "give train, test or all")
    return found, before[split or "test"] + fold


def _open_fold(
    config: DataConfig,
) -> tuple[SegmentationDataset, SegmentationDataset | None, SegmentationDataset]:
    """Open what a fold trains, validates and tests on: the listed images where there are lists."""
    assert config.folds is not None
    if config.name == "shards":
        raise UserError("data.folds", "given with shards", "give a folder: their copies are known")
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
    train, val, test = split_fold(everything, config.folds, config.fold, share)
    held = everything.subset(val) if val else None
    return everything.subset(train[: config.limit]), held, everything.subset(test)


def merge_splits(parts: Sequence[Images]) -> Images:
    """Return all images of several splits, each once, in the order of their names."""
    whole = parts[0].subset(range(len(parts[0])))
    if isinstance(whole, PairedDataset):
        pairs = {pair.image: pair for part in parts for pair in part.pairs}  # type: ignore[attr-defined]
        whole.pairs = sorted(pairs.values(), key=lambda pair: (pair.name, pair.image))
    return whole


def split_fold(
    dataset: SegmentationDataset, folds: int, fold: int, hold_out: float
) -> tuple[list[int], list[int], list[int]]:
    """Return the indices of the images that train, validate and test in one fold.

    Fold number `fold` is tested; the rest trains, less a share held out for validation.
    """
    groups = duplicate_groups(dataset)
    numbers = assign_folds(dataset.names, groups, folds)
    test = [index for index, number in enumerate(numbers) if number == fold]
    rest = [index for index, number in enumerate(numbers) if number != fold]
    held = {groups[rest[place]] for place in held_out(len(rest), hold_out)}
    val = [index for index in rest if groups[index] in held]
    return [index for index in rest if groups[index] not in held], val, test


def duplicate_groups(dataset: SegmentationDataset) -> list[str]:
    """Return a key for each image, equal for files that are the same byte for byte."""
    if not isinstance(dataset, PairedDataset):
        return [dataset.fingerprint(index) for index in range(len(dataset))]
    keys = [str(pair.image) for pair in dataset.pairs]
    sizes = [on_disk(pair.image).stat().st_size for pair in dataset.pairs]
    shared = Counter(sizes)
    inside = any(on_disk(pair.image) != pair.image for pair in dataset.pairs)  # of other files
    for index, pair in enumerate(dataset.pairs):
        # a file that is alone in its size has no copy: not read
        if inside or shared[sizes[index]] > 1:
            keys[index] = hashlib.sha256(dataset.read_photograph(pair.image)).hexdigest()
    return keys


def assign_folds(names: Sequence[str], groups: Sequence[str], folds: int) -> list[int]:
    """Return the fold of each image, 1, 2, ...: the same on every machine, sizes nearly equal.

    Images are taken in the order of their names' SHA-256, as good as random, and each goes to the
    smallest fold. Those of one group (copies of one photograph) stay together, and come first.

    >>> assign_folds(["a", "b", "c", "d"], ["x", "y", "x", "z"], 2)
    [1, 2, 1, 2]
    """
    members: dict[str, list[tuple[str, int]]] = {}
    for index, (name, key) in enumerate(zip(names, groups, strict=True)):
        digest = hashlib.sha256(name.encode()).hexdigest()
        members.setdefault(key, []).append((digest, index))
    if len(members) < folds:
        problem = f"{folds} folds of {len(members)} different photographs"
        raise UserError("data.folds", problem, "give fewer folds")
    sizes, found = [0] * folds, [0] * len(names)
    for group in sorted(members.values(), key=lambda group: (-len(group), min(group)[0])):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(group)
        for _, index in group:
            found[index] = smallest + 1
    return found


def held_out(count: int, share: float) -> list[int]:
    """Choose images for validation, evenly spread; at least one stays on either side.

    >>> held_out(20, 0.1)
    [5, 15]
    """
    wanted = min(count - 1, max(1, round(count * share))) if share and count > 1 else 0
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]
