"""The paper's qualitative figure: image, truth, two predictions, and what the better one saw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Patch
from matplotlib.patheffects import withStroke

from scaseg.data.sample import IGNORE
from scaseg.explanation.disagreement import Comparison
from scaseg.explanation.figure import (
    INK,
    NO_COLOR,
    TIMES,
    evenness,
    map_colors,
    mark_point,
    panel,
    show_image,
    show_map,
    tight,
)
from scaseg.explanation.similarity import likeness
from scaseg.plots.palette import UNLABELLED, Palette, color

YELLOW = "#ffe11a"
LETTERS = 30  # of a class name in the legend
DPI = 150


def draw_comparisons(
    comparisons: Sequence[Comparison],
    classes: Sequence[str],
    palette: Palette,
    *,
    names: tuple[str, str] = ("A", "B"),
    width: float = 13,
) -> Figure:
    """Draw a row for each comparison, and a legend of the classes that occur on the page.

    A yellow circle marks where the first model is wrong and the second right; the map, on a scale
    of its own, is what the second's neuron in the middle of the circle depends on.
    """
    if not comparisons:
        raise ValueError("comparisons: none; give at least one")
    cell = (width - 0.6) / 5
    heights = [cell / min(3.0, max(0.4, _shape(one))) + 0.3 for one in comparisons]
    legend = _legend(comparisons, classes, palette)
    columns, rows = _columns(legend, width)
    empty = any(one.maps is not None and one.maps.is_own_empty(0) for one in comparisons)
    height = sum(heights) + 0.155 * (rows + empty) + 0.4
    figure = Figure(figsize=(width, height), layout=tight(), dpi=DPI)
    cells = figure.add_gridspec(len(comparisons), 5, height_ratios=heights)
    for row, found in enumerate(comparisons):
        panels = [panel(figure.add_subplot(cells[row, column])) for column in range(5)]
        _draw_row(figure, panels, found, classes, palette, names, cell)
    figure.legend(
        handles=legend,
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.0,
        labelspacing=0.35,
        title=NO_COLOR if empty else None,
        title_fontsize=8,
    )
    return figure


def _draw_row(
    figure: Figure,
    panels: list[Axes],
    found: Comparison,
    classes: Sequence[str],
    palette: Palette,
    names: tuple[str, str],
    cell: float,
) -> None:
    assert found.maps is not None
    x, y = found.center
    accuracies = found.accuracies()
    said = [classes[labels[y, x]] for labels in (found.truth, found.first, found.second)]
    pictures = [found.image, *(color(one, palette) for one in (found.truth, found.first))]
    pictures.append(color(found.second, palette))
    titles = [
        _short(found.name, 40),
        f"truth: {_short(said[0])}",
        f"{names[0]}: {_short(said[1])}  ({100 * accuracies[0]:.1f} % right)",
        f"{names[1]}: {_short(said[2])}  ({100 * accuracies[1]:.1f} % right)",
        f"what {names[1]} looked at",
    ]
    for axes, picture in zip(panels, pictures, strict=False):
        show_image(axes, picture, cell)
        _circle(axes, found)
    scale, colors = map_colors(found.maps)
    show_map(panels[4], found.maps, 0, scale, colors, cell)
    mark_point(panels[4], found.center, "", found.maps.grid)
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=8.5, color=INK, pad=3, parse_math=False)
    bar = figure.colorbar(
        ScalarMappable(scale, colors),
        ax=panels[4],
        extend="both",
        pad=0.02,
        aspect=25,
        shrink=0.85,
    )
    bar.ax.tick_params(labelsize=7, colors=INK)
    bar.set_label(f"{TIMES} the average, {found.maps.average:.2g}", fontsize=7.5, color=INK)
    under = evenness(found.maps) or likeness(found.maps)  # one line: the next row is near
    panels[4].set_xlabel(under, fontsize=7.5, color=INK, labelpad=3)


def _circle(axes: Axes, found: Comparison) -> None:
    """As large as the region would be, were it round; large enough to be seen, not to hide all."""
    height, width = found.image.shape[:2]
    least, most = 0.05 * max(height, width), 0.25 * min(height, width)
    radius = max(least, min(most, float(np.sqrt(found.region.sum() / np.pi))))
    circle = Circle(found.center, radius, fill=False, edgecolor=YELLOW, linewidth=2.2, zorder=5)
    circle.set_path_effects([withStroke(linewidth=3.8, foreground="black")])
    axes.add_patch(circle)


def _legend(
    comparisons: Sequence[Comparison], classes: Sequence[str], palette: Palette
) -> list[Artist]:
    """A patch for each class on the page, the most frequent first; what is unlabelled last."""
    counts = np.zeros(len(classes) + 1, np.int64)
    for found in comparisons:
        for labels in (found.truth, found.first, found.second):
            index = np.where(labels == IGNORE, len(classes), labels)
            counts += np.bincount(index.ravel(), minlength=len(counts))
    order = [int(index) for index in np.argsort(-counts[:-1], kind="stable") if counts[index]]
    patches = [_patch(palette[index], _short(classes[index])) for index in order]
    if counts[-1]:
        patches.append(_patch(UNLABELLED, "unlabelled"))
    return patches


def _patch(rgb: tuple[int, int, int], name: str) -> Artist:
    fill = "#{:02x}{:02x}{:02x}".format(*rgb)
    # a legend would read $ as a formula, and leave out what starts with _
    name = name.replace("$", r"\$")
    return Patch(facecolor=fill, edgecolor=INK, linewidth=0.5, label=f"\u200b{name}")


def _columns(legend: Sequence[Artist], width: float) -> tuple[int, int]:
    """How many columns of names fit a page of `width` inches, and the rows they then take."""
    longest = max(len(str(entry.get_label())) for entry in legend)
    columns = max(1, min(len(legend), int(width / (0.55 + 0.068 * longest))))
    return columns, -(-len(legend) // columns)


def _short(name: str, most: int = LETTERS) -> str:
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"


def _shape(found: Comparison) -> float:
    return found.image.shape[1] / found.image.shape[0]
