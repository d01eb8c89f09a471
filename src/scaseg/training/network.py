"""The network that a run starts with: built from the seed, its backbone loaded, its head scaled."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from scaseg.config.model import ModelConfig
from scaseg.config.run import RunConfig
from scaseg.data.loading import TrainingDataset
from scaseg.data.sample import collate
from scaseg.models.build import build_model, check_model
from scaseg.models.pretrained import check_source, load_pretrained
from scaseg.models.segmenter import Segmenter
from scaseg.registry import BACKBONES
from scaseg.training.calibration import calibrate
from scaseg.training.data import RunData
from scaseg.training.trainer import WorkError

CALIBRATION_IMAGES = 4


def check_network(run: RunConfig, *, is_fresh: bool = True) -> None:
    """Refuse what cannot be built before the data are looked at, which may take minutes."""
    try:
        check_model(_model_config(run, ("any",)))
    except ValueError as fault:
        raise ValueError(f"model.{fault}") from fault
    if is_fresh and run.model.backbone_weights is not None:
        check_source(run.model.backbone, run.model.backbone_weights)


def _model_config(run: RunConfig, classes: tuple[str, ...], **more: Any) -> ModelConfig:
    backbone = BACKBONES.choose(run.model.backbone)
    return ModelConfig(
        classes=classes,
        backbone=run.model.backbone,
        context=run.model.context,
        head=backbone.usual_head if run.model.head == "auto" else run.model.head,
        context_options=run.model.context_options,
        fit=run.augment.fit,
        mean=backbone.mean,
        std=backbone.std,
        **more,
    )


def build_network(
    run: RunConfig, data: RunData, say: Callable[[str], None], *, is_fresh: bool = True
) -> tuple[Segmenter, bool]:
    """Build the network from the seed and load what it starts from; say if its head is fresh.

    is_fresh=False: its weights come from a training state, and nothing else is loaded.
    """
    palette = run.model.palette if run.model.palette is not None else data.train.palette
    try:
        config = _model_config(run, data.classes, palette=palette, training={"recipe": asdict(run)})
        torch.manual_seed(run.training.seed)
        model = build_model(config)
    except ValueError as fault:
        raise ValueError(f"model.{fault}") from fault
    if not is_fresh:
        return model, False
    source = run.model.backbone_weights
    if source is None:
        if BACKBONES[run.model.backbone].hub is not None:
            say("the backbone starts from random weights; --backbone-weights imagenet gives more")
        return model, True
    try:
        loaded = load_pretrained(model, run.model.backbone, source)
    except OSError as fault:
        raise ValueError(str(fault)) from fault
    in_head = [name for name in loaded if name.startswith("head.")]
    said = f" and {', '.join(in_head)}" if in_head else "; the head starts fresh"
    say(f"loaded from {source}: {len(loaded) - len(in_head)} layers of {run.model.backbone}{said}")
    return model, not in_head


def calibrate_head(model: Segmenter, examples: TrainingDataset, device: str) -> None:
    """Show the head a few training images, spread over the data, where it will train."""
    count = min(len(examples), CALIBRATION_IMAGES)
    chosen = [index * len(examples) // count for index in range(count)]
    # each process on the device that it will train on
    model.to(
        torch.device(device, int(os.environ.get("LOCAL_RANK", 0))) if device == "cuda" else device
    )
    try:
        calibrate(model, collate([examples[0, index] for index in chosen]))
    except (MemoryError, RuntimeError) as fault:  # torch's own word for too little memory
        said = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise WorkError(f"a first look at the training images: {said}; try smaller ones") from fault


def has_frozen_norms(run: RunConfig) -> bool:
    """Statistics of small batches are poor: those of a pretrained backbone are kept."""
    if run.training.batch_norm == "auto":
        return run.model.backbone_weights is not None
    return run.training.batch_norm == "frozen"
