"""Where a model is: a folder, built into the package, on the Hugging Face hub. Without torch."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from scaseg.errors import UserError, nearest
from scaseg.io.hub import download

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # of a saved model
RECIPE = "recipe.yaml"  # of a run
RUNS = "runs"  # of a comparison
MODEL, BEST = Path("model"), Path("checkpoints/best")  # where a run has its model

BUILTIN = Path(__file__).parents[1] / "builtin"  # the models of the package
HUB = "hf:"  # what stands before a repository of the Hugging Face hub
USUAL = "outdoor"  # the one that commands take where none is named


def find_model(path: str | Path | None) -> Path:
    """Return the folder of a model: a saved one, that of a run, or a built-in one by its name.

    A folder of that name in the working folder comes first, as on the Hugging Face hub. Of a run
    that was cut off, the best model so far. hf:USER/MODEL is one of the Hugging Face hub. None is
    the usual built-in one. UserError where there is none.
    """
    if path is None:
        return BUILTIN / USUAL
    if isinstance(path, str) and path.startswith(HUB):
        return download(path.removeprefix(HUB), CONFIG, WEIGHTS)
    name, path = os.fspath(path), Path(path)
    is_builtin = name in builtin_models()
    try:
        if not path.is_dir():
            if is_builtin:
                return BUILTIN / name
            raise _unknown(name)
        for place in (path, path / MODEL, path / BEST):
            if (place / CONFIG).is_file():
                if not (place / WEIGHTS).is_file():  # nor a pipe: it would be read for ever
                    raise UserError(place, f"has no {WEIGHTS}", "save the model again")
                return place
        if (path / RUNS).is_dir() and (path / RECIPE).is_file():
            run = min(os.listdir(path / RUNS), default="NAME")
            remedy = f"give one of its runs, such as {path / RUNS / run}"
            raise UserError(path, "is a comparison", remedy)
        if (path / RECIPE).is_file():
            raise UserError(path, "this run has no model yet", "continue it with --resume")
    except OSError as error:  # a name too long, a folder that may not be looked into
        raise UserError.cannot_be("read", path, error, "give another folder") from error
    if is_builtin:
        problem = f"has no {CONFIG}, and hides the built-in model of its name"
        instead = "a command without --model takes the built-in one"
        raise UserError(path, problem, f"rename it, or work in another folder ({instead})")
    raise UserError(path, f"has no {CONFIG}", "give a folder written by save_pretrained")


def builtin_models() -> tuple[str, ...]:
    """The names of the models that come with the package.

    >>> builtin_models()
    ('outdoor',)
    """
    return tuple(sorted(path.parent.name for path in BUILTIN.glob(f"*/{CONFIG}")))


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
    remedy = f"give a run folder, one by save_pretrained, or a built-in model ({', '.join(names)})"
    if near := nearest(Path(name).name, names):
        remedy = f"did you mean {near}? {remedy}"
    if plain in names:  # ./outdoor, outdoor/
        remedy = f"a built-in model is named without a path: {plain}"
    return UserError(name, "no such folder", remedy)


def is_repository(name: str | Path) -> bool:
    """Whether a name can only be a repository of the hub: user/model, and nothing here."""
    is_id = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None
    return is_id and not os.path.lexists(name)
