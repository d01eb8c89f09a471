"""What is compared: variants (contexts with options), seeds and folds; a job is one of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scaseg.config.reading import parse
from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.registry import CONTEXTS

Key = tuple[str, int, int | None]  # variant, seed, fold


class Variant(NamedTuple):
    """A context with options of its own: sca, or sca:pair_channels=4."""

    name: str
    context: str
    options: dict[str, Any]


class Job(NamedTuple):
    """One training and its evaluation."""

    variant: Variant
    seed: int
    fold: int | None

    @property
    def key(self) -> Key:
        return self.variant.name, self.seed, self.fold

    def __str__(self) -> str:
        return describe_key(self.key)

    def configure(self, run: RunConfig) -> RunConfig:
        """The same run with this job's context, seed and fold; nothing else differs."""
        variant, model = self.variant, run.model
        # the recipe's options belong to the recipe's context
        options = model.context_options if variant.context == model.context else {}
        options = {**options, **variant.options}
        return replace(
            run,
            data=replace(run.data, fold=self.fold),
            model=replace(model, context=variant.context, context_options=options),
            training=replace(run.training, seed=self.seed),
        )


def parse_variant(text: str) -> Variant:
    """Read NAME or NAME:option=value:option=value.

    >>> parse_variant("sca:pair_channels=4").options
    {'pair_channels': 4}
    """
    context, *settings = text.split(":")
    if context not in CONTEXTS:
        raise UserError.choice("--contexts", context, CONTEXTS)
    options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError("--contexts", repr(text), "options are NAME:key=value:key=value")
        options[key] = parse(value)
    return Variant(text, context, options)


def make_jobs(run: RunConfig, variants: Sequence[Variant], seeds: int) -> list[Job]:
    """All jobs, ordered so that pairs are complete early; all folds, or the one the run names."""
    folds: list[int | None] = [run.data.fold]
    if run.data.folds is not None and run.data.fold is None:
        folds = list(range(1, run.data.folds + 1))
    first = run.training.seed
    return [
        Job(variant, first + index, fold)
        for index in range(seeds)
        for fold in folds
        for variant in variants
    ]


def describe_key(key: Key) -> str:
    """A job's key for people.

    >>> describe_key(("sca", 1, 2))
    'sca, seed 1, fold 2'
    """
    variant, seed, fold = key
    return f"{variant}, seed {seed}" + ("" if fold is None else f", fold {fold}")


def run_folder(folder: Path, key: Key) -> Path:
    """The run folder of a job within the folder of the comparison."""
    variant, seed, fold = key
    name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant)}-seed{seed}"
    return folder / "runs" / (name if fold is None else f"{name}-fold{fold}")


def key_of(row: Mapping[str, Any]) -> Key:
    """The key of a row of results."""
    fold = row.get("fold")
    return row["variant"], int(row["seed"]), None if fold in (None, "") else int(str(fold))
