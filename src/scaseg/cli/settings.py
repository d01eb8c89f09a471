"""The settings of a run on the command line: a recipe, the options that change most often, keys."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.limits import add_max_pixels
from scaseg.cli.machine import MACHINE_KEYS, add_machine
from scaseg.cli.parser import Parser

if TYPE_CHECKING:
    from scaseg.config.run import RunConfig

# options that stand for a key of the run: what a person types, and where it goes
KEYS = {
    "data": "data.root",
    "max_pixels": "data.max_pixels",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "seed": "training.seed",
    "lr": "training.lr",
    "head_lr": "training.head_lr",
    "backbone": "model.backbone",
    "backbone_weights": "model.backbone_weights",
    "context": "model.context",
    "head": "model.head",
    "on_nan": "training.on_nan",
    **MACHINE_KEYS,
}


def add_settings(parser: Parser) -> None:
    """Describe a recipe and what overrides it."""
    parser.add_argument("recipe", nargs="?", metavar="RECIPE.yaml", help="the settings of the run")
    parser.add_argument("--data", metavar="DIR", help="images/ and labels/, or see `data list`")
    group = parser.add_argument_group("settings that change most often")
    group.add_argument("--epochs", metavar="N", help="passes over the training images (50)")
    group.add_argument("--batch-size", metavar="N", help="images a step, on each device (3)")
    group.add_argument("--seed", metavar="N", help="of weights, order and augmentation (0)")
    group.add_argument("--lr", metavar="X", help="base rate of the backbone (0.001)")
    group.add_argument("--head-lr", metavar="X", help="of context and head (10 x lr)")
    group.add_argument("--backbone", metavar="NAME", help="vgg16, mobilenet_v2 or tiny (vgg16)")
    group.add_argument(
        "--backbone-weights",
        metavar="WHAT",
        help="imagenet, a safetensors file, or a model: outdoor, a run folder (random weights)",
    )
    group.add_argument("--context", metavar="NAME", help="none, average, sca or dot (sca)")
    group.add_argument(
        "--head",
        metavar="NAME",
        help="fcn, compact, light or pointwise (fcn for vgg16, compact, pointwise for tiny)",
    )
    group.add_argument(
        "--on-nan", metavar="WHAT", help="at a loss that is not finite: stop, or skip:N (stop)"
    )
    add_max_pixels(group)
    add_machine(parser)
    parser.set_defaults(takes_keys=True)


def given_settings(options: argparse.Namespace) -> dict[str, str]:
    """The options that were given, by the names that were typed."""
    return {
        name: str(getattr(options, name)) for name in KEYS if getattr(options, name) is not None
    }


def read_run(options: argparse.Namespace, recipe: str | Path | None, parser: Parser) -> RunConfig:
    """Put a recipe, options and keys together; exit with one line where something does not fit."""
    from scaseg.config.recipe import load_recipe

    given = given_settings(options)
    overrides = {KEYS[name]: text for name, text in given.items()} | options.config_keys
    try:
        run = load_recipe(recipe, overrides)
    except ValueError as fault:
        said = str(fault)
        for name in given:  # by the name that was typed
            if said.startswith(f"--{KEYS[name]}:"):
                said = said.replace(f"--{KEYS[name]}:", f"--{name.replace('_', '-')}:", 1)
        parser.error(said)
    if run.data.root is None and not run.data.is_generated:
        parser.error("--data: nothing; say where the photographs and labels are")
    return run
