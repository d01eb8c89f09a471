"""What a run is built from: network, loss, optimizer, loggers; wrong names are refused early."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scaseg.config.model import ModelConfig
from scaseg.config.run import RunConfig, TrainingConfig
from scaseg.data.loading import TrainingDataset
from scaseg.data.sample import collate, normalize
from scaseg.data.statistics import BandStatistics
from scaseg.errors import UserError, WorkError, located
from scaseg.losses import LOSSES
from scaseg.models.backbones.base import Backbone
from scaseg.models.build import build_model, outline_model
from scaseg.models.heads import SegmentationHead
from scaseg.models.pretrained import check_source, load_pretrained
from scaseg.models.segmenter import Segmenter, evaluating
from scaseg.registry import BACKBONES
from scaseg.training.data import TrainingData
from scaseg.training.start import StartingPoint

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

# these need more than plain steps on any weights: a closure, sparse gradients, matrices only
UNFIT = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in UNFIT
}
# short names; any other class of pytorch_lightning.loggers goes by its own name
LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CSVLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
    "comet": "CometLogger",
}
UNBOUNDED = ("gamma",)  # every other option of a loss is a share
CALIBRATION_IMAGES = 4
# the sum of all squared outputs of a neuron: 0.7 each where there are 1024, 0.35 where 4096
SQUARES = 512


def complete_backbone(run: RunConfig) -> RunConfig:
    """Put what a foreign backbone says of itself into the run: it is resumed without the hub."""
    name, options = run.model.backbone, run.model.backbone_options
    with located("model", "."):
        kind: type[Backbone] = BACKBONES.choose(name)
        found = kind.complete(name.partition(":")[2], options)
    return replace(run, model=replace(run.model, backbone_options=found))


def check_run(run: RunConfig, *, is_fresh: bool = True) -> None:
    """Refuse what cannot be built before the data are checked, which may take minutes.

    is_fresh=False: the weights come from a training state.
    """
    build_loss(run.training)
    build_optimizer(run.training, [{"params": [torch.zeros(1, requires_grad=True)]}])
    build_loggers(run.training.loggers, None)
    with located("model", "."):
        outline_model(_model_config(run, ("any",)))
    if is_fresh and run.model.backbone_weights is not None:
        check_source(run.model.backbone, run.model.backbone_weights)


def _model_config(
    run: RunConfig, classes: tuple[str, ...], bands: BandStatistics | None = None, **more: Any
) -> ModelConfig:
    kind: type[Backbone] = BACKBONES.choose(run.model.backbone)
    backbone = kind.facts(run.model.backbone_options)
    count = run.data.bands  # of which nothing is known before they are measured
    statistics: dict[str, Any] = {
        "mean": run.data.mean or (backbone.mean if count is None else (0.0,) * count),
        "std": run.data.std or (backbone.std if count is None else (1.0,) * count),
    }
    if bands is not None:
        statistics = asdict(bands)
    return ModelConfig(
        classes=classes,
        backbone=run.model.backbone,
        context=run.model.context,
        head=backbone.usual_head if run.model.head == "auto" else run.model.head,
        context_options=run.model.context_options,
        backbone_options=run.model.backbone_options,
        fit=run.augment.fit,
        in_channels=run.data.bands or 3,
        **statistics,
        **more,
    )


def build_network(
    run: RunConfig,
    data: TrainingData,
    log: Callable[[str], None],
    *,
    start: StartingPoint | None = None,
    is_fresh: bool = True,
) -> tuple[Segmenter, bool]:
    """Build the network from the seed and load its backbone; True where the head is fresh.

    start: the model to start from, in place of a new one. is_fresh=False: its weights come from a
    training state, and nothing else is loaded.
    """
    palette = run.model.palette if run.model.palette is not None else data.train.palette
    record: dict[str, Any] = {"recipe": asdict(run)}
    bands = data.bands
    if start is not None:
        record["started_from"] = start.record(data.classes)
        bands = BandStatistics(start.config.dtype, start.config.mean, start.config.std)
    torch.manual_seed(run.training.seed)
    with located("model", "."):
        config = _model_config(run, data.classes, bands, palette=palette, training=record)
        if start is not None and is_fresh:
            log(start.describe(data.classes))
            return start.load(config), False
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
    ones, or the paper's rates diverge. A layer whose outputs are all 0 is left as it is. A head
    with norms needs none of this.
    """
    if not isinstance(model.head, SegmentationHead):
        return
    count = min(len(examples), CALIBRATION_IMAGES)
    chosen = [index * len(examples) // count for index in range(count)]  # spread over the data
    # each process on the device that it will train on
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))
    place = f"cuda:{int(local) % torch.cuda.device_count()}" if device == "cuda" else device
    model.to(place)
    try:
        batch = collate([examples.example(0, index) for index in chosen])
        with evaluating(model):
            mean, std = (
                torch.tensor(one, device=place) for one in (model.config.mean, model.config.std)
            )
            images = normalize(batch.images.to(place).contiguous(), mean, std)
            x = model.features(images, batch.sizes).x
            for layer in (model.head.fc6, model.head.fc7):
                deviation = float(layer(x).float().std())
                if 0 < deviation < float("inf"):
                    layer.weight *= (SQUARES / layer.out_channels) ** 0.5 / deviation
                x = torch.relu(layer(x))
    except (MemoryError, RuntimeError) as error:  # RuntimeError: torch is out of memory
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        if not isinstance(error, MemoryError) and "memory" not in problem:
            raise  # what a context of the user's own raises
        raise WorkError("calibrating the head", problem, "use smaller images") from error


def build_loss(config: TrainingConfig) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Return the loss of a run: (scores, labels, class weights) -> scalar."""
    if config.loss not in LOSSES:
        raise UserError.choice("training.loss", config.loss, LOSSES)
    loss = LOSSES[config.loss]
    parameters = inspect.signature(loss).parameters.values()
    known = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    _check_options("training.loss_options", config.loss_options, known, config.loss)
    for name, value in config.loss_options.items():
        most = sys.float_info.max if name in UNBOUNDED else 1
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= most):
            fits = "a number >= 0" if name in UNBOUNDED else "a number from 0 to 1"
            raise UserError(f"training.loss_options.{name}", f"{value!r}", f"give {fits}")
    return partial(loss, **config.loss_options)


def can_fuse(config: TrainingConfig) -> bool:
    """Whether the optimizer has one kernel for all weights, and the run leaves the choice to us."""
    kind = {name.lower(): kind for name, kind in OPTIMIZERS.items()}[config.optimizer.lower()]
    ours = not {"fused", "foreach", "differentiable"} & config.optimizer_options.keys()
    return ours and "fused" in inspect.signature(kind).parameters


def build_optimizer(
    config: TrainingConfig, groups: list[dict[str, Any]], *, fused: bool = False
) -> torch.optim.Optimizer:
    """Return an optimizer of torch.optim, its name in any case, for parameter groups."""
    by_name = {name.lower(): kind for name, kind in OPTIMIZERS.items()}
    if config.optimizer.lower() not in by_name:
        raise UserError.choice("training.optimizer", config.optimizer, OPTIMIZERS)
    kind = by_name[config.optimizer.lower()]
    known = [name for name in inspect.signature(kind).parameters if name not in ("params", "lr")]
    _check_options("training.optimizer_options", config.optimizer_options, known, kind.__name__)
    usual = {"momentum": config.momentum, "weight_decay": config.weight_decay}
    options: dict[str, Any] = {name: value for name, value in usual.items() if name in known}
    if fused:
        options["fused"] = True
    try:
        return kind(groups, lr=config.lr, **{**options, **config.optimizer_options})  # type: ignore[call-arg]
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = f"see torch.optim.{kind.__name__}"
        raise UserError("training.optimizer_options", str(error), remedy) from error


def build_loggers(names: Iterable[str], folder: Path | None) -> list[Logger]:
    """Build Lightning's loggers by name; they write below the run folder. None: only checked."""
    from pytorch_lightning import loggers

    built: list[Logger] = []
    for name in names:
        own = LOGGERS.get(name, name)
        if own not in loggers.__all__ or own == "Logger":
            fits = f"give some of {', '.join(LOGGERS)}, or a class of pytorch_lightning.loggers"
            raise UserError("training.loggers", f"{name!r}", fits)
        if folder is None:
            continue
        options = {"save_dir": str(folder), "name": folder.name}
        if name in ("tensorboard", "csv"):
            options |= {"name": name, "version": ""}
        kind = getattr(loggers, own)
        known = inspect.signature(kind).parameters
        try:
            built.append(kind(**{key: value for key, value in options.items() if key in known}))
        except ModuleNotFoundError as error:
            more = "pip install 'scaseg[log]'" if name == "tensorboard" else "install its package"
            raise UserError("training.loggers", f"{name} is not installed", more) from error
    return built


def _check_options(path: str, options: Mapping[str, Any], known: list[str], owner: str) -> None:
    for name in options:
        if name not in known:
            remedy = f"{owner} has {', '.join(known) or 'no options'}"
            raise UserError(f"{path}.{name}", "unknown key", remedy)
