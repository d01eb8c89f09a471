"""What was measured: a study is a folder with a results.csv, as `scaseg compare` leaves it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from making.adjusted import Adjusted, adjusted
from making.pairs import VariantPair, every_pair
from scaseg import SelectiveContext
from scaseg.comparison.jobs import Job, parse_variant
from scaseg.comparison.results import RESULTS
from scaseg.comparison.statistics import METRICS, Difference, Summary, summarize
from scaseg.config.recipe import load_recipe
from scaseg.errors import UserError
from scaseg.io.model_folder import RECIPE
from scaseg.io.table import Row, read_rows
from scaseg.registry import CONTEXTS, options_of

# what the others are compared with, where it is not the first of CONTEXTS
FIRST = {
    "hyper_parameters": "sca",
    **dict.fromkeys(("atlantis_candidates", "cut/atlantis", "cut/stanford_background"), "average"),
}
ADJUSTED = {"hyper_parameters"}  # many variants in few folds: one noise for all of them
OPTIONS = {
    name: value.default for name, value in inspect.signature(SelectiveContext).parameters.items()
}
OPTIONS["score_std"] = 0.01  # what None stands for with one pair channel


@dataclass(frozen=True)
class Study:
    """The rows of one results.csv; the first of its names is what the others are compared with."""

    name: str
    folder: Path
    rows: list[Row]
    names: list[str]

    @cached_property
    def summaries(self) -> list[Summary]:
        return summarize(self.rows, self.names)

    @cached_property
    def pairs(self) -> list[VariantPair]:
        return every_pair(self.rows, self.names)

    @cached_property
    def adjusted(self) -> dict[str, dict[str, Adjusted]] | None:
        """Of each metric, the variants as if all had run in all folds; None: they are paired."""
        if self.name not in ADJUSTED:
            return None
        return {metric: adjusted(self.rows, self.names, metric) for metric in METRICS}

    def difference(self, one: Summary) -> Difference | None:
        """How much more mIoU a variant has than the first."""
        if self.adjusted is None:
            return one.difference["mIoU"]
        found = self.adjusted["mIoU"].get(one.name)
        return found.difference if found else None

    @property
    def counted(self) -> str:
        """What is counted: folds or seeds."""
        return self.summaries[0].counted

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the options of `sca` are where a variant does not say."""
        recipe = self.folder / RECIPE
        own = load_recipe(recipe).model.context_options if recipe.is_file() else {}
        return OPTIONS | own

    def along(self, axis: str) -> dict[Any, Summary]:
        """The variants of `sca` that differ in one option at most, by its value.

        axis: an option, or OPTION:other=value where the others stand at other values than usual.
        """
        option, given = read_axis(axis)
        found: dict[Any, Summary] = {}
        for one in self.summaries:
            variant = parse_variant(one.name)
            if variant.context != "sca" or not set(variant.options) <= {option, *given}:
                continue
            own = self.options | variant.options
            without = own["layers"] == 0  # no layers: hidden says nothing
            if all(own[key] == given[key] or (without and key == "hidden") for key in given):
                found.setdefault(own[option], one)
        return dict(sorted(found.items(), key=lambda item: _sortable(item[0])))


def read_axis(axis: str) -> tuple[str, dict[str, Any]]:
    """An option, and what others are set to.

    >>> read_axis("layers:hidden=128")
    ('layers', {'hidden': 128})
    """
    option, _, rest = axis.partition(":")
    return option, parse_variant(f"sca:{rest}").options if rest else {}


def find_studies(root: Path) -> dict[str, Study]:
    """Every study below a folder, by its path there."""
    found = {}
    for path in sorted(root.rglob(RESULTS)):
        name = path.parent.relative_to(root).as_posix()
        rows = read_rows(path)
        jobs = [Job.of_row(row) for row in rows]
        if doubled := next((job for job in jobs if jobs.count(job) > 1), None):
            raise UserError(path, f"{doubled} has two rows", "remove one")
        if rows:
            names = in_order(row["variant"] for row in rows)
            names.sort(key=lambda one: one != FIRST.get(name))
            found[name] = Study(name, path.parent, rows, names)
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """Variants as tables have them: by context, the plain one first, then by options and values.

    >>> in_order(["dot", "sca:hidden=256", "sca:hidden=128", "none", "sca"])
    ['none', 'sca', 'sca:hidden=128', 'sca:hidden=256', 'dot']
    """
    return sorted(dict.fromkeys(names), key=_place)


def _place(name: str) -> tuple[Any, ...]:
    variant = parse_variant(name)
    known = [*OPTIONS, *options_of(variant.context)]  # those of `sca` first
    options = ((known.index(key), _sortable(value)) for key, value in variant.options.items())
    return list(CONTEXTS).index(variant.context), *sorted(options)


def _sortable(value: Any) -> tuple[int, float, str]:
    """Numbers before words, numbers by size."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)
