"""Training states on disk: tensors in safetensors, the rest as JSON beside them, never a pickle.

Two generations are kept, last and previous; whatever the moment of a kill, one of them is whole.
(Lightning's own save is a pickle, and not atomic across file systems.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_fabric.plugins import CheckpointIO
from lightning_utilities.core.apply_func import apply_to_collection
from pytorch_lightning import Trainer
from torch import Tensor

from scaseg.errors import UserError
from scaseg.io.tensors import DamagedError, read_tensors, write_tensors

TREE = "scaseg.tree"
PREVIOUS = "previous.safetensors"
REQUIRED = {  # what Lightning reads of a state
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
    OSError names the file that could not be written; both old ones are then as they were.
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encode(state, tensors, "state"))  # tensors stand in it by name
    write_tensors(path, tensors, {TREE: tree}, previous=path.with_name(PREVIOUS) if keep else None)


def read_state(path: Path) -> dict[str, Any]:
    """Read a training state, without running anything of it; DamagedError where it is not whole."""
    if not path.is_file():
        raise DamagedError(path, "no such file")
    tensors, notes = read_tensors(path, signed=True)
    try:
        state = _decode(json.loads(notes[TREE]), tensors)
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
        raise DamagedError(path, "holds no training state") from error
    if not (
        isinstance(state, dict)
        and all(isinstance(state.get(key), kind) for key, kind in REQUIRED.items())
        and isinstance(state["loops"].get("fit_loop"), dict)
        and all(isinstance(one, dict) for one in state["optimizer_states"] + state["lr_schedulers"])
    ):
        raise DamagedError(path, "holds no training state")
    return state


def has_state(path: Path) -> bool:
    """Whether there is anything to resume from."""
    return path.is_file() or path.with_name(PREVIOUS).is_file()


class StateFiles(CheckpointIO):
    """The CheckpointIO that Lightning saves and loads through.

    A state can also be held in memory, to be written later.
    """

    def __init__(self) -> None:
        self._held: Mapping[str, Any] | None = None
        self._is_holding = False
        self._read: dict[str, Any] | None = None
        self._is_damaged = False  # the last state on disk

    def read(self, path: Path) -> list[str]:
        """Read the last state ahead of Lightning, or the previous one where that is damaged.

        Returns lines to print. UserError: neither is whole.
        """
        lines: list[str] = []
        try:
            self._read = read_state(path)
        except DamagedError as damage:
            try:
                self._read = read_state(path.with_name(PREVIOUS))
            except DamagedError:
                problem = f"{damage}, and there is no whole {PREVIOUS}"
                raise UserError("", problem, "start again with --overwrite") from damage
            self._is_damaged = True
            lines.append(f"{damage}; resuming from {PREVIOUS}")
        return [*lines, f"resuming after step {self._read['global_step']}"]

    def require_weights(self, path: Path, weights: Mapping[str, Tensor]) -> None:
        """Raise a UserError where the state that was read is of a network with other weights."""
        assert self._read is not None, "`read` comes first"
        own = {name: tensor.shape for name, tensor in weights.items()}
        found = self._read["state_dict"]
        if own != {name: getattr(value, "shape", None) for name, value in found.items()}:
            raise UserError(path, "is the state of another network", "start with --overwrite")

    @property
    def steps_done(self) -> int:
        """Steps of the optimizer in the state that was read; 0: none was."""
        return 0 if self._read is None else int(self._read["global_step"])

    @property
    def epochs_begun(self) -> int:
        """Epochs that are done or under way in the state that was read."""
        progress = {} if self._read is None else self._read["loops"]["fit_loop"]
        for key in ("epoch_progress", "current"):
            progress = progress.get(key, {})
        return int(progress.get("ready", 0))

    def hold(self, trainer: Trainer) -> None:
        """Keep a copy of the current state in memory, without writing it."""
        self._is_holding = True
        trainer.save_checkpoint("held")
        self._is_holding = False

    def write_held(self, path: Path) -> None:
        """Write the held state, if there is one."""
        if self._held is not None:
            self.save_checkpoint(self._held, path)
            self._held = None

    def drop_held(self) -> None:
        """Forget the held state."""
        self._held = None

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        if self._is_holding:  # copies on the CPU, which no later step changes
            self._held = apply_to_collection(
                checkpoint, Tensor, lambda tensor: tensor.detach().to("cpu", copy=True)
            )
            return
        write_state(checkpoint, Path(path), keep=not self._is_damaged)
        self._is_damaged = False

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        state, self._read = self._read, None
        assert state is not None, "`read` comes first"
        return state

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Bring nested containers to JSON; lists and dicts are tagged, so keys may be numbers."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        pairs = [
            [_encode(key, tensors, path), _encode(item, tensors, f"{path}.{key}")]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, tensors, path) for item in value]}
    raise TypeError(f"{path} is a {type(value).__name__}, which a training state cannot hold")


def _decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        raise TypeError("untagged list")
    if not isinstance(value, dict):
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
