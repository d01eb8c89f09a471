"""Models on disk: a folder with config.json and model.safetensors. Never a pickle."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaseg.config import ModelConfig
from scaseg.models.segmenter import Segmenter

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def save_pretrained(model: Segmenter, folder: str | Path) -> None:
    """Write a model so that `load_model` gives it back; files appear whole or not at all."""
    if not isinstance(model, Segmenter):
        raise ValueError(f"model is a {type(model).__name__}; give what create_model made")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as place:
        save_file(state, Path(place) / WEIGHTS, metadata={"format": "pt"})
        text = json.dumps(model.config.to_dict(), indent=2, ensure_ascii=False)
        (Path(place) / CONFIG).write_text(text + "\n", encoding="utf-8")
        for name in (WEIGHTS, CONFIG):  # the config last: a folder with one is complete
            # safetensors writes for nobody else's eyes; as open() would make it, like the config
            (Path(place) / name).chmod((Path(place) / CONFIG).stat().st_mode)
            os.replace(Path(place) / name, folder / name)


def read_config(folder: str | Path) -> ModelConfig:
    """Read the config of a saved model; ValueError says which file is wrong, and how."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: has no {CONFIG}; give a folder written by save_pretrained")
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as fault:
        raise ValueError(f"{path}: not JSON ({fault}); save the model again") from fault
    if not isinstance(plain, dict):
        raise ValueError(f"{path}: holds a {type(plain).__name__}; a model config is an object")
    try:
        return ModelConfig.from_dict(plain)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"{path}: {fault}") from fault


def read_weights(model: Segmenter, folder: str | Path) -> None:
    """Fill a model with the weights of a saved one; ValueError names what does not fit."""
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{folder}: has no {WEIGHTS}; give a folder written by save_pretrained")
    try:
        state: dict[str, Tensor] = load_file(path)
    except SafetensorError as fault:
        raise ValueError(f"{path}: not a safetensors file ({fault}); save it again") from fault
    own = model.state_dict()
    for name in sorted(own.keys() | state.keys()):
        if name not in state:
            raise ValueError(f"{path}: has no {name}; it belongs to another {CONFIG}")
        if name not in own:
            raise ValueError(f"{path}: has {name}, which the model of {CONFIG} has not")
        if state[name].shape != own[name].shape:
            raise ValueError(
                f"{path}: {name} has shape {tuple(state[name].shape)}; the model of {CONFIG} wants "
                f"{tuple(own[name].shape)}"
            )
    model.load_state_dict(state)
