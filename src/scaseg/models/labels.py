"""A model's classes and the labels of a dataset: how they are read, and whether they agree."""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from scaseg.config.run import DataConfig
from scaseg.data.class_names import match_classes
from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG
from scaseg.models.segmenter import Segmenter
from scaseg.registry import DATASETS

MOST_NAMES = 12  # in a message


def data_config(model: Segmenter, root: str | None = None) -> DataConfig:
    """Return how the labels of a model's training were read, for data at `root` (None: there).

    Class names that the training was given hold for other data too, unless files of these name the
    same classes in another order: then `check_classes` is to see that.
    """
    with located(f"--model: {CONFIG}"):
        config = model.config.trained_on()
    if root is None or _is_there(config, Path(root)):
        return replace(config, root=root or config.root)
    kind = DATASETS.choose(config.name)
    if config.classes is not None and not config.label_map and issubclass(kind, PairedDataset):
        with suppress(UserError):  # names that cannot be read contradict nothing
            found = match_classes(kind.own_classes(Path(root)) or (), config.classes)
            if any(index not in (None, place) for place, index in enumerate(found)):
                config = replace(config, classes=None)
    return replace(config, root=root)


def reading_note(model: Segmenter, config: DataConfig) -> str | None:
    """Return a note on settings of the training by which labels of other data are read too."""
    trained, usual = data_config(model), DataConfig()
    if config.root is None or _is_there(trained, Path(config.root)):
        return None
    kept = [
        f"--data.{key} {shlex.quote(str(value).lower())}"
        for key in ("label_map", "reduce_zero_label", "ignore_index")
        if (value := getattr(config, key)) == getattr(trained, key) != getattr(usual, key)
    ]
    return f"labels are read as in the model's training: {' '.join(kept)}" if kept else None


def _is_there(config: DataConfig, root: Path) -> bool:
    """Whether this is the folder of the training."""
    return config.root is not None and Path(config.root).absolute() == root.absolute()


def trained_on(model: Segmenter) -> str | None:
    """Return the folder of the images that a model was trained on; None where it is unknown."""
    config = data_config(model)
    return "generated scenes" if config.is_generated else config.root  # the former: no folder


def unnamed_classes(model: Segmenter, dataset: SegmentationDataset) -> str | None:
    """Return a note on which classes the labels of data that name none are taken for.

    None where that is no news: the data name some, are those of the training, or the model's own
    classes have only numbers.
    """
    root, own = dataset.root, model.config.classes
    if (
        dataset.classes is not None
        or root is None
        or _is_there(data_config(model), root)
        or own == tuple(f"class {index}" for index in range(len(own)))
    ):
        return None
    names = ", ".join(own if len(own) <= MOST_NAMES else (*own[:MOST_NAMES], "..."))
    return f"{root} names no classes: its labels 0 to {len(own) - 1} are taken for {names}"


def check_classes(model: Segmenter, dataset: SegmentationDataset) -> None:
    """Refuse data whose classes are others, or in another order: every number would be wrong.

    So are bands that the model does not take.
    """
    _check_bands(model, dataset)
    own, theirs = model.config.classes, dataset.classes
    if theirs is None:
        dataset.classes = own
    elif theirs != own:
        pairs = enumerate(zip_longest(own, theirs, fillvalue=""))
        index, (mine, other) = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
        counts = f"{len(theirs)} and {len(own)} classes"
        mapped = ""
        if isinstance(dataset, PairedDataset):  # a map needs values on disk
            mapped = f", or map theirs: {_mapping(dataset, own)}"
        raise UserError(
            str(dataset.root or "data"),
            f"class {index} is {other!r}, the model's is {mine!r} ({counts})",
            f"give data with the model's classes in their order{mapped}",
        )


def _check_bands(model: Segmenter, dataset: SegmentationDataset) -> None:
    """Refuse data with other bands than the model takes; files must hold its type."""
    config = model.config
    if dataset.bands is not None:
        dataset.dtype = dataset.dtype or config.dtype
    own, theirs = config.in_channels, dataset.bands or 3
    if theirs != own or (dataset.dtype or "uint8") != config.dtype:
        kind = "photographs" if dataset.bands is None else f"{theirs} bands of {dataset.dtype}"
        remedy = f"the model takes {own} of {config.dtype}: --data.bands {own}"
        raise UserError(str(dataset.root or "data"), kind, remedy)


def _mapping(dataset: PairedDataset, own: tuple[str, ...]) -> str:
    """Return settings that read other data as a model's classes by name, ready to paste."""
    theirs = dataset.classes or ()
    found = match_classes(theirs, own)
    stored = {*dataset.label_map, dataset.ignore_index, *range(len(theirs) + 1)} - {IGNORE}
    values = np.array(sorted(stored), np.int32)
    classes = dict(zip(values.tolist(), dataset.to_classes(values, Path()), strict=True))
    label_map = {
        value: IGNORE if label == IGNORE or found[label] is None else found[label]
        for value, label in classes.items()
        if label == IGNORE or 0 <= label < len(theirs)
    }
    settings = {"classes": json.dumps(own, ensure_ascii=False), "label_map": str(label_map)}
    for key in ("reduce_zero_label", "ignore_index"):  # the map says all
        if getattr(dataset, key) != getattr(DataConfig(), key):
            settings[key] = json.dumps(getattr(DataConfig(), key))
    options = " ".join(f"--data.{key} {shlex.quote(value)}" for key, value in settings.items())
    left = [name for name, index in zip(theirs, found, strict=True) if index is None]
    more = [f"and {len(left) - MOST_NAMES} more"] if len(left) > MOST_NAMES else []
    return options + (
        f" ({IGNORE} leaves out {', '.join(left[:MOST_NAMES] + more)})" if left else ""
    )
