"""Saved weights: a whole model's (config.json, model.safetensors), or a backbone's to start from.

Those come from the Hugging Face hub, a file in torchvision's or timm's names, or another model;
never from a pickle.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from scaseg.config.model import read_config
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG, WEIGHTS, builtin_models, find_model
from scaseg.io.tensors import DamagedError, read_shapes, read_tensors
from scaseg.models.backbones.base import Backbone, State
from scaseg.models.segmenter import Segmenter
from scaseg.registry import BACKBONES

_log = logging.getLogger(__name__)

PART = "backbone."  # how the names of a saved model's backbone begin
KEY = "backbone_weights"
HUB = ("imagenet", "pretrained")  # both words: those of the hub


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
        state[name] = _sound(tensor.to(own[name].dtype), path, name, "train it again")
    model.load_state_dict(state, assign=any(tensor.is_meta for tensor in own.values()))


def load_pretrained(model: Segmenter, source: str | Path) -> list[str]:
    """Initialize a segmenter's backbone (and an fcn head's fc6 and fc7) from trained weights.

    source: "imagenet" or "pretrained" for the hub's, a safetensors file, or a model: a run folder,
    one by save_pretrained, its file alone, the name of a built-in one; of those the backbone is
    taken. Returns the names of the layers that were loaded, and logs them; everything that the
    backbone has must be there.
    """
    name = model.config.backbone
    check_source(name, source)
    kind: type[Backbone] = BACKBONES[name]
    with located(KEY):
        if source in HUB:
            path = Path(kind.hub or "")
            state = kind.fetch(name.partition(":")[2], model.config.backbone_options)
        else:
            path = Path(source) if os.path.isfile(source) else find_model(source) / WEIGHTS
            state, _ = read_tensors(path, remedy="convert or fetch it again")
            is_model = any(key.startswith(PART) for key in state)  # a whole one of ours
            state = _part(state, PART) if is_model else kind.rename(state)
        in_head = _part(state, "head.")
        loaded = _fill(model.backbone, state, path, required=True)
        loaded += [f"head.{layer}" for layer in _fill(model.head, in_head, path, required=False)]
    _log.info("loaded from %s: %s", path, ", ".join(loaded))
    return loaded


def check_source(name: str, source: str | Path) -> None:
    """Refuse what cannot be weights of a backbone, in no time."""
    if source in HUB or os.path.isfile(source):  # not Path's own: a name may be too long
        if BACKBONES[name].hub is not None and (source in HUB or ":" not in name):
            return
        known = [other for other, kind in BACKBONES.items() if kind.hub is not None]
        with suppress(DamagedError):  # a whole model of ours will do: no backbone alone has PART
            if source not in HUB and any(key.startswith(PART) for key in read_shapes(Path(source))):
                return
        problem = f"{name} has no pretrained weights"
        if ":" in name:
            remedy = "give pretrained (of its repository), or a model of scaseg"
            raise UserError(KEY, f"{source} is no model of scaseg", remedy)
        raise UserError(KEY, problem, f"give a model, or one of {', '.join(known)}")
    try:
        theirs = read_config(find_model(source)).backbone
    except (ValueError, OSError) as error:
        remedy = "give imagenet, a safetensors file, a run folder or a built-in model"
        remedy = f"{remedy} ({', '.join(builtin_models())})"
        raise UserError(KEY, f"{source} is neither a file nor a model", remedy) from error
    if theirs != name:
        problem = f"{source} has the backbone {theirs}, not {name}"
        remedy = f"give imagenet, null (random weights), or --backbone {theirs}"
        raise UserError(KEY, problem, remedy)


def _sound(tensor: Tensor, path: Path, name: str, remedy: str) -> Tensor:
    """Return weights that a network can compute with; UserError for others."""
    if not torch.isfinite(tensor).all():
        raise UserError(path, f"{name} has values that are not finite", remedy)
    if name.endswith("running_var") and (tensor < 0).any():
        raise UserError(path, f"{name} has negative variances", remedy)
    return tensor


def _part(state: State, prefix: str) -> State:
    """The weights of one part of a model, in the names that they have there."""
    return {key.removeprefix(prefix): own for key, own in state.items() if key.startswith(prefix)}


def _fill(module: nn.Module, state: State, path: Path, *, required: bool) -> list[str]:
    """Copy what fits into a module; return the names of the layers that were filled."""
    filled = []
    for name, tensor in module.state_dict(keep_vars=True).items():
        if name.endswith("num_batches_tracked"):
            continue
        value = _fit(state[name], tensor) if name in state else None
        if value is not None:
            with torch.no_grad():
                tensor.copy_(_sound(value.to(tensor.dtype), path, name, "give other weights"))
            filled.append(name.rsplit(".", 1)[0])
        elif required and name in state:
            problem = f"{name} has shape {tuple(state[name].shape)}"
            raise UserError(path, problem, f"this backbone wants {tuple(tensor.shape)}")
        elif required:
            raise UserError(path, f"has no {name}", "give weights of this backbone")
        # else a compact head: fc6 of VGG16 is not its shape
    return list(dict.fromkeys(filled))


def _fit(value: Tensor, wanted: Tensor) -> Tensor | None:
    """Give a weight the shape that is wanted, where that is the same weight seen otherwise."""
    if value.shape == wanted.shape:
        return value
    if value.numel() == wanted.numel() and value.shape[0] == wanted.shape[0]:
        return value.view(wanted.shape)  # a fully connected layer as a convolution
    # other bands than red, green and blue: the first three of more keep their weights, all others
    # get the mean of the three. The response to the same picture in every band stays what it was.
    if value.dim() == 4 and value.shape[1] == 3 and value.shape[::2] == wanted.shape[::2]:
        bands = wanted.shape[1]
        weights = value.mean(1, keepdim=True).repeat(1, bands, 1, 1)
        if bands > 3:
            weights[:, :3] = value
        return weights * (3 / bands)
    return None
