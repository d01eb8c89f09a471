"""Read a saved model: a folder with config.json and model.safetensors. Never a pickle."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from scaseg.config.model import ModelConfig
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.io.tensors import read_shapes, read_tensors

MOST_BYTES = 1 << 24  # of a config: thousands of classes with their colours take a megabyte


def read_config(folder: str | Path) -> ModelConfig:
    """Read the config of a saved model; UserError says which file is wrong, and how."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise UserError(folder, f"has no {CONFIG}", "give a folder written by save_pretrained")
    with located(path):
        try:
            if (size := path.stat().st_size) > MOST_BYTES:
                raise ValueError(f"{size} bytes, where {MOST_BYTES} are the most")
            plain = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError("", "not JSON", "save the model again", str(error)) from error
        if not isinstance(plain, dict):
            raise UserError("", f"holds a {type(plain).__name__}", "a model config is an object")
        return ModelConfig.from_dict(plain)


def read_weights(model: nn.Module, folder: str | Path) -> None:
    """Fill a model with saved weights; UserError names what does not fit.

    Names and shapes are compared before anything is read: what a file only claims to have must not
    fill the memory. A model on the meta device takes the tensors of the file for its own.
    """
    path = Path(folder) / WEIGHTS
    own = model.state_dict()
    theirs = read_shapes(path, remedy="save it again")
    for name in sorted(own.keys() | theirs.keys()):
        if name not in theirs:
            raise UserError(path, f"has no {name}", f"it belongs to another {CONFIG}")
        if name not in own:
            problem = f"has {name}, which the model of {CONFIG} has not"
            raise UserError(path, problem, "save it again")
        if theirs[name] != (shape := tuple(own[name].shape)):
            problem = f"{name} has shape {theirs[name]}"
            raise UserError(path, problem, f"the model of {CONFIG} wants {shape}")
    state, _ = read_tensors(path, remedy="save it again")
    for name, tensor in state.items():
        if tensor.is_floating_point() != own[name].is_floating_point():
            raise UserError(path, f"{name} holds {tensor.dtype}", "save it again as it was")
        if not torch.isfinite(tensor).all():
            raise UserError(path, f"{name} has values that are not finite", "train it again")
        state[name] = tensor.to(own[name].dtype)
    model.load_state_dict(state, assign=any(tensor.is_meta for tensor in own.values()))
