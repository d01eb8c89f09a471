"""The run folder: what went in, how it went, what came out.

RUN/recipe.yaml        the run, every key
RUN/environment.json   versions, machine, git revision, command
RUN/start_from.json    the model that the run started from, if any
RUN/class_pixels.json  labelled pixels of each class in the training images
RUN/data.html          some training images with their labels, of every class
RUN/metrics.csv        a row an epoch;  per_class.csv: a row an epoch and class; curve.png
RUN/validation.jpg     some validation images with labels and predictions, of the last epoch
RUN/checkpoints/       last.safetensors to resume from, previous.safetensors in case that is
                       damaged, best/ the best model so far
RUN/model/             the final model, for load_model, evaluate, predict
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from scaseg.config.recipe import save_recipe
from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.io.atomic import LEFTOVER, remove_leftovers, write_json
from scaseg.io.lock import LOCK
from scaseg.io.model_folder import RECIPE
from scaseg.io.ownership import is_run
from scaseg.io.paths import not_writable
from scaseg.version import __version__

ENVIRONMENT, PIXELS, TRACEBACK = "environment.json", "class_pixels.json", "traceback.txt"
START, DATA_PAGE = "start_from.json", "data.html"
METRICS, PER_CLASS, CURVE = "metrics.csv", "per_class.csv", "curve.png"
PICTURES = "validation.jpg"
LAST = Path("checkpoints/last.safetensors")
PACKAGES = ("torch", "pytorch-lightning", "numpy", "pillow", "safetensors", "huggingface-hub")
OURS = {RECIPE, ENVIRONMENT, PIXELS, START, TRACEBACK, METRICS, PER_CLASS, CURVE, PICTURES}
OURS |= {DATA_PAGE, "checkpoints", "model", "cache", "tensorboard", "csv"}


def check_run_folder(folder: Path, *, overwrite: bool) -> list[str]:
    """Return the names in a folder for a new run; UserError where something would be lost."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    names = [path.name for path in paths if not _is_leftover(path)]
    if names and not overwrite:
        what = "a run" if RECIPE in names else "files"
        raise UserError(
            "--out",
            f"{folder} holds {what} already",
            "use --resume to continue, --overwrite to start over, or another folder",
        )
    if names and not is_run(path.name for path in paths):
        raise UserError("--out", f"{folder} holds {names[0]}, and no run", "give another folder")
    return names


def _is_leftover(path: Path) -> bool:
    """Whether something is what a run that was killed before it began leaves behind."""
    is_empty = path.name == "checkpoints" and path.is_dir() and not any(path.iterdir())
    return is_empty or path.name == LOCK or path.name.startswith(LEFTOVER)


def create_run_folder(
    folder: Path, run: RunConfig, facts: dict[str, Any], *, overwrite: bool
) -> None:
    """Create the folder of a new run, with its recipe; an old run is removed from it.

    facts: the classes, their pixels (None where nothing needed them) and weights; the number of
    training images, and the pixels counted in all splits (None: not all were read); bands: their
    mean and std.
    """
    if run.data.cache == "disk" and run.data.cache_dir is not None:
        _make_folder("data.cache_dir", Path(run.data.cache_dir))
    for name in check_run_folder(folder, overwrite=overwrite):
        path = folder / name
        if name in OURS:  # only what a run wrote: a user's notes stay
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _make_folder("--out", (folder / LAST).parent)
    save_recipe(run, folder / RECIPE)
    write_json(folder / PIXELS, facts)


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error).within(option) from error


def record_session(folder: Path) -> None:
    """Add this session to environment.json, and remove what a killed one has left."""
    import torch

    for place in (folder, (folder / LAST).parent):
        remove_leftovers(place)
    path = folder / ENVIRONMENT
    sessions = []
    with suppress(OSError, ValueError, KeyError, TypeError):  # new, torn or foreign: started anew
        sessions = [*json.loads(path.read_text(encoding="utf-8"))["sessions"]]
    session = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "scaseg": __version__,
        "python": platform.python_version(),
        "packages": {package: metadata.version(package) for package in PACKAGES},
        "platform": platform.platform(),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "git": {
            "scaseg": _git_revision(Path(__file__).parent),
            "working folder": _git_revision(Path.cwd()),
        },
    }
    write_json(path, {"sessions": [*sessions, session]})


def _git_revision(folder: Path) -> str | None:
    """The git revision of a folder, marked where it was changed since; None outside git."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
