"""Which folder holds a model, and what comes with the package: known without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # of a saved model
RECIPE = "recipe.yaml"  # of a run
MODEL, BEST = Path("model"), Path("checkpoints/best")  # where a run has its model

BUILTIN = Path(__file__).parents[1] / "builtin"  # the models of the package
USUAL = "outdoor"  # the one that commands take where none is named


def find_model(path: str | Path) -> Path:
    """Find the model in a run folder, take the folder of a saved one, or a built-in one by name.

    A folder of that name in the working folder comes first, as on the Hugging Face hub. Of a run
    that was cut off, the best model so far. ValueError where there is none.
    """
    name, path = os.fspath(path), Path(path)
    if not path.is_dir():
        if name in builtin_models():
            return BUILTIN / name
        raise ValueError(_unknown(name))
    for place in (path, path / MODEL, path / BEST):
        if (place / CONFIG).is_file():
            return place
    if (path / RECIPE).is_file():
        raise ValueError(f"{path}: this run has no model yet; continue it with --resume")
    if name in builtin_models():
        raise ValueError(
            f"{path}: has no {CONFIG}, and hides the built-in model of its name; rename it, or "
            "work in another folder (a command without --model takes the built-in one)"
        )
    raise ValueError(f"{path}: has no {CONFIG}; give a folder written by save_pretrained")


def builtin_models() -> tuple[str, ...]:
    """The names of the models that come with the package.

    >>> builtin_models()
    ('outdoor',)
    """
    return tuple(sorted(path.parent.name for path in BUILTIN.glob(f"*/{CONFIG}")))


def is_builtin(folder: Path) -> bool:
    """Whether a folder that `find_model` gave came with the package."""
    return folder.parent == BUILTIN


def class_names(folder: Path) -> tuple[str, ...]:
    """The classes of a built-in model, without the rest of it."""
    return tuple(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["classes"])


def _unknown(typed: str) -> str:
    from difflib import get_close_matches

    names = builtin_models()
    if os.path.normpath(typed) in names:  # ./outdoor, outdoor/
        name = os.path.normpath(typed)
        return f"{typed}: no such folder; a built-in model is named without a path: {name}"
    near = get_close_matches(Path(typed).name, names, n=1)
    return (
        f"{typed}: no such folder; {f'did you mean {near[0]}? ' if near else ''}give a run folder, "
        f"one by save_pretrained, or a built-in model ({', '.join(names)})"
    )
