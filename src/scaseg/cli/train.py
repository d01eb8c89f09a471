"""scaseg train."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from scaseg.cli.machine import MACHINE_KEYS, add_machine
from scaseg.cli.parser import Parser

KEYS = {
    "data": "data.root",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "seed": "training.seed",
    "lr": "training.lr",
    "head_lr": "training.head_lr",
    "backbone": "model.backbone",
    "backbone_weights": "model.backbone_weights",
    "context": "model.context",
    "head": "model.head",
    **MACHINE_KEYS,
}
# what may change when a run is continued, perhaps on another machine
MOVABLE = {"data", *MACHINE_KEYS}


def add_train(add: Callable[..., Parser]) -> None:
    """Describe the command."""
    parser = add(
        "train",
        help="train a network on photographs and label maps",
        description="Train a network. A recipe holds all settings; options override it. Without a "
        "recipe the settings are the paper's. The run folder gets the recipe, metrics.csv, "
        "checkpoints, and the final model in RUN/model.",
        epilog="example: scaseg train recipes/own_folder.yaml --data photos --out runs/first "
        "--epochs 20; any key of a recipe is an option: --training.ema 0.999, --augment.crop "
        "'[256, 256]'; --keys lists them",
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE.yaml", help="the settings of the run")
    parser.add_argument(
        "--data", metavar="DIR", help="the data: images/ and labels/, or see `data`"
    )
    parser.add_argument("--out", metavar="RUN", help="the run folder, new or empty")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument(
        "--overwrite", action="store_true", help="start over in the folder of a run"
    )
    parser.add_argument(
        "--fast-dev-run", action="store_true", help="one batch of each kind, nothing written"
    )
    parser.add_argument("--keys", action="store_true", help="list all keys of a recipe, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    group = parser.add_argument_group("settings that change most often")
    group.add_argument("--epochs", metavar="N", help="passes over the training images (50)")
    group.add_argument("--batch-size", metavar="N", help="images a step, on each device (3)")
    group.add_argument("--seed", metavar="N", help="of weights, order and augmentation (0)")
    group.add_argument("--lr", metavar="X", help="base rate of the backbone (0.001)")
    group.add_argument("--head-lr", metavar="X", help="of context and head (10 x lr)")
    group.add_argument("--backbone", metavar="NAME", help="vgg16 or mobilenet_v2 (vgg16)")
    group.add_argument(
        "--backbone-weights",
        metavar="PATH",
        help="imagenet, or a safetensors file (random weights)",
    )
    group.add_argument("--context", metavar="NAME", help="none, average, sca or dot (sca)")
    group.add_argument("--head", metavar="NAME", help="fcn or compact (fcn)")
    add_machine(parser)
    parser.set_defaults(run=_train, takes_keys=True)


def _train(options: argparse.Namespace, parser: Parser) -> None:
    from scaseg.config import describe, load_recipe

    if options.keys:
        for key, value, fits, about in describe():
            sys.stdout.write(f"{key}: {_shown(value)}\n    {about}\n    {fits}\n")
        return
    given = {name: getattr(options, name) for name in KEYS if getattr(options, name) is not None}
    overrides = {KEYS[name]: str(value) for name, value in given.items()}
    names = {KEYS[name]: f"--{name.replace('_', '-')}" for name in given}
    overrides.update(options.config_keys)
    if options.out is None and not options.fast_dev_run:
        parser.error("--out: nothing; say where the run goes")
    recipe = options.recipe
    if options.resume:
        recipe = _recipe_to_resume(options, set(given) | set(options.config_keys), parser)
    try:
        run = load_recipe(recipe, overrides)
    except ValueError as fault:
        said = str(fault)
        for key, name in names.items():  # by the name that was typed
            said = (
                said.replace(f"--{key}:", f"{name}:", 1) if said.startswith(f"--{key}:") else said
            )
        parser.error(said)
    if run.data.root is None:
        parser.error("--data: nothing; say where the photographs and labels are")
    _run(options, run, parser)


def _run(options: argparse.Namespace, run: object, parser: Parser) -> None:
    from scaseg.config import RunConfig
    from scaseg.training.run import TrainingError, train

    assert isinstance(run, RunConfig)
    folder = None if options.out is None else Path(options.out)
    try:
        result = train(
            run,
            folder,
            resume=options.resume,
            overwrite=options.overwrite,
            fast_dev_run=options.fast_dev_run,
            quiet=options.quiet,
            say=None if options.quiet else lambda line: print(line, file=sys.stderr),
        )
    except TrainingError as fault:
        kept = ""
        if folder is not None and folder.is_dir():
            (folder / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
            kept = f"; details in {folder / 'traceback.txt'}, earlier checkpoints are intact"
        parser.exit(1, f"error: {fault}{kept}\n")
    except ValueError as fault:
        parser.error(str(fault))
    from scaseg.training.loop import is_first_process

    if is_first_process() and not options.quiet:
        from scaseg.training.summary import summary

        sys.stdout.write(summary(result, run))


def _recipe_to_resume(options: argparse.Namespace, given: set[str], parser: Parser) -> Path:
    """Find what a run was, and refuse to change it half-way."""
    if options.recipe is not None or options.overwrite or options.fast_dev_run:
        parser.error("--resume: comes with --out alone; the rest is in the run folder")
    other = sorted(given - MOVABLE - set(MACHINE_KEYS.values()) - {"data.root"})
    if other:
        parser.error(
            f"--resume: --{other[0].replace('_', '-')} cannot change in a run; leave it out"
        )
    from scaseg.training.folder import LAST, RECIPE

    folder = Path(options.out)
    for name, what in ((RECIPE, "no run"), (LAST, "no checkpoint yet")):
        if not (folder / name).is_file():
            parser.error(f"--resume: {folder} has {what} ({name}); start it without --resume")
    return folder / RECIPE


def _shown(value: object) -> str:
    return "null" if value is None else str(list(value) if isinstance(value, tuple) else value)
