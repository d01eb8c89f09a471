"""Models on disk: a folder with config.json and model.safetensors. Never a pickle."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from scaseg.config.model import ModelConfig
from scaseg.io.atomic import whole_file
from scaseg.io.model_folder import CONFIG as CONFIG
from scaseg.io.model_folder import WEIGHTS as WEIGHTS
from scaseg.io.tensors import DamagedError, read_tensors, shapes_in, write_tensors
from scaseg.models.segmenter import Segmenter

MOST_BYTES = 1 << 24  # of a config: thousands of classes with their colours take a megabyte


def save_pretrained(model: Segmenter, folder: str | Path, *, half: bool = False) -> None:
    """Write a model so that `load_model` gives it back; files appear whole or not at all.

    half: matrices and filters in 16 bits, half the size. Vectors stay as they are: the statistics
    of norms span more than 16 bits do.
    """
    if not isinstance(model, Segmenter):
        raise ValueError(f"model is a {type(model).__name__}; give what create_model made")
    folder = Path(folder)
    state = model.state_dict()
    if half:
        state = {
            name: tensor.half() if tensor.dim() > 1 and tensor.is_floating_point() else tensor
            for name, tensor in state.items()
        }
        for name, tensor in state.items():
            if not torch.isfinite(tensor).all():
                raise ValueError(f"half: {name} has numbers beyond 16 bits; save it whole")
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / WEIGHTS, state, {"format": "pt"})
    with whole_file(folder / CONFIG) as temporary:  # last: a folder with one is complete
        text = json.dumps(model.config.to_dict(), indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_config(folder: str | Path) -> ModelConfig:
    """Read the config of a saved model; ValueError says which file is wrong, and how."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: has no {CONFIG}; give a folder written by save_pretrained")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes, where {MOST_BYTES} are the most")
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise ValueError(f"{path}: not JSON ({fault}); save the model again") from fault
    if not isinstance(plain, dict):
        raise ValueError(f"{path}: holds a {type(plain).__name__}; a model config is an object")
    try:
        return ModelConfig.from_dict(plain)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"{path}: {fault}") from fault


def read_weights(model: Segmenter, folder: str | Path) -> None:
    """Fill a model with the weights of a saved one; ValueError names what does not fit."""
    check_weights(model, folder)  # before anything is read
    path = Path(folder) / WEIGHTS
    try:
        state, _ = read_tensors(path)
    except DamagedError as fault:
        raise ValueError(f"{fault}; save it again") from fault
    for name, tensor in model.state_dict().items():
        if state[name].is_floating_point() != tensor.is_floating_point():
            raise ValueError(f"{path}: {name} holds {state[name].dtype}; save it again as it was")
    model.load_state_dict(state)


def check_weights(model: nn.Module, folder: str | Path) -> None:
    """Refuse weights that are not this model's, from their names and shapes alone.

    The model may be on the meta device, where it takes no memory.
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{folder}: has no {WEIGHTS}; give a folder written by save_pretrained")
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    try:
        theirs = shapes_in(path)
    except DamagedError as fault:
        raise ValueError(f"{fault}; save it again") from fault
    for name in sorted(own.keys() | theirs.keys()):
        if name not in theirs:
            raise ValueError(f"{path}: has no {name}; it belongs to another {CONFIG}")
        if name not in own:
            raise ValueError(
                f"{path}: has {name}, which the model of {CONFIG} has not; save it again"
            )
        if theirs[name] != own[name]:
            raise ValueError(
                f"{path}: {name} has shape {theirs[name]}; the model of {CONFIG} wants {own[name]}"
            )
