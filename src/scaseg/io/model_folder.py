"""Which folder holds a model, and which models come with the package: known without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path

from scaseg.errors import UserError, nearest

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # of a saved model
RECIPE = "recipe.yaml"  # of a run
MODEL, BEST = Path("model"), Path("checkpoints/best")  # where a run has its model

BUILTIN = Path(__file__).parents[1] / "builtin"  # the models of the package
USUAL = "outdoor"  # the one that commands take where none is named


def find_model(path: str | Path | None) -> Path:
    """Return the folder of a model: a saved one, that of a run, or a built-in one by its name.

    A folder of that name in the working folder comes first, as on the Hugging Face hub. Of a run
    that was cut off, the best model so far. None is the usual built-in one. UserError where there
    is none.
    """
    if path is None:
        return BUILTIN / USUAL
    name, path = os.fspath(path), Path(path)
    try:
        if not path.is_dir():
            if name in builtin_models():
                return BUILTIN / name
            raise _unknown(name)
        for place in (path, path / MODEL, path / BEST):
            if (place / CONFIG).is_file():
                if not (place / WEIGHTS).is_file():  # nor a pipe: it would be read for ever
                    raise UserError(place, f"has no {WEIGHTS}", "save the model again")
                return place
        if (path / RECIPE).is_file():
            raise UserError(path, "this run has no model yet", "continue it with --resume")
    except OSError as error:  # a name too long, a folder that may not be looked into
        raise UserError.cannot_be("read", path, error, "give another folder") from error
    if name in builtin_models():
        problem = f"has no {CONFIG}, and hides the built-in model of its name"
        remedy = (
            "rename it, or work in another folder (a command without --model takes the built-in "
            "one)"
        )
        raise UserError(path, problem, remedy)
    raise UserError(path, f"has no {CONFIG}", "give a folder written by save_pretrained")


def builtin_models() -> tuple[str, ...]:
    """The names of the models that come with the package.

    >>> builtin_models()
    ('outdoor',)
    """
    return tuple(sorted(path.parent.name for path in BUILTIN.glob(f"*/{CONFIG}")))


def is_builtin(folder: Path) -> bool:
    """Whether a folder that `find_model` gave came with the package."""
    return folder.parent == BUILTIN


def model_notes(given: str | Path | None, found: Path) -> list[str]:
    """What to tell users about the model that was found for them; given: None for the usual one."""
    if given is None:
        return [f"no --model: the built-in {USUAL} model ({', '.join(class_names(found))})"]
    if found == Path(given) / BEST:
        return [f"{given}: an unfinished run; its best model so far is taken"]
    return []


def class_names(folder: Path) -> tuple[str, ...]:
    """The classes of a built-in model, without the rest of it."""
    return tuple(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["classes"])


def _unknown(name: str) -> UserError:
    names, plain = builtin_models(), os.path.normpath(name)
    if plain in names:  # ./outdoor, outdoor/
        remedy = f"a built-in model is named without a path: {plain}"
    else:
        near = nearest(Path(name).name, names)
        guess = f"did you mean {near}? " if near else ""
        remedy = (
            f"{guess}give a run folder, one by save_pretrained, or a built-in model "
            f"({', '.join(names)})"
        )
    return UserError(name, "no such folder", remedy)
