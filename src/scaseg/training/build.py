"""Losses, optimizers and loggers by name; their options are checked by name, too."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scaseg.config.run import TrainingConfig
from scaseg.errors import UserError
from scaseg.losses import LOSSES

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


def build_optimizer(config: TrainingConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """Return an optimizer of torch.optim, its name in any case, for parameter groups."""
    by_name = {name.lower(): kind for name, kind in OPTIMIZERS.items()}
    if config.optimizer.lower() not in by_name:
        raise UserError.choice("training.optimizer", config.optimizer, OPTIMIZERS)
    kind = by_name[config.optimizer.lower()]
    known = [name for name in inspect.signature(kind).parameters if name not in ("params", "lr")]
    _check_options("training.optimizer_options", config.optimizer_options, known, kind.__name__)
    usual = {"momentum": config.momentum, "weight_decay": config.weight_decay}
    options = {name: value for name, value in usual.items() if name in known}
    try:
        return kind(groups, lr=config.lr, **{**options, **config.optimizer_options})  # type: ignore[call-arg]
    except (TypeError, ValueError, RuntimeError) as error:
        remedy = f"see torch.optim.{kind.__name__}"
        raise UserError("training.optimizer_options", str(error), remedy) from error


def logger_classes(names: Iterable[str]) -> dict[str, type[Logger]]:
    """Find Lightning's logger classes by name."""
    from pytorch_lightning import loggers

    found: dict[str, type[Logger]] = {}
    for name in names:
        kind = getattr(loggers, LOGGERS.get(name, name), None)
        if not (isinstance(kind, type) and issubclass(kind, loggers.Logger)) or (
            kind is loggers.Logger
        ):
            fits = f"give some of {', '.join(LOGGERS)}, or a class of pytorch_lightning.loggers"
            raise UserError("training.loggers", f"{name!r}", fits)
        found[name] = kind
    return found


def build_loggers(names: Iterable[str], folder: Path) -> list[Logger]:
    """Build Lightning's loggers by name; they write below the run folder."""
    built: list[Logger] = []
    for name, kind in logger_classes(names).items():
        options = {"save_dir": str(folder), "name": folder.name}
        if name in ("tensorboard", "csv"):
            options |= {"name": name, "version": ""}
        known = inspect.signature(kind).parameters
        try:
            built.append(kind(**{key: value for key, value in options.items() if key in known}))
        except ModuleNotFoundError as error:
            more = "pip install 'scaseg[log]'" if name == "tensorboard" else "install its package"
            raise UserError("training.loggers", f"{name} is not installed", more) from error
    return built


def check_training(config: TrainingConfig) -> None:
    """Refuse wrong names and options before anything is read or written."""
    build_loss(config)
    build_optimizer(config, [{"params": [torch.zeros(1, requires_grad=True)]}])
    logger_classes(config.loggers)


def _check_options(path: str, options: Mapping[str, Any], known: list[str], owner: str) -> None:
    for name in options:
        if name not in known:
            remedy = f"{owner} has {', '.join(known) or 'no options'}"
            raise UserError(f"{path}.{name}", "unknown key", remedy)
