"""Pictures of results, by matplotlib, without a display."""

from __future__ import annotations

import csv
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scaseg.metrics import ConfusionMatrix

BLUE, MIDDLE, LIGHT = "#3b6ea5", "#6a97c4", "#9bbcd9"
GRAY, DARK = "#c9d3de", "#555555"


def write_evaluation(
    confusion: ConfusionMatrix, classes: Sequence[str], folder: Path
) -> list[Path]:
    """Write confusion.png, per_class.png and confusion.csv (pixels, rows are the truth)."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "confusion.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["truth \\ prediction", *classes])
        for name, row in zip(classes, confusion.counts.tolist(), strict=True):
            writer.writerow([name, *row])
    pictures = {
        folder / "confusion.png": confusion_figure(confusion, classes),
        folder / "per_class.png": per_class_figure(confusion, classes),
    }
    for path, figure in pictures.items():
        FigureCanvasAgg(figure).print_png(str(path))
    return [table, *pictures]


def confusion_figure(confusion: ConfusionMatrix, classes: Sequence[str]) -> Figure:
    """Show where the pixels of each true class went, in percent of the class."""
    counts = confusion.counts.numpy()
    total = counts.sum(1, keepdims=True)
    shares = np.divide(100.0 * counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
    count = len(classes)
    cell = 0.5 if count <= 12 else max(0.2, min(0.32, 36 / count))  # inches: room for 8 points
    side = 3 + cell * count
    large = max(11, 0.8 * side)  # in points: read when the whole picture is on a screen
    figure = Figure(figsize=(side + 1, side), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    colors = colormaps["Blues"].with_extremes(bad="#eeeeee")  # a class that does not occur
    image = axes.imshow(shares, cmap=colors, vmin=0, vmax=100)
    axes.set_xticks(range(count), classes, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(range(count), classes, fontsize=8, parse_math=False)
    axes.set_xlabel("prediction", fontsize=large)
    axes.set_ylabel("truth", fontsize=large)
    axes.set_title("Where the pixels of each class went (%)", fontsize=large)
    if count <= 40:  # more would not be read
        for row, column in np.ndindex(count, count):
            share = shares[row, column]
            if share >= 0.5:
                color = "white" if share > 55 else "black"
                said = f"{share:.0f}"
                axes.text(column, row, said, ha="center", va="center", color=color, fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=max(20, 2 * side))
    bar.ax.tick_params(labelsize=0.8 * large)
    bar.set_label("% of the true class", fontsize=large)
    return figure


def per_class_figure(confusion: ConfusionMatrix, classes: Sequence[str]) -> Figure:
    """Show IoU and accuracy of each class, the best first, and their means."""
    scores = confusion.scores()
    present = [index for index, iou in enumerate(scores.ious) if iou == iou]
    present.sort(key=lambda index: scores.ious[index])  # a bar chart fills from below
    absent = [index for index, iou in enumerate(scores.ious) if iou != iou]
    order = [*reversed(absent), *present]
    rows = range(len(order))
    ious = [100 * scores.ious[index] for index in order]
    accuracies = [100 * scores.accuracies[index] for index in order]
    figure = Figure(figsize=(7, 1.9 + 0.28 * len(order)), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    axes.barh(rows, np.nan_to_num(ious), color=BLUE, height=0.5, label="IoU", zorder=2)
    axes.barh(rows, np.nan_to_num(accuracies), color=GRAY, label="accuracy")
    if present:
        axes.axvline(100 * scores.mean_iou, color=BLUE, linestyle=":", label="mIoU")
    for place, name, values in ((110, "IoU", ious), (121, "acc.", accuracies)):
        color = BLUE if name == "IoU" else DARK
        lines = [(len(order) - 0.1, name), *zip(rows, map(_percent, values), strict=True)]
        for row, said in lines:
            axes.text(place, row, said, ha="right", va="center", fontsize=8, color=color)
    for row in rows[: len(absent)]:
        note = axes.text(1, row, "does not occur", va="center", fontsize=8)
        note.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    axes.set_yticks(rows, [classes[index] for index in order], parse_math=False)
    axes.set_xticks(range(0, 101, 20))
    title = "   ".join(f"{name} {_percent(value)}" for name, value in scores.summary().items())
    axes.set(xlim=(0, 122), ylim=(-0.7, len(order) - 0.3), xlabel="%")
    axes.set_title(title, pad=16)  # above the names of the columns
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, 100)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _percent(value: float) -> str:
    return "n/a" if value != value else f"{value:.1f}"


def write_curve(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write how a run went: the loss of each epoch, and the metrics of each validation."""
    FigureCanvasAgg(curve_figure(rows)).print_png(str(path))


def curve_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Show loss and metrics over the epochs of metrics.csv, the best mIoU marked."""
    figure = Figure(figsize=(7, 4), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    epochs = [int(row["epoch"]) for row in rows]
    axes.plot(epochs, [float(row["loss"]) for row in rows], color=DARK, label="training loss")
    axes.set(xlabel="epoch", ylabel="training loss")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.spines[["top"]].set_visible(False)
    validated = [row for row in rows if row["mIoU"] not in (None, "")]
    if validated:
        metrics = axes.twinx()
        metrics.spines[["top"]].set_visible(False)
        metrics.set(ylabel="validation, %", ylim=(0, 100))
        seen = [int(row["epoch"]) for row in validated]
        for name, color in (("PPA", LIGHT), ("CAA", MIDDLE), ("mIoU", BLUE)):
            values = [float(row[name]) for row in validated]
            metrics.plot(seen, values, color=color, label=name)
        best = max(validated, key=lambda row: float(row["mIoU"]))
        place = (int(best["epoch"]), float(best["mIoU"]))
        metrics.plot(*place, "o", color=BLUE)
        said = f"{place[1]:.1f}"
        metrics.annotate(said, place, (0, -14), textcoords="offset points", ha="center", color=BLUE)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure


Runs = Mapping[tuple[int | None, int], float]  # by fold and seed
Bar = tuple[float, float, float]  # middle, low, high
SIDE_BY_SIDE = 7  # variants; more would make the picture wider than any page
RUNS_TITLE, PAIRS_TITLE = "every run, mean ± standard error", "every pair, 95 % interval"


def write_comparison(
    values: Mapping[str, Runs],
    path: Path,
    *,
    means: Mapping[str, Bar],
    differences: Mapping[str, Bar],
    title: str = RUNS_TITLE,
) -> None:
    """Write the mIoU of each variant, and how far each is from the first."""
    figure = comparison_figure(values, means=means, differences=differences, title=title)
    FigureCanvasAgg(figure).print_png(str(path))


def comparison_figure(
    values: Mapping[str, Runs],
    *,
    means: Mapping[str, Bar],
    differences: Mapping[str, Bar],
    title: str = RUNS_TITLE,
) -> Figure:
    """Show every run as a point, with mean and spread, and pairs of runs against the first.

    means: with their standard errors. differences: of the pairs, with their confidence intervals.
    title: what the means are, where they are others. A few variants stand side by side; many, or
    such with long names, have a line each.
    """
    if len(values) <= SIDE_BY_SIDE:
        figure = _side_by_side(values, means, differences, title)
        if _names_have_room(figure):
            return figure
    return _line_by_line(values, means, differences, title)


def _side_by_side(
    values: Mapping[str, Runs],
    means: Mapping[str, Bar],
    differences: Mapping[str, Bar],
    title: str,
) -> Figure:
    paired = {name: values[name] for name in differences}
    width = 1.5 + 1.1 * len(values) + (1.5 + 1.1 * len(paired) if paired else 0)
    figure = Figure(figsize=(max(3.2, width), 4), layout="constrained", dpi=120)
    shares = [1 + len(values), 1 + len(paired)] if paired else [1]
    panels = figure.subplots(1, len(shares), squeeze=False, width_ratios=shares)[0]
    draw_points(panels[0], values, means, "{:.1f}")
    panels[0].set(ylabel="mIoU, %")
    panels[0].set_title(title, fontsize=9, color=DARK)
    if paired:
        first = next(iter(values))
        panels[1].axhline(0, color=DARK, linewidth=0.8, zorder=0)
        draw_points(panels[1], _gains(paired, values[first]), differences, "{:+.2f}")
        panels[1].set(ylabel=f"mIoU against {_name(first, ' ')}")
        panels[1].set_title(PAIRS_TITLE, fontsize=9, color=DARK)
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
    axes.set_xticks(range(len(values)), [_name(name, "\n") for name in values])
    axes.set(xlim=(-0.5, len(values) - 0.2))
    axes.spines[["top", "right"]].set_visible(False)


def _names_have_room(figure: Figure) -> bool:
    """Whether no name touches the next, or takes the room of the points."""
    figure.draw_without_rendering()
    gap = figure.dpi * 5 / 72
    for axes in figure.axes:
        beside = axes.yaxis.label.get_window_extent()
        below = [label.get_window_extent() for label in axes.get_xticklabels()]
        if beside.y0 < 0 or beside.y1 > figure.bbox.y1:
            return False
        if max(box.height for box in below) > figure.bbox.height / 4:
            return False
        if any(right.x0 - left.x1 < gap for left, right in pairwise(below)):
            return False
    return True


def _line_by_line(
    values: Mapping[str, Runs],
    means: Mapping[str, Bar],
    differences: Mapping[str, Bar],
    title: str,
) -> Figure:
    """A line a variant, the first on top, with its numbers: they are told where bars cannot."""
    names = [_wrapped(name) for name in values]
    parts = [name.split("\n") for name in names]
    line = max(0.38, 0.05 + 0.17 * max(map(len, parts)))  # inches
    width = 0.08 * max(len(part) for own in parts for part in own)
    width += 10 if differences else 5.5  # the panels, and the numbers beside them
    size = (width, 1.2 + line * len(values))
    figure = Figure(figsize=size, layout="constrained", dpi=120)
    panels = figure.subplots(1, 2 if differences else 1, squeeze=False)[0]
    usual = statistics.median_low(middle for middle, _, _ in means.values())
    _lines(panels[0], values, means, usual, _with_error)
    panels[0].set_yticks(range(len(names)), names, fontsize=10, parse_math=False)
    panels[0].set_xlabel("mIoU, %")
    panels[0].set_title(title, fontsize=9, color=DARK)
    if differences:
        first = next(iter(values))
        gains = _gains(values, values[first]) | {first: {}}
        panels[1].axvline(0, color=DARK, linewidth=0.8, zorder=0)
        _lines(panels[1], gains, differences, 0.0, _with_interval)
        panels[1].set_yticks([])
        panels[1].set_xlabel(_wrapped(f"mIoU against {first}"), parse_math=False)
        panels[1].set_title(PAIRS_TITLE, fontsize=9, color=DARK)
    return figure


def _lines(
    axes: Axes,
    values: Mapping[str, Runs],
    bars: Mapping[str, Bar],
    center: float,
    said: Callable[[Bar], str],
) -> None:
    """Draw runs as points, a bar with its reach below them, and say it at the right."""
    axes.set(xlim=_limits(values, bars, center), ylim=(len(values) - 0.5, -0.5))
    for row, (name, own) in enumerate(values.items()):
        if row % 2 == 0:  # bands lead the eye from a name to its numbers
            axes.axhspan(row - 0.5, row + 0.5, color=GRAY, alpha=0.25, linewidth=0, zorder=-1)
        points = list(own.values())
        axes.plot(points, [row - 0.16] * len(own), "o", color=LIGHT, markersize=5, zorder=2)
        _arrows(axes, row - 0.16, points, LIGHT)
        if name not in bars:
            continue
        middle, low, high = bars[name]
        reach, below = [[middle - low], [high - middle]], row + 0.16
        axes.errorbar(
            middle, below, xerr=reach, fmt="D", color=BLUE, capsize=3, markersize=5, zorder=3
        )
        _arrows(axes, below, [middle], BLUE)
    numbers = axes.twinx()
    numbers.set_ylim(axes.get_ylim())
    written = [said(bars[name]) if name in bars else "" for name in values]
    numbers.set_yticks(range(len(values)), written, fontsize=10, color=BLUE)
    for panel in (axes, numbers):
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRAY, linewidth=0.5, alpha=0.6)


def _limits(
    values: Mapping[str, Runs], bars: Mapping[str, Bar], center: float
) -> tuple[float, float]:
    """What to show: the centre and everything that does not press the rest together."""
    reaches = {name: max(abs(end - center) for end in bar) for name, bar in bars.items()}
    most = _most(list(reaches.values()))
    shown = [name for name in bars if reaches[name] <= most]
    ends = [center, *(end for name in shown for end in bars[name])]
    points = [value for name in shown for value in values[name].values()]
    most = _most([abs(value - center) for value in points])
    ends += [value for value in points if abs(value - center) <= most]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    return min(ends) - margin, max(ends) + margin


def _most(reaches: Sequence[float]) -> float:
    """How far is not too far: some times what is usual, and never less than three points."""
    return max(3.0, 5 * statistics.median_low(reaches)) if reaches else 0.0


def _arrows(axes: Axes, row: float, values: Sequence[float], color: str) -> None:
    """Point to what lies beyond the picture."""
    left, right = axes.get_xlim()
    across = axes.get_yaxis_transform()  # x as a share of the width
    if any(value < left for value in values):
        axes.plot(0.015, row, "<", color=color, transform=across)
    if any(value > right for value in values):
        axes.plot(0.985, row, ">", color=color, transform=across)


def _gains(values: Mapping[str, Runs], base: Runs) -> dict[str, Runs]:
    """Of each variant, what its runs have more than those of the same fold and seed."""
    return {
        name: {place: own[place] - base[place] for place in own if place in base}
        for name, own in values.items()
    }


def _with_error(bar: Bar) -> str:
    middle, low, high = bar
    return f"{middle:.2f}" + (f" ± {high - middle:.2f}" if low < high else "")


def _with_interval(bar: Bar) -> str:
    middle, low, high = bar
    return f"{middle:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if low < high else "")


def _wrapped(variant: str) -> str:
    """A variant as words, in lines that leave room for the picture."""
    return textwrap.fill(variant.replace(":", ", "), 52, break_on_hyphens=False)


def _name(variant: str, between: str) -> str:
    """A variant as matplotlib shows it as it is written."""
    return variant.replace("$", r"\$").replace(":", between)
