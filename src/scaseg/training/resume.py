"""What may change when a run is resumed, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scaseg.config.recipe import load_recipe
from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.io.model_folder import RECIPE
from scaseg.training.data import TrainingData
from scaseg.training.module import SegmentationModule, poly_factor
from scaseg.training.run_folder import PIXELS

# settings that may change when a run is resumed, perhaps on another machine; on another number of
# devices the images of a step stay as many
MOVABLE = {"machine.devices", "machine.nodes", "data.root", "training.on_nan", "training.epochs"}
MOVABLE |= {f"machine.{key}" for key in ("device", "precision", "channels_last", "workers")}
MOVABLE |= {f"machine.{key}" for key in ("strategy", "augment", "activation_checkpointing")}
MOVABLE |= {"machine.cuda_graphs"}


def changes(
    folder: Path, overrides: Mapping[str, Any], recipe: str | Path | None = None
) -> dict[str, Any]:
    """Those settings of a command that may change in the run of a folder, to be resumed.

    recipe: that the command names; None: that of the run. UserError where there is no run, or
    another setting differs from it; what is said again is fine.
    """
    if not (folder / RECIPE).is_file():
        problem = f"{folder} has no run ({RECIPE})"
        raise UserError("--resume", problem, "start it without --resume")
    recorded = asdict(load_recipe(folder / RECIPE))
    wanted = asdict(load_recipe(recipe or folder / RECIPE, overrides))
    for key in sorted(set(overrides) - MOVABLE):
        first, *rest = key.split(".")
        now, before = wanted[first], recorded[first]
        for part in rest:
            now, before = now.get(part), before.get(part)
        if now != before:
            problem = f"cannot change in a run that is resumed ({before} in {folder})"
            remedy = f"leave it out, or begin another run: --start-from {folder}"
            raise UserError(f"--{key}", problem, remedy)
    return {key: value for key, value in overrides.items() if key in MOVABLE}


def keep_batch(run: RunConfig, before: RunConfig) -> tuple[RunConfig, list[str]]:
    """The run with as many images a step as before, on however many processes; and a note."""
    images = before.training.batch_size * before.machine.devices * before.machine.nodes
    processes = run.machine.devices * run.machine.nodes
    if processes == before.machine.devices * before.machine.nodes:
        return run, []
    if images % processes:
        problem = f"{processes} processes for the {images} images of a step"
        raise UserError("--devices", problem, f"give a number that divides {images}")
    size = images // processes
    note = f"{images} images a step, as before: {size} on each of {processes}"
    return replace(run, training=replace(run.training, batch_size=size)), [note]


def require_same_images(folder: Path, data: TrainingData) -> list[str]:
    """Refuse another number of training images: order, weights and schedule are of the first.

    Return a note where label maps have changed since.
    """
    count, counted = before, labels = len(data.train), data.counted
    with suppress(OSError, ValueError, KeyError, TypeError):  # an earlier version's, or torn
        recorded = json.loads((folder / PIXELS).read_text(encoding="utf-8"))
        before, labels = recorded["images"], recorded.get("counted")
    if before != count:
        problem = f"{count} training images, and {before} when the run began"
        remedy = f"restore them, or begin another run: --start-from {folder}"
        raise UserError("--data", problem, remedy)
    if None in (counted, labels) or json.dumps(counted) == json.dumps(labels):
        return []
    return ["note: label maps have changed since the run began; it goes on with those of now"]


def schedule_note(module: SegmentationModule, before: int, done: int) -> str:
    """Say what another number of epochs does to the learning rate."""
    config, steps = module.config, (before * module.steps // module.config.epochs, module.steps)
    power, warmup = config.poly_power, config.warmup
    old, new = (config.lr * poly_factor(done, one, power=power, warmup=warmup) for one in steps)
    return (
        f"{before} -> {config.epochs} epochs: the schedule goes on where a run of {config.epochs} "
        f"would be, lr {old:.1e} -> {new:.1e}"
    )
