"""Recipes: a run in YAML, read with overrides from the command line, written back whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from scaseg.config.reading import Dumper, Text, parse, read, what_fits
from scaseg.config.run import DataConfig, RunConfig
from scaseg.errors import UserError, located, nearest
from scaseg.io.atomic import write_text

RECIPES = Path(__file__).parents[1] / "recipes"
USUAL = "own_folder"  # what train and compare take where none is named
USUAL_NOTE = f"no recipe: {USUAL}, for photographs of your own (`scaseg recipes` lists others)"
MOST_BYTES = 1 << 20  # a recipe has some kilobytes; what is larger is something else


def load_recipe(
    recipe: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    data: DataConfig | None = None,
) -> RunConfig:
    """Read a recipe, and put overrides ({"training.epochs": 3}, or "3" as typed) over it.

    recipe: a YAML file, the name of one that comes with the package (see `recipe_names`), or None
    for the defaults. data: replaces the recipe's data before the overrides are applied.
    UserError names the file or option, the key's path, what came and what fits.
    """
    run = RunConfig()
    if recipe is not None:
        path = find_recipe(recipe)
        with located(recipe):
            run = read(RunConfig, _read_yaml(path))
    if data is not None:
        run = replace(run, data=data)
    if not overrides:
        return run
    plain = asdict(run)
    for key, value in overrides.items():
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            _put(plain, key, Text(text))
        except UserError as error:
            raise UserError(f"--{key}", repr(text), str(error)) from error
    with located("--", separator=""):
        return read(RunConfig, plain)


def recipe_names() -> list[str]:
    """The recipes that come with the package.

    >>> recipe_names()[:2]
    ['atlantis_contexts', 'camvid']
    """
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def find_recipe(recipe: str | Path) -> Path:
    """The file of a recipe: a path, or a name of the package; a file of that name comes first."""
    path = Path(recipe)
    names = recipe_names()
    if not os.path.lexists(path) and str(recipe) in names:
        return RECIPES / f"{recipe}.yaml"
    if os.path.isdir(path):
        raise UserError(path, "a folder", f"give a recipe in YAML, or --data {path}")
    if not os.path.isfile(path):
        near = nearest(path.name.removesuffix(".yaml"), names)
        guess = f"did you mean {near}? " if near else ""
        fits = "give a recipe in YAML, or one that `scaseg recipes` lists"
        raise UserError(path, "no such file", f"{guess}{fits}")
    return path


def save_recipe(run: RunConfig, path: str | Path, *, exclusive: bool = False) -> None:
    """Write a run so that `load_recipe` reads the same; exclusive: unless there is one."""
    write_text(Path(path), to_yaml(run), exclusive=exclusive)


def to_yaml(run: RunConfig) -> str:
    """A run as YAML, every key in its place."""
    return yaml.dump(asdict(run), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def describe(config: Any = None, path: str = "") -> Iterator[tuple[str, Any, str, str]]:
    """Give the path, value, legal values and purpose of every key; config: the default run."""
    config = RunConfig() if config is None else config
    hints = get_type_hints(type(config))
    for item in fields(config):
        value, where = getattr(config, item.name), f"{path}{item.name}"
        if is_dataclass(value):
            yield from describe(value, f"{where}.")
        else:
            yield where, value, what_fits(hints[item.name], item.metadata), item.metadata["about"]


def _put(plain: dict[str, Any], key: str, value: Text) -> None:
    """Set one value by its path; what does not exist is put there, for `read` to refuse."""
    *sections, last = key.split(".")
    place = plain
    for section in sections:
        inner = place.get(section)
        if isinstance(inner, Text):  # the whole mapping was given before, and now a part of it
            inner = parse(inner)
        place[section] = inner if isinstance(inner, dict) else {}
        place = place[section]
    # below a mapping of options there is no type to tell: YAML decides
    place[last] = parse(value) if len(sections) > 1 else value


def _read_yaml(path: Path) -> Any:
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise UserError("", f"{size} bytes", f"a recipe has {MOST_BYTES} at most")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("", f"cannot be read ({error})", "give a recipe in YAML") from error
    plain = parse(text)
    return {} if plain is None else plain
