"""A model's classes and the labels of a dataset: how they are read, and whether they agree."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from scaseg.config.run import DataConfig
from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG
from scaseg.models.segmenter import Segmenter

MOST_SETTINGS = 300  # characters of settings in a message
MOST_NAMES = 12


def data_config(model: Segmenter, root: str | None = None) -> DataConfig:
    """Return how the labels of a model's training were read, for data at `root` (None: there)."""
    with located(f"--model: {CONFIG}"):
        config = model.config.trained_on()
    return replace(config, root=root if root is not None else config.root)


def trained_on(model: Segmenter) -> str | None:
    """Return the folder of the images that a model was trained on; None where it is unknown."""
    config = data_config(model)
    return "generated scenes" if config.is_generated else config.root  # the former: no folder


def unnamed_classes(model: Segmenter, dataset: SegmentationDataset) -> str | None:
    """Return a note on which classes the labels of data that name none are taken for.

    None where that is no news: the data name some, are those of the training, or the model's own
    classes have only numbers.
    """
    root, trained, own = dataset.root, trained_on(model), model.config.classes
    if (
        dataset.classes is not None
        or root is None
        or (trained is not None and Path(trained).absolute() == root.absolute())
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
        plain = (  # the values on disk are the classes, so that a label map can name them
            isinstance(dataset, PairedDataset)
            and not dataset.label_map
            and not dataset.reduce_zero_label
            and dataset.ignore_index == IGNORE
        )
        raise UserError(
            str(dataset.root),
            f"class {index} is {other!r}, the model's is {mine!r} ({counts})",
            "give data with the model's classes in their order, or map theirs: "
            f"{_mapping(theirs, own, plain=plain)}",
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


def _mapping(theirs: tuple[str, ...], own: tuple[str, ...], *, plain: bool = True) -> str:
    r"""Return settings that read other data as a model's classes: those of equal names at least.

    >>> _mapping(("road", "car"), ("sky", "road"))
    '--data.classes \'["sky", "road"]\' --data.label_map \'{0: 1, 1: 255}\' (255: does not count)'
    """
    places = {name.casefold(): index for index, name in enumerate(own)}
    values = str({i: places.get(name.casefold(), IGNORE) for i, name in enumerate(theirs)})
    classes = json.dumps(own, ensure_ascii=False)
    if len(classes) + len(values) > MOST_SETTINGS:
        classes, plain = "[...]", False
    if not plain:
        values = "{value: class, ...}"
    return f"--data.classes '{classes}' --data.label_map '{values}' ({IGNORE}: does not count)"
