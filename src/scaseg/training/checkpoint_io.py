"""The state of a training on disk: tensors in safetensors, the rest as JSON beside them.

Two generations are kept, last and previous; whatever the moment of a kill, one of them is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning_fabric.plugins import CheckpointIO
from pytorch_lightning import Trainer
from torch import Tensor

from scaseg.io.atomic import sync_folder, temporary_beside
from scaseg.io.tensors import DamagedError, read_tensors, write_tensors

TREE = "scaseg.tree"
PREVIOUS = "previous.safetensors"
NEEDED = {
    "state_dict": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
    "loops": dict,
    "callbacks": dict,
    "epoch": int,
    "global_step": int,
}


def write_state(state: Mapping[str, Any], path: Path, *, keep: bool = True) -> None:
    """Write a training state; what was there becomes the previous one once the new one is proven.

    keep=False: what is there is damaged, and must not take the place of a whole previous one.
    OSError says which file could not be written; both old ones are then as they were.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encode(dict(state), tensors, "state"))
    new = temporary_beside(path)
    try:
        try:
            write_tensors(new, tensors, {TREE: tree})
            if keep and path.is_file():
                _keep_as(path, path.with_name(PREVIOUS))
            os.replace(new, path)
            sync_folder(path.parent)
        except OSError as fault:
            said = str(fault).replace(str(new), str(path))
            raise OSError(said if str(path) in said else f"{path}: {said}") from fault
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def read_state(path: Path) -> dict[str, Any]:
    """Read a training state, without running anything of it; DamagedError where it is not whole."""
    if not path.is_file():
        raise DamagedError(f"{path}: no such file")
    tensors, notes = read_tensors(path, signed=True)
    try:
        state = _decode(json.loads(notes[TREE]), tensors)
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as fault:
        raise DamagedError(f"{path}: holds no state of a training") from fault
    if not _is_state(state):
        raise DamagedError(f"{path}: holds no state of a training")
    return state


def _is_state(state: Any) -> bool:
    """Whether it has what Lightning will look for; what is in there, only it can tell."""
    if not isinstance(state, dict) or any(
        not isinstance(state.get(key), kind) for key, kind in NEEDED.items()
    ):
        return False
    return isinstance(state["loops"].get("fit_loop"), dict) and all(
        isinstance(item, dict) for item in (*state["optimizer_states"], *state["lr_schedulers"])
    )


def has_state(path: Path) -> bool:
    """Whether there is anything to continue from."""
    return path.is_file() or path.with_name(PREVIOUS).is_file()


class StateFiles(CheckpointIO):
    """What Lightning saves and loads through; a state can also be held in memory, for later."""

    def __init__(self) -> None:
        self._held: dict[str, Any] | None = None
        self._holding = False
        self._read: dict[str, Any] | None = None
        self._is_damaged = False  # the last state on disk

    def read(self, path: Path, weights: Mapping[str, Tensor]) -> list[str]:
        """Read the last state ahead of Lightning, or the previous one where that is damaged.

        Returns what is to be said of it, in lines. ValueError: neither is whole, or they belong to
        a network with other weights.
        """
        said = []
        try:
            self._read = read_state(path)
        except DamagedError as fault:
            before = path.with_name(PREVIOUS)
            try:
                self._read = read_state(before)
            except DamagedError:
                raise ValueError(
                    f"{fault}, and there is no whole {PREVIOUS}; start again with --overwrite"
                ) from fault
            self._is_damaged = True
            said.append(f"{fault}; going on from {before.name}")
        own = {name: tensor.shape for name, tensor in weights.items()}
        found = self._read["state_dict"]
        if not isinstance(found, dict) or own != {
            name: getattr(tensor, "shape", None) for name, tensor in found.items()
        }:
            raise ValueError(f"{path}: is the state of another network; start with --overwrite")
        said.append(f"going on after step {self._read.get('global_step')}")
        return said

    def hold(self, trainer: Trainer) -> None:
        """Keep a copy of the state of now, without writing it."""
        self._holding = True
        try:
            trainer.save_checkpoint("held")
        finally:
            self._holding = False

    def write_held(self, path: Path) -> None:
        """Write what is held, if something is."""
        if self._held is not None:
            self._write(self._held, path)
            self._held = None

    def forget(self) -> None:
        """Hold nothing."""
        self._held = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        if self._holding:
            self._held = _copied(checkpoint)
        else:
            self._write(checkpoint, Path(path))

    def _write(self, state: Mapping[str, Any], path: Path) -> None:
        write_state(state, path, keep=not self._is_damaged)
        self._is_damaged = False

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        state, self._read = self._read, None
        return read_state(Path(path)) if state is None else state

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _keep_as(path: Path, other: Path) -> None:
    """Give a file a second name, so that at no moment the first is missing."""
    second = temporary_beside(path)
    try:
        os.link(path, second)
    except OSError:  # no hard links here: for a moment only the previous one is there
        os.replace(path, other)
    else:
        os.replace(second, other)


def _copied(value: Any) -> Any:
    """A copy in the computer's own memory that no step changes any more."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


def _encode(value: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """Bring nested containers to JSON; lists and dicts are tagged, so keys may be numbers."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        pairs = [
            [_encode(key, tensors, place), _encode(item, tensors, f"{place}.{key}")]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, tensors, place) for item in value]}
    raise TypeError(
        f"{place} is a {type(value).__name__}, which cannot be kept in a training state"
    )


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise TypeError("untagged list")
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "dict":
        return {_decode(key, tensors): _decode(item, tensors) for key, item in inner}
    if kind in ("list", "tuple"):
        items = [_decode(item, tensors) for item in inner]
        return items if kind == "list" else tuple(items)
    raise ValueError(f"unknown kind {kind}")
