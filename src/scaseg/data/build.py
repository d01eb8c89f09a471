"""Build datasets and transforms from their configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from scaseg.config.run import AugmentConfig, DataConfig
from scaseg.data import transforms
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.errors import UserError
from scaseg.registry import DATASETS, GENERATED_DATASETS

LABEL_SETTINGS = ("classes", "label_map", "reduce_zero_label", "ignore_index")  # of files alone


def build_dataset(
    config: DataConfig, split: str | None, classes: Sequence[str] | None = None
) -> SegmentationDataset:
    """Open one split of the data; `classes` are used if neither config nor files name them."""
    dataset = DATASETS.choose(config.name)
    opened: SegmentationDataset
    if config.name in GENERATED_DATASETS:
        for key in ("root", *LABEL_SETTINGS):
            value = getattr(config, key)
            if value != getattr(DataConfig(), key):
                option = "--data" if key == "root" else f"data.{key}"
                raise UserError(
                    option, f"{value!r}, but {config.name} is generated", "leave it out"
                )
        opened = dataset(split)
        return opened
    if split is not None and (".." in PurePath(split).parts or PurePath(split).is_absolute()):
        raise UserError("split", f"{split!r} leads out of the data", "give the name of a list")
    if config.root is None:
        raise UserError("data.root", "nothing", "say where the data are (--data DIR)")
    settings = {key: getattr(config, key) for key in (*LABEL_SETTINGS, "max_pixels")}
    if config.classes is None:
        settings["classes"] = classes
    opened = dataset(config.root, split, **settings)
    return opened


def build_transforms(config: AugmentConfig) -> list[transforms.Transform]:
    """Return the transforms of a training sample, in the order of the recipe.

    All batches have one size if `fit` or `crop` is set.
    """
    chain: list[transforms.Transform] = []
    if config.flip:
        chain.append(transforms.RandomHorizontalFlip(config.flip))
    if config.brightness or config.contrast or config.saturation:
        jitter = transforms.ColorJitter(config.brightness, config.contrast, config.saturation)
        chain.append(jitter)
    if config.fit is not None:
        chain.append(transforms.ResizeToFit(*config.fit))
    if config.scale is not None:
        chain.append(transforms.RandomResize(*config.scale))
    if config.crop is not None:
        chain.append(transforms.RandomCrop(*config.crop))
    elif config.fit is not None and config.scale is None:
        chain.append(transforms.Pad(*config.fit))
    return chain
