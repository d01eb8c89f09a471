"""Plots of options: mean and spread along one of them, and all variants against the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from making.paper import LETTERS
from making.studies import Study, read_axis
from scaseg.comparison.statistics import Summary, values_of
from scaseg.plots.figures import DARK, RUNS_TITLE, draw_points, write_comparison

Bar = tuple[float, float, float]  # middle, low, high
FONT = 10


def write_axes(study: Study, options: Sequence[str], path: Path) -> None:
    """Draw mIoU over the values of each option, and below it the differences to the first."""
    FigureCanvasAgg(axes_figure(study, options)).print_png(str(path))


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


def write_variants(study: Study, path: Path) -> None:
    """Draw every run and every difference to the first, as `scaseg compare` does."""
    write_comparison(
        {name: values_of(study.rows, name, "mIoU") for name in study.names},
        path,
        means={one.name: _mean(study, one) for one in study.summaries},
        differences={
            one.name: bar
            for one in study.summaries[1:]
            if (bar := _difference(study, one)) is not None
        },
        title="every run, mean fitted to all folds" if study.adjusted else RUNS_TITLE,
    )


def _mean(study: Study, one: Summary) -> Bar:
    middle, error = one.mean["mIoU"], one.error["mIoU"] or 0.0
    if study.adjusted is not None and one.name in study.adjusted["mIoU"]:
        middle, error = study.adjusted["mIoU"][one.name].mean, 0.0  # folds differ, variants do not
    return middle, middle - error, middle + error


def _difference(study: Study, one: Summary) -> Bar | None:
    found = study.difference(one)
    if found is None:
        return None
    low, high = (found.mean if end is None else end for end in (found.low, found.high))
    return found.mean, low, high
