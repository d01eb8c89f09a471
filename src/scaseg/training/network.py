"""The network that a run starts with: built from the seed, backbone loaded, head calibrated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from scaseg.config.model import ModelConfig
from scaseg.config.run import RunConfig
from scaseg.data.loading import TrainingDataset
from scaseg.data.sample import collate
from scaseg.errors import WorkError, located
from scaseg.models.build import build_model, outline_model
from scaseg.models.pretrained import check_source, load_pretrained
from scaseg.models.segmenter import Segmenter, evaluating
from scaseg.registry import BACKBONES
from scaseg.training.data import TrainingData

CALIBRATION_IMAGES = 4
# the sum of all squared outputs of a neuron: 0.7 each where there are 1024, 0.35 where 4096
SQUARES = 512


def check_network(run: RunConfig, *, is_fresh: bool = True) -> None:
    """Refuse what cannot be built before the data are checked, which may take minutes."""
    with located("model", "."):
        outline_model(_model_config(run, ("any",)))
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
    run: RunConfig, data: TrainingData, log: Callable[[str], None], *, is_fresh: bool = True
) -> tuple[Segmenter, bool]:
    """Build the network from the seed and load its backbone; True where the head is fresh.

    is_fresh=False: its weights come from a training state, and nothing else is loaded.
    """
    palette = run.model.palette if run.model.palette is not None else data.train.palette
    with located("model", "."):
        config = _model_config(run, data.classes, palette=palette, training={"recipe": asdict(run)})
        torch.manual_seed(run.training.seed)
        model = build_model(config)
    if not is_fresh:
        return model, False
    source = run.model.backbone_weights
    if source is None:
        if BACKBONES[run.model.backbone].hub is not None:
            log("the backbone starts from random weights; --backbone-weights imagenet gives more")
        return model, True
    with located("model", "."):
        loaded = load_pretrained(model, source)
    in_head = [name for name in loaded if name.startswith("head.")]
    head = f" and {', '.join(in_head)}" if in_head else "; the head starts fresh"
    log(f"loaded from {source}: {len(loaded) - len(in_head)} layers of {run.model.backbone}{head}")
    return model, not in_head


@torch.no_grad()
def calibrate_head(model: Segmenter, examples: TrainingDataset, device: str) -> None:
    """Scale a fresh head's weights, layer by layer, by its outputs on a few training images.

    A head with random weights behind a trained backbone gets features of any size, through windows
    of which much lies beyond the edge of the map. Its outputs then start several times too small,
    and at the paper's rates the first epochs go by without learning. So each layer is scaled once
    (as in Mishkin and Matas, "All you need is a good init"). Not to a deviation of 1: a step moves
    scores by the rate times the sum of all squared features, so a wide layer must have smaller
    ones, or the paper's rates diverge. A layer whose outputs are all 0 is left as it is.
    """
    count = min(len(examples), CALIBRATION_IMAGES)
    chosen = [index * len(examples) // count for index in range(count)]  # spread over the data
    # each process on the device that it will train on
    place = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if device == "cuda" else device
    model.to(place)
    deviations: list[float] = []

    def measure(module: nn.Module, inputs: Any, output: Tensor) -> None:
        deviations.append(float(output.float().std()))

    try:
        batch = collate([examples[0, index] for index in chosen])
        with evaluating(model):
            for layer in (model.head.fc6, model.head.fc7):
                assert isinstance(layer, nn.Conv2d)
                handle = layer.register_forward_hook(measure)
                model(batch.images.to(place), batch.sizes.to(place))
                handle.remove()
                if 0 < deviations[-1] < float("inf"):
                    layer.weight *= (SQUARES / layer.out_channels) ** 0.5 / deviations[-1]
    except (MemoryError, RuntimeError) as error:  # RuntimeError: torch is out of memory
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise WorkError("calibrating the head", problem, "use smaller images") from error


def has_frozen_norms(run: RunConfig) -> bool:
    """Statistics of small batches are poor: those of a pretrained backbone are kept."""
    if run.training.batch_norm == "auto":
        return run.model.backbone_weights is not None
    return run.training.batch_norm == "frozen"
