"""Contexts compared fairly: the same data, backbone, head, schedule and seeds; only they differ.

OUT/runs/VARIANT-seedN/   the run folders
OUT/results.csv           a row a finished run; a comparison that was cut off goes on after it
OUT/table.md, table.csv, compare.png
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from scaseg.build import CONTEXTS, load_model
from scaseg.config import RunConfig, save_recipe
from scaseg.config.reading import parse
from scaseg.figures import write_comparison
from scaseg.models import Segmenter
from scaseg.training.compared_maps import MEASURES, maps_table, measure_maps
from scaseg.training.data import evaluation_split
from scaseg.training.evaluation import evaluate
from scaseg.training.folder import LAST, MODEL, RECIPE
from scaseg.training.loop import check_device
from scaseg.training.memory_peak import MemoryPeak
from scaseg.training.rows import read_rows, write_rows
from scaseg.training.run import train
from scaseg.whole_files import whole_file

RESULTS, TABLE, CSV_TABLE, PICTURE = "results.csv", "table.md", "table.csv", "compare.png"
METRICS = ("PPA", "CAA", "mIoU")
Say = Callable[[str], None]


class Variant(NamedTuple):
    """A context with options of its own: sca, or sca:pair_channels=4."""

    name: str
    context: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """One variant over all seeds; differences are to the first variant, seed by seed."""

    name: str
    runs: int
    mean: dict[str, float]
    spread: dict[str, float]  # standard deviation over seeds; 0 for one
    difference: dict[str, float]
    difference_error: dict[str, float]  # standard error of the mean difference
    parameters: int
    milliseconds: float  # of training, an image
    mebibytes: float | None


def read_variant(text: str) -> Variant:
    """Read NAME or NAME:option=value:option=value.

    >>> read_variant("sca:pair_channels=4").options
    {'pair_channels': 4}
    """
    context, *settings = text.split(":")
    if context not in CONTEXTS:
        raise ValueError(f"--contexts: {context!r}; give some of {', '.join(CONTEXTS)}")
    options = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--contexts: {text!r}; options are NAME:key=value:key=value")
        options[key] = parse(value)
    return Variant(text, context, options)


def compare(
    run: RunConfig,
    variants: Sequence[Variant],
    seeds: int,
    out: str | Path,
    *,
    split: str | None = None,
    quiet: bool = False,
    say: Say | None = None,
) -> list[Summary]:
    """Train and evaluate every variant with every seed, and write the table; finished runs stay."""
    folder = Path(out)
    say = say or (lambda line: None)
    _open(folder, run, write=False)
    rows = read_rows(folder / RESULTS)
    done = {(row["variant"], int(row["seed"])) for row in rows}
    first = run.training.seed
    wanted = [(variant, first + index) for index in range(seeds) for variant in variants]
    waiting = [
        variant for variant in variants if any((variant.name, s) not in done for _, s in wanted)
    ]
    for variant in waiting:
        # one batch of each before hours of the first: options that do not fit show now, and what
        # only the first training loads is not counted as its memory
        train(_described(run, variant, first), None, fast_dev_run=True, quiet=True)
    _open(folder, run, write=True)
    _judge_again(rows, run, folder, split)
    for number, (variant, seed) in enumerate(wanted, 1):
        if (variant.name, seed) in done:
            continue
        say(f"run {number} of {len(wanted)}: {variant.name}, seed {seed}")
        rows.append(_one(run, variant, seed, folder, split=split, quiet=quiet))
        write_rows(folder / RESULTS, rows)
    write_rows(folder / RESULTS, rows)
    names = [variant.name for variant in variants]
    chosen = [row for row in rows if row["variant"] in names and int(row["seed"]) < first + seeds]
    summaries = summarise(chosen, names)
    write_tables(summaries, folder, maps_table(chosen, names))
    write_comparison({name: _values(chosen, name, "mIoU") for name in names}, folder / PICTURE)
    return summaries


def summarise(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[Summary]:
    """Mean and spread of each variant, and its paired differences to the first."""
    found = []
    for name in names:
        own = [row for row in rows if row["variant"] == name]
        mean, spread, difference, error = {}, {}, {}, {}
        for metric in METRICS:
            values, reference = _values(rows, name, metric), _values(rows, names[0], metric)
            paired = [values[seed] - reference[seed] for seed in values if seed in reference]
            mean[metric] = statistics.fmean(values.values())
            spread[metric] = _deviation(list(values.values()))
            difference[metric] = statistics.fmean(paired)
            error[metric] = _deviation(paired) / math.sqrt(len(paired))
        memory = [float(row["mebibytes"]) for row in own if row["mebibytes"] not in (None, "")]
        found.append(
            Summary(
                name=name,
                runs=len(own),
                mean=mean,
                spread=spread,
                difference=difference,
                difference_error=error,
                parameters=int(own[0]["parameters"]),
                milliseconds=statistics.median(float(row["milliseconds"]) for row in own),
                mebibytes=max(memory) if memory else None,
            )
        )
    return found


def markdown(summaries: Sequence[Summary]) -> str:
    """The comparison as a table for people."""
    first = summaries[0].name
    lines = [
        "| context | runs | PPA/aAcc | CAA/mAcc | mIoU | mIoU against "
        f"{first} | parameters | training, ms/image | peak memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in summaries:
        values = " | ".join(f"{row.mean[name]:.1f} ± {row.spread[name]:.1f}" for name in METRICS)
        paired = f"{row.difference['mIoU']:+.2f} ± {row.difference_error['mIoU']:.2f}"
        memory = "n/a" if row.mebibytes is None else f"{row.mebibytes:,.0f} MiB"
        lines.append(
            f"| {row.name} | {row.runs} | {values} | {'' if row.name == first else paired} | "
            f"{row.parameters / 1e6:.2f} M | {row.milliseconds:.1f} | {memory} |"
        )
    note = (
        "Mean ± standard deviation over seeds; differences are paired by seed, mean ± standard "
        "error."
    )
    return "\n".join([*lines, "", note, ""])


def write_tables(summaries: Sequence[Summary], folder: Path, maps: str = "") -> None:
    """Write table.md, with what was measured of the maps below, and table.csv."""
    with whole_file(folder / TABLE) as temporary:
        text = markdown(summaries) + (f"\n{maps}" if maps else "")
        temporary.write_text(text, encoding="utf-8")
    rows = []
    for one in summaries:
        row: dict[str, Any] = {"context": one.name, "runs": one.runs}
        for name in METRICS:
            row |= {name: one.mean[name], f"{name}_spread": one.spread[name]}
            row |= {f"{name}_difference": one.difference[name]}
            row |= {f"{name}_difference_error": one.difference_error[name]}
        row |= {"parameters": one.parameters, "milliseconds": one.milliseconds}
        rows.append(row | {"mebibytes": one.mebibytes})
    write_rows(folder / CSV_TABLE, rows)


def _one(
    run: RunConfig, variant: Variant, seed: int, folder: Path, *, split: str | None, quiet: bool
) -> dict[str, Any]:
    """Train and judge one network; a run that was cut off goes on where it was."""
    place = _place(folder, variant.name, seed)
    own = _described(run, variant, seed)
    resume = (place / LAST).is_file() and (place / RECIPE).is_file()
    device = check_device(own.machine)
    with MemoryPeak(device) as peak:
        result = train(own, place, resume=resume, overwrite=not resume, quiet=quiet)
    model = load_model(place / MODEL)
    speed = statistics.median(float(row["images_per_second"]) for row in result.rows)
    return {
        "variant": variant.name,
        "seed": seed,
        **_judge(model, run, split),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "milliseconds": 1000 / speed,
        "mebibytes": None if resume else peak.mebibytes,  # a part of a run says little
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
    }


def _judge(model: Segmenter, run: RunConfig, split: str | None) -> dict[str, Any]:
    """What a model is worth on a split, and how selective it is there."""
    dataset, said = evaluation_split(run.data, split)
    judged = evaluate(model, dataset, machine=replace(run.machine, devices=1, nodes=1))
    scores = {**judged.scores.summary(), "images": judged.images, "split": said}
    return scores | measure_maps(model, dataset)


def _judge_again(
    rows: list[dict[str, Any]], run: RunConfig, folder: Path, split: str | None
) -> None:
    """Bring finished runs up to date: judged on another split, or by an earlier version."""
    said = evaluation_split(run.data, split)[1] if rows else ""
    for row in rows:
        place = _place(folder, row["variant"], int(row["seed"])) / MODEL
        if (row.get("split"), "entropy" in row) != (said, True) and place.is_dir():
            row |= _judge(load_model(place), run, split)
        for name in ("split", *MEASURES):
            row.setdefault(name, None)


def _place(folder: Path, variant: str, seed: int) -> Path:
    return folder / "runs" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant)}-seed{seed}"


def _described(run: RunConfig, variant: Variant, seed: int) -> RunConfig:
    """The same run with another context and seed."""
    options = {**run.model.context_options, **variant.options}
    context: Any = variant.context  # one of CONTEXTS, as read_variant has seen
    return replace(
        run,
        model=replace(run.model, context=context, context_options=options),
        training=replace(run.training, seed=seed),
    )


def _open(folder: Path, run: RunConfig, *, write: bool) -> None:
    """Make the folder, or go on in it if it holds the same comparison; write=False: only look."""
    recipe = folder / RECIPE
    if recipe.is_file():
        from scaseg.config import load_recipe

        before = replace(load_recipe(recipe), machine=run.machine)
        if before != run:
            raise ValueError(
                f"--out: {folder} holds a comparison with other settings; give another folder"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--out: {folder} holds something else; give another folder")
    if write:
        folder.mkdir(parents=True, exist_ok=True)
        save_recipe(run, recipe)


def _values(rows: Sequence[dict[str, Any]], name: str, metric: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[metric]) for row in rows if row["variant"] == name}


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
