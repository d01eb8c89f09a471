"""What is compared: contexts with options of their own, seeds and folds; a job is one of each."""

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

RUNS = "runs"
Key = tuple[str, int, int | None]  # variant, seed, fold


class Variant(NamedTuple):
    """A context with options of its own: sca, or sca:pair_channels=4."""

    name: str
    context: str
    options: dict[str, Any]


class Job(NamedTuple):
    """One training and its judgement."""

    variant: Variant
    seed: int
    fold: int | None

    @property
    def key(self) -> Key:
        return self.variant.name, self.seed, self.fold

    def __str__(self) -> str:
        return described(self.key)


def described(key: Key) -> str:
    """A job for people.

    >>> described(("sca", 1, 2))
    'sca, seed 1, fold 2'
    """
    variant, seed, fold = key
    return f"{variant}, seed {seed}" + ("" if fold is None else f", fold {fold}")


def read_variant(text: str) -> Variant:
    """Read NAME or NAME:option=value:option=value.

    >>> read_variant("sca:pair_channels=4").options
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


def matrix(run: RunConfig, variants: Sequence[Variant], seeds: int) -> list[Job]:
    """All jobs, in the order in which they are worth doing: pairs are complete early.

    All folds of the run, or the one that it names.
    """
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


def run_of(run: RunConfig, job: Job) -> RunConfig:
    """The same run with a job's context, seed and fold; nothing else differs."""
    own = job.variant.context == run.model.context  # the recipe's options belong to its context
    options = {**(run.model.context_options if own else {}), **job.variant.options}
    context: Any = job.variant.context  # one of CONTEXTS, as read_variant has seen
    return replace(
        run,
        data=replace(run.data, fold=job.fold),
        model=replace(run.model, context=context, context_options=options),
        training=replace(run.training, seed=job.seed),
    )


def place_of(folder: Path, key: Key) -> Path:
    """The run folder of a job."""
    variant, seed, fold = key
    name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant)}-seed{seed}"
    return folder / RUNS / (name if fold is None else f"{name}-fold{fold}")


def key_of(row: Mapping[str, Any]) -> Key:
    """Which job a row of results is of."""
    fold = row.get("fold")
    return row["variant"], int(row["seed"]), None if fold in (None, "") else int(str(fold))
