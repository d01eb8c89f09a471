"""Figures of results, drawn by matplotlib without a display."""

from __future__ import annotations

import statistics
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.text import Text

from scaseg.errors import UserError
from scaseg.io.atomic import whole_file
from scaseg.io.ownership import CONFUSION, MARK, PER_CLASS
from scaseg.io.table import write_rows
from scaseg.metrics import ConfusionMatrix, percent
from scaseg.plots.palette import LONGEST_NAME, shorten

BLUE, MIDDLE, LIGHT = "#3b6ea5", "#6a97c4", "#9bbcd9"
GRAY, DARK = "#c9d3de", "#555555"
FORMATS = ("png", "pdf", "svg")
EVALUATION = ("confusion.csv", "confusion.png", "per_class.png", "per_class.csv", "metrics.json")


def save_figure(figure: Figure, path: str | Path, *, format: str | None = None) -> None:  # noqa: A002
    """Write a figure as png, pdf or svg, by the path's suffix or `format`: whole, or not at all."""
    path = Path(path)
    kind = format or path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise UserError(path, f"unknown format {kind!r}", f"give {', '.join(FORMATS)}")
    mark = {"Software" if kind == "png" else "Creator": MARK}  # so that --overwrite knows it again
    _add_fonts(figure)
    with whole_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box shows it
        figure.savefig(temporary, format=kind, metadata=mark)


def _add_fonts(figure: Figure) -> None:
    """Take letters that the usual font lacks from other fonts of this machine, where any has them.

    Class names may be in any script.
    """
    texts: list[Any] = figure.findobj(Text)
    letters = {letter for text in texts for letter in text.get_text() if letter.isprintable()}
    missing = set(map(ord, letters)) - get_font(findfont(FontProperties())).get_charmap().keys()
    families = []
    for font in fontManager.ttflist if missing else ():
        # one of matplotlib's own draws a box for every letter; bitmaps have no size of ours
        if not font.name.startswith("Last Resort") and get_font(font.fname).scalable:
            found = missing & get_font(font.fname).get_charmap().keys()
            families += [font.name] * bool(found)
            missing -= found
    for text in texts if families else ():
        text.set_fontfamily([*text.get_fontfamily(), *families])


def write_evaluation(
    confusion: ConfusionMatrix, classes: Sequence[str], folder: Path
) -> list[Path]:
    """Write confusion.csv (pixels, rows are the truth), confusion.png, per_class.png and .csv.

    In per_class.csv: labelled pixels, accuracy and IoU in percent, empty for what does not occur.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in EVALUATION[:4]]
    head = [CONFUSION, *classes]
    counts = zip(classes, confusion.counts.tolist(), strict=True)
    rows = [dict(zip(head, [name, *row], strict=True)) for name, row in counts]
    write_rows(paths[0], rows)
    save_figure(confusion_figure(confusion, classes), paths[1])
    save_figure(per_class_figure(confusion, classes), paths[2])
    scores, pixels = confusion.scores(), confusion.counts.sum(1).tolist()
    columns = zip(classes, pixels, scores.accuracies, scores.ious, strict=True)
    table = [
        dict(zip(PER_CLASS, (*row[:2], *(_percent(one) for one in row[2:])), strict=True))
        for row in columns
    ]
    write_rows(paths[3], table)
    return paths


def _percent(share: float) -> float | None:
    return None if share != share else 100 * share


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
    names = list(map(_short, classes))
    axes.set_xticks(range(count), names, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(range(count), names, fontsize=8, parse_math=False)
    axes.set_xlabel("prediction", fontsize=large)
    axes.set_ylabel("truth", fontsize=large)
    axes.set_title("Where the pixels of each class went (%)", fontsize=large)
    written = np.argwhere(shares >= 0.5) if count <= 40 else ()  # more would not be read
    for row, column in written:
        share = shares[row, column]
        color = "white" if share > 55 else "black"
        axes.text(column, row, f"{share:.0f}", fontsize=8, ha="center", va="center", color=color)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=max(20, 2 * side))
    bar.ax.tick_params(labelsize=0.8 * large)
    bar.set_label("% of the true class", fontsize=large)
    return figure


def per_class_figure(confusion: ConfusionMatrix, classes: Sequence[str]) -> Figure:
    """Show IoU and accuracy of each class, the best first, and their means."""
    scores = confusion.scores()
    # a bar chart fills from below: what does not occur, then the worst
    order = sorted(range(len(classes)), key=lambda index: np.nan_to_num(scores.ious[index], nan=-1))
    absent = sum(iou != iou for iou in scores.ious)
    order[:absent] = reversed(order[:absent])
    rows = range(len(order))
    ious = [scores.ious[index] for index in order]
    accuracies = [scores.accuracies[index] for index in order]
    figure = Figure(figsize=(7, 1.9 + 0.28 * len(order)), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    bars = 100 * np.nan_to_num([ious, accuracies])
    axes.barh(rows, bars[0], color=BLUE, height=0.5, label="IoU", zorder=2)
    axes.barh(rows, bars[1], color=GRAY, label="accuracy")
    if absent < len(order):
        axes.axvline(100 * scores.mean_iou, color=BLUE, linestyle=":", label="mIoU")
    columns = ((110, "IoU", ious, BLUE), (121, "acc.", accuracies, DARK))
    for place, name, values, color in columns:
        lines = [(len(order) - 0.1, name), *zip(rows, map(percent, values), strict=True)]
        for row, text in lines:
            axes.text(place, row, text, ha="right", va="center", fontsize=8, color=color)
    for row in rows[:absent]:
        note = axes.text(1, row, "does not occur", va="center", fontsize=8)
        note.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    axes.set_yticks(rows, [_short(classes[index]) for index in order], parse_math=False)
    axes.set_xticks(range(0, 101, 20))
    means = scores.summary().items()
    axes.set(xlim=(0, 122), ylim=(-0.7, len(order) - 0.3), xlabel="%")
    title = "   ".join(f"{name} {percent(value / 100)}" for name, value in means)
    axes.set_title(title, pad=16)  # above the names of the columns
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, 100)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _short(name: str) -> str:
    """A class name that leaves room for the picture."""
    return name if len(name) <= LONGEST_NAME else shorten(name, LONGEST_NAME)


def curve_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Show loss and metrics over the epochs of metrics.csv, the best mIoU marked."""
    figure = Figure(figsize=(7, 4), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    epochs = [int(row["epoch"]) for row in rows]
    axes.plot(epochs, [float(row["loss"]) for row in rows], color=DARK, label="training loss")
    both = [(int(row["epoch"]), float(row["val_loss"])) for row in rows if row.get("val_loss")]
    if both:
        style: dict[str, Any] = {"color": DARK, "linestyle": "--", "linewidth": 1}
        axes.plot(*zip(*both, strict=True), label="validation loss", **style)
    axes.set(xlabel="epoch", ylabel="loss")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.spines[["top"]].set_visible(False)
    validated = [row for row in rows if row["mIoU"] not in (None, "")]
    if validated:
        metrics = axes.twinx()
        metrics.spines[["top"]].set_visible(False)
        metrics.set(ylabel="validation, %", ylim=(0, 100))
        epochs = [int(row["epoch"]) for row in validated]
        for name, color in (("PPA", LIGHT), ("CAA", MIDDLE), ("mIoU", BLUE)):
            values = [float(row[name]) for row in validated]
            metrics.plot(epochs, values, color=color, label=name)
        best, epoch = max(zip(values, epochs, strict=True), key=lambda pair: pair[0])
        metrics.plot(epoch, best, "o", color=BLUE)
        style = {"textcoords": "offset points", "ha": "center", "color": BLUE}
        metrics.annotate(f"{best:.1f}", (epoch, best), (0, -14), **style)
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


Runs = Mapping[tuple[int | None, int], float]  # by fold and seed
Bar = tuple[float, float, float]  # middle, low, high
FEW = 7  # variants up to which runs of one fold and seed are joined; more lines would be a net
RUNS_TITLE, PAIRS_TITLE = "every run, mean ± standard error", "every pair, 95 % interval"


def comparison_figure(
    values: Mapping[str, Runs],
    *,
    means: Mapping[str, Bar],
    differences: Mapping[str, Bar],
    title: str = RUNS_TITLE,
) -> Figure:
    """Show the mIoU of every run of each variant, and of every pair against the first's.

    A line a variant, the first on top: runs as points, means with their standard errors, and the
    differences of pairs with their confidence intervals. title: what the means are, where they
    are others.
    """
    names = [_wrapped(name) for name in values]
    parts = [name.split("\n") for name in names]
    line = max(0.38, 0.05 + 0.17 * max(map(len, parts)))  # inches
    width = 0.08 * max(len(part) for own in parts for part in own)
    width += 10 if differences else 5.5  # the panels, and the numbers beside them
    size = (width, 1.2 + line * len(values))
    figure = Figure(figsize=size, layout="constrained", dpi=120)
    panels = figure.subplots(1, 2 if differences else 1, squeeze=False)[0]
    usual = means[next(iter(values))][0]  # the first is what others are compared with: shown
    errors = {
        name: f"{middle:.2f}" + (f" ± {high - middle:.2f}" if low < high else "")
        for name, (middle, low, high) in means.items()
    }
    _draw_lines(panels[0], values, means, usual, errors)
    panels[0].set_yticks(range(len(names)), names, fontsize=10, parse_math=False)
    panels[0].set_xlabel("mIoU, %")
    panels[0].set_title(title, fontsize=9, color=DARK)
    if differences:
        first, base = next(iter(values.items()))
        gains: dict[str, Runs] = {  # over the run of the same fold and seed
            name: {run: own[run] - base[run] for run in own if run in base}
            for name, own in values.items()
        }
        intervals = {
            name: f"{middle:+.2f}" + (f" [{low:+.2f}, {high:+.2f}]" if low < high else "")
            for name, (middle, low, high) in differences.items()
        }
        panels[1].axvline(0, color=DARK, linewidth=0.8, zorder=0)
        _draw_lines(panels[1], gains | {first: {}}, differences, 0.0, intervals)
        panels[1].set_yticks([])
        panels[1].set_xlabel(_wrapped(f"mIoU against {first}"), parse_math=False)
        panels[1].set_title(PAIRS_TITLE, fontsize=9, color=DARK)
    return figure


def _draw_lines(
    axes: Axes,
    values: Mapping[str, Runs],
    bars: Mapping[str, Bar],
    center: float,
    numbers: Mapping[str, str],
) -> None:
    """Draw runs as points, a bar with its reach below them, and its numbers at the right."""
    axes.set(xlim=_limits(values, bars, center), ylim=(len(values) - 0.5, -0.5))
    if len(values) <= FEW:
        for run in dict.fromkeys(run for own in values.values() for run in own):
            joined = [
                (own[run], row - 0.16) for row, own in enumerate(values.values()) if run in own
            ]
            axes.plot(*zip(*joined, strict=True), color=GRAY, linewidth=0.8, zorder=1)
    for row, (name, own) in enumerate(values.items()):
        if row % 2 == 0:  # bands lead the eye from a name to its numbers
            axes.axhspan(row - 0.5, row + 0.5, color=GRAY, alpha=0.25, linewidth=0, zorder=-1)
        points = list(own.values())
        axes.plot(points, [row - 0.16] * len(own), "o", color=LIGHT, markersize=5, zorder=2)
        _draw_arrows(axes, row - 0.16, points, LIGHT)
        if name in bars:
            middle, low, high = bars[name]
            reach = [[middle - low], [high - middle]]
            style: dict[str, Any] = {"fmt": "D", "color": BLUE, "capsize": 3, "markersize": 5}
            axes.errorbar(middle, row + 0.16, xerr=reach, zorder=3, **style)
            _draw_arrows(axes, row + 0.16, [middle], BLUE)
    right = axes.twinx()
    right.set_ylim(axes.get_ylim())
    written = [numbers.get(name, "") for name in values]
    right.set_yticks(range(len(values)), written, fontsize=10, color=BLUE)
    for panel in (axes, right):
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRAY, linewidth=0.5, alpha=0.6)


def _limits(
    values: Mapping[str, Runs], bars: Mapping[str, Bar], center: float
) -> tuple[float, float]:
    """What to show: the center and everything that does not press the rest together."""

    def near(reaches: Sequence[float]) -> float:
        """How far is not too far: some times what is usual, and never less than three points."""
        return max(3.0, 5 * statistics.median_low(reaches)) if reaches else 0.0

    reaches = {name: max(abs(end - center) for end in bar) for name, bar in bars.items()}
    most = near(list(reaches.values()))
    shown = [name for name in bars if reaches[name] <= most]
    ends = [center, *(end for name in shown for end in bars[name])]
    points = [value for name in shown for value in values[name].values()]
    most = near([abs(value - center) for value in points])
    ends += [value for value in points if abs(value - center) <= most]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    return min(ends) - margin, max(ends) + margin


def _draw_arrows(axes: Axes, row: float, values: Sequence[float], color: str) -> None:
    """Point to what lies beyond the picture."""
    left, right = axes.get_xlim()
    across = axes.get_yaxis_transform()  # x as a share of the width
    if any(value < left for value in values):
        axes.plot(0.015, row, "<", color=color, transform=across)
    if any(value > right for value in values):
        axes.plot(0.985, row, ">", color=color, transform=across)


def _wrapped(variant: str) -> str:
    """A variant as words, in lines that leave room for the picture."""
    return textwrap.fill(variant.replace(":", ", "), 52, break_on_hyphens=False)
