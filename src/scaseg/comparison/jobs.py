"""What is compared: variants (contexts with options), seeds and folds; a job is one of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scaseg.config.reading import parse
from scaseg.config.run import RunConfig
from scaseg.errors import UserError
from scaseg.registry import CONTEXTS, options_of, require_taken


class Variant(NamedTuple):
    """A context with options of its own."""

    context: str
    options: dict[str, Any]


class Job(NamedTuple):
    """One training and its evaluation: variant (sca, or sca:pair_channels=4), seed and fold."""

    variant: str
    seed: int
    fold: int | None = None

    def __str__(self) -> str:
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.variant}, seed {self.seed}{fold}"

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Job:
        """The job whose row of results this is."""
        fold = row.get("fold")
        return cls(row["variant"], int(row["seed"]), None if fold in (None, "") else int(str(fold)))

    def run_folder(self, folder: str | Path) -> Path:
        """The run folder of the job within the folder of the comparison."""
        fold = "" if self.fold is None else f"-fold{self.fold}"
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.variant)
        if re.search(r"[^A-Za-z0-9_.:=-]", self.variant):  # [1,2] and [[1],2] are not one folder
            name += f"-{hashlib.sha256(self.variant.encode()).hexdigest()[:6]}"
        return Path(folder) / "runs" / f"{name}-seed{self.seed}{fold}"

    def configure(self, run: RunConfig) -> RunConfig:
        """The same run with this job's context, seed and fold; nothing else differs."""
        context, options = parse_variant(self.variant)
        options = {**run.model.context_options, **options}  # a context ignores those of others
        return replace(
            run,
            data=replace(run.data, fold=self.fold),
            model=replace(run.model, context=context, context_options=options),
            training=replace(run.training, seed=self.seed),
        )


def parse_variant(text: str) -> Variant:
    """Read NAME or NAME:option=value:option=value; a context of one's own is MODULE:CLASS.

    >>> parse_variant("sca:pair_channels=4")
    Variant(context='sca', options={'pair_channels': 4})
    """
    context, *settings = text.split(":")
    if context not in CONTEXTS and settings and "=" not in settings[0]:
        context = f"{context}:{settings.pop(0)}"
    if context not in CONTEXTS:
        raise UserError.choice("--contexts", context, CONTEXTS)
    options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError("--contexts", repr(text), "options are NAME:key=value:key=value")
        options[key] = parse(value)
    return Variant(context, options)


def check_variants(variants: Sequence[str]) -> None:
    """Raise UserError unless these are contexts with options of theirs, each once."""
    for variant in variants:
        context, options = parse_variant(variant)
        require_taken(options, [context], f"--contexts: {variant}: ")
        known = [one for one in options_of(context) if one != "classes"]
        for name in options:
            if name not in known:
                raise UserError.choice(f"--contexts: {variant}", name, known)
    if len(set(variants)) < len(variants):
        raise UserError("--contexts", " ".join(variants), "give each once")


def make_jobs(run: RunConfig, variants: Sequence[str], seeds: int) -> list[Job]:
    """All jobs, ordered so that pairs are complete early; all folds, or the one the run names."""
    check_variants(variants)
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
