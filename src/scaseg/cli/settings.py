"""The settings of a run on the command line: a recipe, common options, and any key of a recipe."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.cli.options import MACHINE_KEYS, add_machine, add_max_pixels, add_with_context
from scaseg.cli.parser import Parser, add_option
from scaseg.config.keys import SECTIONS, is_read, require_read
from scaseg.errors import UserError, nearest
from scaseg.registry import BACKBONES, CONTEXTS, HEADS

if TYPE_CHECKING:
    from scaseg.config.run import RunConfig

# options that stand for a key of a recipe: the key, the value's name, the help
COMMON = {
    "epochs": ("training.epochs", "N", "passes over the training images (50)"),
    "batch_size": ("training.batch_size", "N", "images a step, on each device (8)"),
    "seed": ("training.seed", "N", "of weights, order and augmentation (0)"),
    "lr": ("training.lr", "X", "base rate of the backbone (0.0002)"),
    "head_lr": ("training.head_lr", "X", "of context and head (10 x lr)"),
    "backbone": ("model.backbone", "NAME", f"{', '.join(BACKBONES.choices())} (mobilenet_v2)"),
    "backbone_weights": (
        *("model.backbone_weights", "WHAT"),
        "imagenet, a safetensors file, or a model: a run folder; null: random weights (outdoor)",
    ),
    "context": ("model.context", "NAME", f"{', '.join(CONTEXTS)}, or MODULE:CLASS (sca)"),
    "head": ("model.head", "NAME", f"{', '.join(HEADS)}; auto: the backbone's usual one (light)"),
    "on_nan": ("training.on_nan", "WHAT", "at a loss that is not finite: stop, or skip:N (stop)"),
}
KEYS = {"data": "data.root", "max_pixels": "data.max_pixels", **MACHINE_KEYS}
KEYS |= {name: key for name, (key, *_) in COMMON.items()}


def add_settings(parser: Parser) -> None:
    """Describe a recipe and what overrides it."""
    about = "a YAML file, or a name that `scaseg recipes` lists"
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help=about)
    add_option(parser, "--data DIR", "images/ and labels/, or see `data list`")
    group = parser.add_argument_group("settings that change most often")
    for name, (_, metavar, about) in COMMON.items():
        add_option(group, f"--{name.replace('_', '-')} {metavar}", about, type=str)
    add_with_context(group)
    add_max_pixels(group)
    add_machine(parser)
    parser.set_defaults(reads_keys=SECTIONS)


def read_overrides(options: argparse.Namespace, keys: Mapping[str, str] = KEYS) -> dict[str, str]:
    """The settings that were given, {key of a recipe: text}; keys: {option: key}."""
    given = {key: getattr(options, name) for name, key in keys.items()}
    for name, key in keys.items():
        if given[key] is not None and key in options.config_keys:
            problem = f"--{name.replace('_', '-')} says it too"
            raise UserError(f"--{key}", problem, "give one of the two")
    return {key: str(one) for key, one in given.items() if one is not None} | options.config_keys


@contextmanager
def typed_options(options: argparse.Namespace, keys: Mapping[str, str] = KEYS) -> Iterator[None]:
    """Name the options that were typed in errors: --epochs for --training.epochs."""
    try:
        yield
    except UserError as error:
        names = {f"--{key}": name for name, key in keys.items() if getattr(options, name, None)}
        key, colon, within = error.place.partition(": ")
        if key not in names:
            raise
        option = f"--{names[key].replace('_', '-')}"
        raise UserError(f"{option}{colon}{within}", *error.args[1:]) from error


def read_run(
    options: argparse.Namespace,
    recipe: str | Path | None,
    keys: Mapping[str, str] = KEYS,
    contexts: Sequence[str] | None = None,
) -> RunConfig:
    """Read a recipe (None: the usual one) with the options and keys of the command line over it.

    contexts: those that are compared.
    """
    from scaseg.config.effect import require_effect
    from scaseg.config.recipe import USUAL, load_recipe

    with typed_options(options, keys):
        overrides = read_overrides(options, keys)
        run = load_recipe(USUAL if recipe is None else recipe, overrides)
        if run.model.start_from is None:  # else its architecture is another model's
            require_effect(run, overrides, contexts)
    if run.data.root is None and not run.data.is_generated:
        raise UserError("--data", "nothing", "say where the photographs and labels are")
    return run


def split_keys(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take --any.config.key VALUE (or =VALUE) out of the arguments: the rest, and {key: text}.

    Before argparse does: it would take the value of an option that it does not know for something
    else.
    """
    rest: list[str] = []
    keys: dict[str, str] = {}
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":  # nothing after it is an option
            return [*rest, argument, *waiting], keys
        found = re.fullmatch(r"--([\w-]+(?:\.[\w-]+)+)(?:=(.*))?", argument, re.DOTALL)
        if found is None:
            rest.append(argument)
            continue
        key, value = found.groups()
        if value is None:
            value = next(waiting, None)
            if value is None:
                raise UserError(f"--{key}", "no value", "give one after it")
            if value.startswith("--"):  # the next option, more likely
                remedy = f"give a value, or --{key}={value}"
                raise UserError(f"--{key}", f"{value!r} follows", remedy)
        keys[key] = value
    return rest, keys


def check_keys(keys: Iterable[str], read: Sequence[str]) -> None:
    """Refuse a key that no recipe has, or that the command does not read."""
    for key in keys:
        if not read:
            raise UserError(f"--{key}", "this command has no such option", "see scaseg --help")
        parts = key.split(".")
        # below a mapping of options anything may stand: --model.context_options.pair_channels
        if not any(".".join(parts[:end]) in recipe_keys() for end in range(2, len(parts) + 1)):
            near = key_ending(parts[-1]) or nearest(key, recipe_keys())
            advice = "scaseg train --keys lists all" if near is None else f"did you mean --{near}?"
            raise UserError(f"--{key}", "unknown key", advice)
    require_read(keys, read)


def key_ending(name: str, read: Sequence[str] = SECTIONS) -> str | None:
    """Find the key whose last part is `name`, among those that a command reads.

    >>> key_ending("ema")
    'training.ema'
    """
    ending = (key for key in recipe_keys() if key.rpartition(".")[2] == name)
    return next((key for key in ending if is_read(key, read)), None)


def recipe_keys() -> list[str]:
    """Every key that a recipe can have."""
    from scaseg.config.recipe import describe

    return [key for key, *_ in describe()]
