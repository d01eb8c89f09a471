"""Data sets and transforms, from their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from scaseg.config.run import AugmentConfig, DataConfig
from scaseg.data import transforms
from scaseg.data.datasets.base import LabelledImages
from scaseg.data.datasets.coco_stuff import CocoStuff10k, CocoStuff164k
from scaseg.data.datasets.context_scenes import (
    ContextScenes,
    ContextScenesGlobal,
    ContextScenesSelective,
)
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.datasets.pascal_context import PascalContext
from scaseg.data.datasets.sift_flow import SiftFlow, SiftFlowGeo

DATASETS: dict[str, type[PairedDataset]] = {
    "folder": FolderDataset,
    "sift_flow": SiftFlow,
    "sift_flow_geo": SiftFlowGeo,
    "pascal_context": PascalContext,
    "coco_stuff_10k": CocoStuff10k,
    "coco_stuff_164k": CocoStuff164k,
}
GENERATED: dict[str, type[ContextScenes]] = {
    "context_scenes_global": ContextScenesGlobal,
    "context_scenes_selective": ContextScenesSelective,
}


def build_dataset(
    config: DataConfig, split: str | None, classes: Sequence[str] | None = None
) -> LabelledImages:
    """Open one split of the data; `classes` where nothing else names them."""
    if config.is_generated:
        _check_generated(config)
        return GENERATED[config.name](split)
    if split is not None and (".." in PurePath(split).parts or PurePath(split).is_absolute()):
        raise ValueError(f"the split {split!r}: leads out of the data; give the name of a list")
    if config.root is None:
        raise ValueError("data.root: nothing; say where the data are (--data DIR)")
    if config.name not in DATASETS:
        raise ValueError(
            f"data.name: {config.name!r}; give one of {', '.join([*DATASETS, *GENERATED])}"
        )
    return DATASETS[config.name](
        config.root,
        split,
        classes=config.classes if config.classes is not None else classes,
        label_map=config.label_map,
        reduce_zero_label=config.reduce_zero_label,
        ignore_index=config.ignore_index,
        max_pixels=config.max_pixels,
    )


def _check_generated(config: DataConfig) -> None:
    """Refuse settings that only files can have."""
    default = DataConfig()
    for key in ("root", "classes", "label_map", "reduce_zero_label", "ignore_index"):
        if getattr(config, key) != getattr(default, key):
            option = "--data" if key == "root" else f"data.{key}"
            raise ValueError(
                f"{option}: {getattr(config, key)!r}, but {config.name} is generated; leave it out"
            )


def build_transforms(config: AugmentConfig) -> list[transforms.Transform]:
    """What happens to a training sample; all batches have one size where fit or crop says which."""
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
