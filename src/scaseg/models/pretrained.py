"""Pretrained weights: from the hub, a file in torchvision's or timm's names, or another model."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.io.model_folder import builtin_models, find_model
from scaseg.io.tensors import DamagedError, read_tensors, shapes_in
from scaseg.models.backbones.base import State
from scaseg.models.checkpoint import read_config
from scaseg.registry import BACKBONES

_log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
PART = "backbone."  # how the names of a saved model's backbone begin


def load_pretrained(model: nn.Module, name: str, source: str | Path) -> list[str]:
    """Initialise a segmenter's backbone (and an fcn head's fc6 and fc7) from trained weights.

    `source` is "imagenet" for the hub's, a safetensors file, or a model: a run folder, one by
    save_pretrained, its file alone, the name of a built-in one; of those the backbone is taken.
    Returns the names of the layers that were loaded, and logs them; everything that the backbone
    has must be there.
    """
    check_source(name, source)
    if _is_model(source):
        path = find_model(source) / WEIGHTS
        state = _part(_read(path), PART)
    else:
        path = _download(name) if source == "imagenet" else Path(source)
        state = _read(path)
        state = _part(state, PART) if _is_saved(state) else BACKBONES[name].rename(state)
    backbone: nn.Module = model.backbone  # type: ignore[assignment]
    loaded = _fill(backbone, state, path, required=True)
    head: nn.Module = model.head  # type: ignore[assignment]
    in_head = _part(state, "head.")
    loaded += [f"head.{name}" for name in _fill(head, in_head, path, required=False)]
    _log.info("loaded from %s: %s", path, ", ".join(loaded))
    return loaded


def check_source(name: str, source: str | Path) -> None:
    """Refuse what cannot be weights of a backbone, in no time."""
    if _is_model(source):
        try:
            theirs = read_config(find_model(source)).backbone
        except (ValueError, OSError) as fault:
            known = ", ".join(builtin_models())
            raise ValueError(
                f"backbone_weights: {source} is neither a file nor a model; give imagenet, a "
                f"safetensors file, a run folder or a built-in model ({known})"
            ) from fault
        if theirs != name:
            raise ValueError(
                f"backbone_weights: {source} has the backbone {theirs}, not {name}; give imagenet, "
                f"or --backbone {theirs}"
            )
    elif BACKBONES[name].hub is None and not _is_saved_file(source):
        known = ", ".join(other for other, kind in BACKBONES.items() if kind.hub is not None)
        raise UserError(
            "backbone_weights", f"{name} has no pretrained weights", f"choose one of {known}"
        )


def _is_model(source: str | Path) -> bool:
    # not Path's own, which raises where a name is too long
    return source != "imagenet" and not os.path.isfile(source)


def _is_saved(names: Iterable[str]) -> bool:
    """Whether these are the weights of a whole model of ours: no backbone alone is named so."""
    return any(name.startswith(PART) for name in names)


def _is_saved_file(source: str | Path) -> bool:
    if source == "imagenet":
        return False
    try:
        return _is_saved(shapes_in(Path(source)))
    except DamagedError:
        return False


def _part(state: State, prefix: str) -> State:
    """The weights of one part of a model, in the names that they have there."""
    return {
        name.removeprefix(prefix): own for name, own in state.items() if name.startswith(prefix)
    }


def _download(name: str) -> Path:
    """Fetch weights from the hub, or from its cache; offline, say so at once."""
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repository = BACKBONES[name].hub
    try:
        return Path(hf_hub_download(repository, WEIGHTS, local_files_only=True))
    except LocalEntryNotFoundError:
        pass  # not in the cache
    try:
        _probe(constants.ENDPOINT)  # the hub's client would retry for half a minute first
        return Path(hf_hub_download(repository, WEIGHTS))
    except Exception as fault:
        raise OSError(
            f"backbone_weights: {repository} could not be had from the Hugging Face hub "
            f"({type(fault).__name__}); fetch its {WEIGHTS} on another machine and give its path"
        ) from fault


def _probe(address: str) -> None:
    """Raise OSError within two seconds if nothing answers there."""
    if any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return  # the way out is somebody else's business
    parts = urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    socket.create_connection((parts.hostname or "", port), timeout=2).close()


def _read(path: Path) -> State:
    try:
        return read_tensors(path)[0]
    except DamagedError as fault:
        raise ValueError(f"backbone_weights: {fault}; convert or fetch it again") from fault


def _fill(module: nn.Module, state: State, path: Path, *, required: bool) -> list[str]:
    """Copy what fits into a module; return the names of the layers that were filled."""
    filled = []
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in own.items():
        if name.endswith("num_batches_tracked"):
            continue
        if name not in state:
            if required:
                raise ValueError(
                    f"backbone_weights: {path} has no {name}; give weights of this backbone"
                )
            continue
        value = _fit(state[name], tensor)
        if value is None:
            if not required:
                continue  # a compact head: fc6 of VGG16 is not its shape
            raise ValueError(
                f"backbone_weights: {name} in {path} has shape {tuple(state[name].shape)}; "
                f"this backbone wants {tuple(tensor.shape)}"
            )
        with torch.no_grad():
            tensor.copy_(value)
        filled.append(name.rsplit(".", 1)[0])
    return list(dict.fromkeys(filled))


def _fit(value: Tensor, wanted: Tensor) -> Tensor | None:
    """Give a weight the shape that is wanted, where that is the same weight seen otherwise."""
    if value.shape == wanted.shape:
        return value
    if value.numel() == wanted.numel() and value.shape[0] == wanted.shape[0]:
        return value.view(wanted.shape)  # a fully connected layer as a convolution
    # another number of input channels: grey or infrared images. The response to the same picture
    # in every channel stays what it was.
    if value.dim() == 4 and value.shape[1] == 3 and value.shape[::2] == wanted.shape[::2]:
        channels = wanted.shape[1]
        return value.mean(1, keepdim=True).expand_as(wanted) * (3 / channels)
    return None
