"""The keys of a recipe that each command reads; any other would do nothing, and is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scaseg.errors import UserError

SECTIONS = ("data", "augment", "model", "training", "machine")  # what `train` reads: all of it
COMPARED = (  # not the context: several are compared
    *("data", "augment", "training", "machine"),
    *(f"model.{key}" for key in ("backbone", "backbone_weights", "start_from", "head")),
    *("model.palette", "model.context_options", "model.backbone_options"),
)
EVALUATED = (  # how labels are read and what is held out is known from the training
    *(f"data.{key}" for key in ("name", "root", "classes", "label_map", "reduce_zero_label")),
    *(f"data.{key}" for key in ("ignore_index", "bands", "max_pixels", "check", "folds")),
    *("data.fold", "data.fields", "data.shard_cache", "data.cache_dir", "machine"),
)


def is_read(key: str, read: Sequence[str]) -> bool:
    """Whether a key is one of those that are read, or in one of the sections."""
    return any(f"{key}.".startswith(f"{one}.") for one in read)


def require_read(keys: Iterable[str], read: Sequence[str]) -> None:
    """Refuse keys that a command does not read; `read`: keys, or whole sections."""
    for key in keys:
        if not is_read(key, read):
            raise UserError(f"--{key}", "has no effect in this command", "leave it out")
