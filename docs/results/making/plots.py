"""Plots of options: mean and spread along one of them, and all variants against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from making.paper import LETTERS
from making.studies import Study, read_axis
from scaseg.comparison.statistics import Summary, values_of
from scaseg.io.table import read_rows
from scaseg.plots.figures import (
    BLUE,
    DARK,
    GRAY,
    LIGHT,
    RUNS_TITLE,
    Bar,
    Runs,
    comparison_figure,
    save_figure,
)

FONT = 10
COUNTED, NEURONS = Path(__file__).parents[2] / "contexts.csv", 784  # by `scaseg contexts --csv`


def write_axes(study: Study, options: Sequence[str], path: Path) -> None:
    """Draw mIoU over the values of each option, and below it the differences to the first."""
    save_figure(axes_figure(study, options), path)


def axes_figure(study: Study, options: Sequence[str]) -> Figure:
    """Above every run and the mean ± standard error; below every pair and its 95 % interval."""
    found = {axis: study.along(axis) for axis in options}
    ratios = [0.8 + len(values) for values in found.values()]
    figure = Figure(figsize=(9, 6), layout="constrained", dpi=120)
    panels = figure.subplots(2, len(found), squeeze=False, width_ratios=ratios, sharey="row")
    base = values_of(study.rows, study.names[0], "mIoU")
    for column, (axis, values) in enumerate(found.items()):
        option, given = read_axis(axis)
        above, below = panels[0][column], panels[1][column]
        usual = None if given else study.options[option]  # at other values there is no default
        shown = {
            f"{value}\n(default)" if value == usual else str(value): one
            for value, one in values.items()
        }
        runs = {tick: values_of(study.rows, one.name, "mIoU") for tick, one in shown.items()}
        gains = {
            tick: {place: own[place] - base[place] for place in own if place in base}
            for tick, own in runs.items()
        }
        means = {tick: _mean(study, one) for tick, one in shown.items()}
        differences = {
            tick: bar
            for tick, one in shown.items()
            if one.name != study.names[0] and (bar := _difference(study, one)) is not None
        }
        draw_points(above, runs, means, "{:.2f}")
        below.axhline(0, color=DARK, linewidth=0.8, zorder=0)
        draw_points(below, gains, differences, "{:+.2f}")
        letter = LETTERS.get(option)
        name = f"${letter}$, {option}" if letter else option
        beside = "".join(f" ({key} = {value})" for key, value in given.items())
        below.set_xlabel(name + beside, fontsize=FONT)
    panels[0][0].set_ylabel("mIoU, %", fontsize=FONT)
    panels[1][0].set_ylabel(f"mIoU against {study.names[0]}", fontsize=FONT)
    means = "mean" if study.adjusted else "mean ± standard error"
    for row, title in enumerate((f"every run, {means}", "every pair, 95 % interval")):
        panels[row][0].set_title(title, fontsize=9, color=DARK, loc="left")
    return figure


def draw_points(axes: Axes, values: Mapping[str, Runs], bars: Mapping[str, Bar], said: str) -> None:
    """Draw runs as points, those of one fold and seed joined, and a bar with its reach beside."""
    for run in sorted({run for own in values.values() for run in own}):
        points = [(place, own[run]) for place, own in enumerate(values.values()) if run in own]
        axes.plot(*zip(*points, strict=True), color=GRAY, linewidth=0.8, zorder=1)
    for place, (name, own) in enumerate(values.items()):
        axes.plot([place] * len(own), list(own.values()), "o", color=LIGHT, markersize=5, zorder=2)
        if name not in bars:
            continue
        middle, low, high = bars[name]
        beside = place + 0.18
        reach = [[middle - low], [high - middle]]
        axes.errorbar(beside, middle, yerr=reach, fmt="D", color=BLUE, capsize=4, zorder=3)
        axes.annotate(
            said.format(middle),
            (beside, middle),
            (7, 0),
            textcoords="offset points",
            va="center",
            color=BLUE,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
    axes.set_xticks(range(len(values)), list(values))
    axes.set(xlim=(-0.5, len(values) - 0.2))
    axes.spines[["top", "right"]].set_visible(False)


def write_variants(study: Study, path: Path) -> None:
    """Draw every run and every difference to the first, as `scaseg compare` does."""
    figure = comparison_figure(
        {name: values_of(study.rows, name, "mIoU") for name in study.names},
        means={one.name: _mean(study, one) for one in study.summaries},
        differences={
            one.name: bar
            for one in study.summaries[1:]
            if (bar := _difference(study, one)) is not None
        },
        title="every run, mean fitted to all folds" if study.adjusted else RUNS_TITLE,
    )
    save_figure(figure, path)


def write_costs(study: Study, path: Path) -> None:
    """Draw mIoU over what each context computes, and over the memory of training."""
    save_figure(costs_figure(study), path)


def costs_figure(study: Study) -> Figure:
    """A point for each variant, mean ± standard error; names at the right, by mIoU."""
    figure = Figure(figsize=(9, 5), layout="constrained", dpi=120)
    panels = figure.subplots(1, 2, sharey=True)
    # not the time of training: trainings side by side have had more or less company
    counted = {row["context"]: row for row in read_rows(COUNTED) if int(row["n"]) == NEURONS}
    own = [counted.get(one.name.partition(":")[0]) for one in study.summaries]
    costs = {
        f"context alone, multiply-adds at n = {NEURONS}, G": [
            int(row["multiply_adds"]) / 1e9 if row else None for row in own
        ],
        "training, peak memory, MiB": [one.mebibytes for one in study.summaries],
    }
    bars = [_mean(study, one) for one in study.summaries]
    reach = [[middle - low for middle, low, _ in bars], [high - middle for middle, _, high in bars]]
    for axes, (title, values) in zip(panels, costs.items(), strict=True):
        known = [place for place, value in enumerate(values) if value is not None]
        for place in known:
            one = [[reach[0][place]], [reach[1][place]]]
            axes.errorbar(values[place], bars[place][0], yerr=one, fmt="o", color=BLUE, capsize=2)
        axes.set_xlabel(title, fontsize=FONT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        _name_points(axes, {study.summaries[k].name: (values[k], bars[k][0]) for k in known})
    panels[0].set_xscale("log")
    panels[0].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].xaxis.set_major_formatter("{x:g}")
    panels[0].xaxis.set_minor_formatter(NullFormatter())
    panels[0].set_ylabel("mIoU, %", fontsize=FONT)
    panels[0].set_title("mean ± standard error", fontsize=9, color=DARK, loc="left")
    return figure


def _name_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write the names in a column beside the axes, a line from each to its point."""
    low, high = axes.get_ylim()
    ranked = sorted(points, key=lambda name: points[name][1])
    gap = (high - low) / max(len(ranked), 18)
    place = low - gap
    heights = {}
    for name in ranked:  # as near as there is room, from below
        place = heights[name] = max(points[name][1], place + gap)
    over = max(0.0, place - high)
    for name in ranked:
        axes.annotate(
            name,
            points[name],
            (1.02, max(low, heights[name] - over)),
            textcoords=axes.get_yaxis_transform(),
            fontsize=7,
            va="center",
            color=DARK,
            arrowprops={"arrowstyle": "-", "color": GRAY, "linewidth": 0.6},
        )


def _mean(study: Study, one: Summary) -> Bar:
    if study.adjusted is not None and one.name in study.adjusted["mIoU"]:
        return (study.adjusted["mIoU"][one.name].mean,) * 3  # folds differ, variants do not
    return one.bar


def _difference(study: Study, one: Summary) -> Bar | None:
    found = study.difference(one)
    return found.bar if found else None
