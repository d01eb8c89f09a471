"""The paper's qualitative figure: image, truth, two predictions, and a map of the better one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Patch
from matplotlib.patheffects import withStroke

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.sample import IGNORE, Sample
from scaseg.errors import UserError
from scaseg.explanation.disagreement import Disagreement, largest_disagreements
from scaseg.explanation.figure import (
    INK,
    NO_COLOR,
    TIMES,
    evenness_note,
    map_colors,
    mark_point,
    new_figure,
    show_image,
    show_map,
    style_panel,
)
from scaseg.models.segmenter import Segmenter
from scaseg.plots.palette import UNLABELLED, Palette, colorize, default_palette, shorten
from scaseg.progress import Progress

YELLOW = "#ffe11a"
LETTERS = 30  # of a class name


def disagreement_page(
    first: Segmenter,
    second: Segmenter,
    samples: Sequence[Sample] | SegmentationDataset,
    *,
    top: int = 5,
    names: tuple[str, ...] = ("A", "B"),
    progress: Progress | None = None,
) -> Figure:
    """Draw the images with the largest regions that the second model alone gets right.

    names: of the models; their contexts are used where they differ, A and B where all are equal.
    """
    found = largest_disagreements(first, second, samples, top=top, progress=progress)
    if not found:
        problem = "the first is nowhere wrong where the second is right"
        raise UserError("", problem, "give other models, or other images")
    config = second.config
    palette = config.palette or default_palette(len(config.classes))
    ways = ((first.config.context, config.context), names, ("A", "B"))
    one, other = next(pair for pair in ways if pair[0] != pair[1])
    return draw_disagreements(found, config.classes, palette, names=(one, other))


def draw_disagreements(
    found: Sequence[Disagreement],
    classes: Sequence[str],
    palette: Palette,
    *,
    names: tuple[str, str] = ("A", "B"),
    width: float = 13,
) -> Figure:
    """Draw a row for each disagreement, and a legend of the classes that occur on the page.

    A yellow circle marks where the first model is wrong and the second right; the map, on a scale
    of its own, is what the second's neuron in the middle of the circle depends on.
    """
    if not found:
        raise UserError("disagreements", "none", "give at least one")
    cell = (width - 0.6) / 5
    shapes = [one.image.shape[1] / one.image.shape[0] for one in found]
    heights = [cell / min(3.0, max(0.4, shape)) + 0.3 for shape in shapes]
    legend = _legend(found, classes, palette)
    longest = max(len(str(entry.get_label())) for entry in legend)
    columns = max(1, min(len(legend), int(width / (0.55 + 0.068 * longest))))
    empty = any(one.maps is not None and one.maps.has_no_own(0) for one in found)
    rows = -(-len(legend) // columns) + empty
    figure = new_figure(width, sum(heights) + 0.155 * rows + 0.4)
    cells = figure.add_gridspec(len(found), 5, height_ratios=heights)
    for row, one in enumerate(found):
        panels = [figure.add_subplot(cells[row, column]) for column in range(5)]
        _draw_row(panels, one, classes, palette, names, cell)
    style: dict[str, Any] = {"ncols": columns, "fontsize": 8, "title_fontsize": 8, "frameon": False}
    style |= {"handlelength": 1.2, "columnspacing": 1.0, "labelspacing": 0.35}
    title = NO_COLOR if empty else None
    figure.legend(handles=legend, loc="outside lower center", title=title, **style)
    return figure


def _draw_row(
    panels: list[Axes],
    found: Disagreement,
    classes: Sequence[str],
    palette: Palette,
    names: tuple[str, str],
    cell: float,
) -> None:
    assert found.maps is not None
    column, row = found.center
    labels = (found.truth, found.first, found.second)
    truth, *answers = (shorten(classes[one[row, column]], LETTERS) for one in labels)
    titles = [shorten(found.name, 40), f"truth: {truth}"]
    for name, own, accuracy in zip(names, answers, found.accuracies(), strict=True):
        titles.append(f"{name}: {own}  ({100 * accuracy:.1f} % right)")
    titles.append(f"what {names[1]} depends on")
    for axes, title in zip(panels, titles, strict=True):
        style_panel(axes, title, fontsize=8.5)
    pictures = [found.image, *(colorize(one, palette) for one in labels)]
    for axes, picture in zip(panels, pictures, strict=False):
        show_image(axes, picture, cell)
        _circle(axes, found)
    colors, last = map_colors(found.maps), panels[4]
    show_map(last, found.maps, 0, colors, cell)
    mark_point(last, found.center)
    style: dict[str, Any] = {"extend": "both", "pad": 0.02, "aspect": 25, "shrink": 0.85}
    bar = last.figure.colorbar(colors, ax=last, **style)
    bar.ax.tick_params(labelsize=7, colors=INK)
    bar.set_label(f"{TIMES} the average, {found.maps.average:.2g}", fontsize=7.5, color=INK)
    # one line: the next row is near
    note = evenness_note(found.maps) or found.maps.similarity_note()
    last.set_xlabel(note, fontsize=7.5, color=INK, labelpad=3)


def _circle(axes: Axes, found: Disagreement) -> None:
    """Draw a circle of the region's area, within limits: visible, and not hiding all."""
    height, width = found.image.shape[:2]
    least, most = 0.05 * max(height, width), 0.25 * min(height, width)
    radius = max(least, min(most, float(np.sqrt(found.region.sum() / np.pi))))
    circle = Circle(found.center, radius, fill=False, edgecolor=YELLOW, linewidth=2.2, zorder=5)
    circle.set_path_effects([withStroke(linewidth=3.8, foreground="black")])
    axes.add_patch(circle)


def _legend(found: Sequence[Disagreement], classes: Sequence[str], palette: Palette) -> list[Patch]:
    """A patch for each class on the page, the most frequent first; what is unlabelled last."""
    counts = np.zeros(len(classes) + 1, np.int64)
    for one in found:
        for labels in (one.truth, one.first, one.second):
            index = np.where(labels == IGNORE, len(classes), labels)
            counts += np.bincount(index.ravel(), minlength=len(counts))
    order = [int(index) for index in np.argsort(-counts[:-1], kind="stable") if counts[index]]
    entries = [(palette[index], shorten(classes[index], LETTERS)) for index in order]
    entries += [(UNLABELLED, "unlabelled")] * bool(counts[-1])
    return [
        Patch(
            facecolor="#{:02x}{:02x}{:02x}".format(*rgb),
            edgecolor=INK,
            linewidth=0.5,
            # a legend would read $ as a formula, and leave out what starts with _
            label="\u200b" + name.replace("$", r"\$"),
        )
        for rgb, name in entries
    ]
