"""Losses, optimisers and loggers by name, their options checked by name too."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from scaseg.config.run import TrainingConfig
from scaseg.losses import LOSSES

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

# optimisers that do not fit a network trained by plain steps: one wants a closure, one sparse
# gradients, one matrices only
UNFIT = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in UNFIT
}
# what people call them; any other class of pytorch_lightning.loggers goes by its own name
LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "csv": "CSVLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
    "comet": "CometLogger",
}
UNBOUNDED = ("gamma",)  # every other option of a loss is a share


def build_loss(config: TrainingConfig) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """Take a loss by name: (scores, labels, weights) -> one number."""
    if config.loss not in LOSSES:
        raise ValueError(f"training.loss: {config.loss!r}; give one of {', '.join(LOSSES)}")
    loss = LOSSES[config.loss]
    known = [
        name
        for name, parameter in inspect.signature(loss).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    _check_options("training.loss_options", config.loss_options, known, config.loss)
    for name, value in config.loss_options.items():
        most = sys.float_info.max if name in UNBOUNDED else 1
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and 0 <= value <= most):
            fits = "a number >= 0" if name in UNBOUNDED else "a number from 0 to 1"
            raise ValueError(f"training.loss_options.{name}: {value!r}; give {fits}")
    return partial(loss, **config.loss_options)


def build_optimizer(config: TrainingConfig, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """Take an optimiser of torch.optim by name, in any case, for groups with rates of their own."""
    by_name = {name.lower(): kind for name, kind in OPTIMIZERS.items()}
    if config.optimizer.lower() not in by_name:
        raise ValueError(
            f"training.optimizer: {config.optimizer!r}; give one of {', '.join(OPTIMIZERS)}"
        )
    kind = by_name[config.optimizer.lower()]
    known = [name for name in inspect.signature(kind).parameters if name not in ("params", "lr")]
    _check_options("training.optimizer_options", config.optimizer_options, known, kind.__name__)
    usual = {"momentum": config.momentum, "weight_decay": config.weight_decay}
    options = {name: value for name, value in usual.items() if name in known}
    try:
        return kind(groups, lr=config.lr, **{**options, **config.optimizer_options})  # type: ignore[call-arg]
    except (TypeError, ValueError, RuntimeError) as fault:
        raise ValueError(
            f"training.optimizer_options: {fault}; see torch.optim.{kind.__name__}"
        ) from fault


def logger_kinds(names: tuple[str, ...]) -> dict[str, type[Logger]]:
    """Find the classes of loggers by name; ValueError where there is none."""
    from pytorch_lightning import loggers as kinds

    found: dict[str, type[Logger]] = {}
    for name in names:
        kind = getattr(kinds, LOGGERS.get(name, name), None)
        if not (isinstance(kind, type) and issubclass(kind, kinds.Logger)) or kind is kinds.Logger:
            raise ValueError(
                f"training.loggers: {name!r}; give some of {', '.join(LOGGERS)}, or the name of a "
                "class in pytorch_lightning.loggers"
            )
        found[name] = kind
    return found


def build_loggers(names: tuple[str, ...], folder: Path) -> list[Logger]:
    """Take Lightning's loggers by name; what they write goes below the run folder."""
    built: list[Logger] = []
    for name, kind in logger_kinds(names).items():
        place = {"save_dir": str(folder), "name": folder.name}
        known = inspect.signature(kind).parameters
        if name in ("tensorboard", "csv"):
            place = {"save_dir": str(folder), "name": name, "version": ""}
        try:
            built.append(kind(**{key: value for key, value in place.items() if key in known}))
        except ModuleNotFoundError as fault:
            more = "pip install 'scaseg[log]'" if name == "tensorboard" else "install its package"
            raise ValueError(f"training.loggers: {name} is not installed; {more}") from fault
    return built


def check_training(config: TrainingConfig) -> None:
    """Refuse wrong names and options before anything is read or written."""
    build_loss(config)
    build_optimizer(config, [{"params": [torch.zeros(1, requires_grad=True)]}])
    logger_kinds(config.loggers)


def _check_options(path: str, options: Mapping[str, Any], known: list[str], owner: str) -> None:
    for name in options:
        if name not in known:
            raise ValueError(
                f"{path}.{name}: unknown key; {owner} has {', '.join(known) or 'no options'}"
            )
