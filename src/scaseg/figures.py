"""Pictures of results, by matplotlib, without a display."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scaseg.metrics import ConfusionMatrix

BLUE, GREY = "#3b6ea5", "#c9d3de"


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
    side = min(3 + 0.5 * count, 40)
    figure = Figure(figsize=(side + 1, side), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
    image.cmap.set_bad("#eeeeee")  # a class that does not occur
    size = 9 if count <= 30 else 5
    axes.set_xticks(range(count), classes, rotation=90, fontsize=size)
    axes.set_yticks(range(count), classes, fontsize=size)
    axes.set(xlabel="prediction", ylabel="truth", title="Where the pixels of each class went (%)")
    if count <= 40:  # more would not be read
        for row, column in np.ndindex(count, count):
            share = shares[row, column]
            if share >= 0.5:
                colour = "white" if share > 55 else "black"
                said = f"{share:.0f}"
                axes.text(column, row, said, ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.8, label="% of the true class")
    return figure


def per_class_figure(confusion: ConfusionMatrix, classes: Sequence[str]) -> Figure:
    """Show IoU and accuracy of each class, the best first, and their means."""
    scores = confusion.scores()
    present = [index for index, iou in enumerate(scores.ious) if iou == iou]
    present.sort(key=lambda index: scores.ious[index])  # a bar chart fills from below
    absent = [index for index, iou in enumerate(scores.ious) if iou != iou]
    order = [*absent, *present]
    figure = Figure(figsize=(7, 1.6 + 0.28 * len(order)), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    ious = [100 * scores.ious[index] if index in present else 0 for index in order]
    accuracies = [100 * scores.accuracies[index] if index in present else 0 for index in order]
    axes.barh(range(len(order)), accuracies, color=GREY, label="accuracy")
    axes.barh(range(len(order)), ious, color=BLUE, height=0.5, label="IoU")
    for row, index in enumerate(order):
        said = f"{ious[row]:.1f}" if index in present else "n/a: does not occur"
        axes.text(max(ious[row], accuracies[row]) + 1, row, said, va="center", fontsize=8)
    axes.set_yticks(range(len(order)), [classes[index] for index in order])
    axes.axvline(100 * scores.mean_iou, color=BLUE, linestyle=":", label="mIoU")
    summary = scores.summary()
    title = "   ".join(f"{name} {value:.1f}" for name, value in summary.items())
    axes.set(xlim=(0, 112), ylim=(-0.7, len(order) - 0.3), xlabel="%", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", fontsize=8)
    return figure
