"""Plots of timings: over sizes, and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scaseg.plots.figures import BLUE, LIGHT, save_figure


def save_timings(path: Path, rows: Sequence[Any], *, title: str, size_name: str) -> None:
    """Plot milliseconds and MiB of both passes over the size, a line for each contender.

    rows have contender, size, both (seconds) and both_memory (bytes or None).
    """
    figure = Figure(figsize=(9, 4), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for index, name in enumerate(dict.fromkeys(row.contender for row in rows)):
        own = sorted((row for row in rows if row.contender == name), key=lambda row: row.size)
        again = ("-", ":", "-.")[index // 10 % 3]  # there are ten colors
        sizes, style = [row.size for row in own], "--" if "compiled" in name else again
        times.plot(sizes, [1000 * row.both for row in own], style, marker="o", ms=3, label=name)
        known = [row for row in own if row.both_memory]
        mebibytes = [row.both_memory / 2**20 for row in known]
        memory.plot([row.size for row in known], mebibytes, style, marker="o", ms=3)
    for axes, label in ((times, "ms, forward and backward"), (memory, "MiB, forward and backward")):
        axes.set(xscale="log", yscale="log", xlabel=size_name, ylabel=label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=7, frameon=False, loc="outside right upper")
    figure.suptitle(title, fontsize=9)
    save_figure(figure, path)


def save_rates(path: Path, rows: Sequence[tuple[str, str, float]], *, title: str) -> None:
    """Plot (work, part, images per second) as bars, a panel for each work."""
    works = list(dict.fromkeys(work for work, _, _ in rows))
    figure = Figure(figsize=(7, 1.2 + 0.32 * len(rows)), layout="constrained")
    ratios = [sum(work == one for work, _, _ in rows) for one in works]
    panels = figure.subplots(len(works), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, work in zip(panels, works, strict=True):
        own = [(part, rate) for name, part, rate in rows if name == work]
        colors = [BLUE if part.startswith("scaseg") else LIGHT for part, _ in own]
        bars = axes.barh([part for part, _ in own], [rate for _, rate in own], color=colors)
        axes.bar_label(bars, [f"{rate:,.{0 if rate >= 100 else 1}f}" for _, rate in own], padding=3)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(work, loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("images per second")
    figure.suptitle(title, fontsize=9)
    save_figure(figure, path)
