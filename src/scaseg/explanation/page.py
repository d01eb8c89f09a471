"""The paper's qualitative figure: image, truth, two predictions, and a map of the better one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke

from scaseg.data.sample import IGNORE
from scaseg.errors import UserError
from scaseg.explanation.disagreement import Disagreement, Disagreements
from scaseg.explanation.figure import (
    INK,
    LEGEND_LINE,
    LETTERS,
    NO_COLOR,
    TIMES,
    add_class_legend,
    evenness_note,
    legend_rows,
    map_colors,
    mark_point,
    new_figure,
    show_image,
    show_map,
    style_panel,
)
from scaseg.metrics import percent
from scaseg.models.segmenter import Segmenter
from scaseg.plots.palette import (
    UNLABELLED,
    Color,
    Palette,
    colorize,
    default_palette,
    shorten,
)

WIN, LOSS = "#ffe11a", "#ff5a4f"  # circles
HEADING = 0.32  # inches


def disagreement_page(
    found: Disagreements, model: Segmenter, *, names: tuple[str, str] = ("A", "B")
) -> Figure:
    """Draw where the second model alone is right, and then where the first alone is.

    model: the second, for its classes and colors. names: of both.
    """
    if not found.wins and not found.losses:
        problem = "both are right and wrong at the same places"
        raise UserError("", problem, "give other models, or other images")
    config = model.config
    palette = config.palette or default_palette(len(config.classes))
    first, second = names
    headings = tuple(
        f"only {right} is right: {percent(share, 2)} % of the labelled pixels in all"
        for right, share in ((second, found.only_second), (first, found.only_first))
    )
    both = [*found.wins, *found.losses]
    return draw_disagreements(both, config.classes, palette, names=names, headings=headings)


def model_names(first: Segmenter, second: Segmenter, names: tuple[str, ...]) -> tuple[str, str]:
    """Tell two models apart: by their contexts, else by `names`, else as A and B."""
    ways = ((first.config.context, second.config.context), names, ("A", "B"))
    one, other = next(pair for pair in ways if pair[0] != pair[1])
    return one, other


def draw_disagreements(
    found: Sequence[Disagreement],
    classes: Sequence[str],
    palette: Palette,
    *,
    names: tuple[str, str] = ("A", "B"),
    headings: tuple[str, ...] = (),
    width: float = 13,
) -> Figure:
    """Draw a row for each disagreement, and a legend of the classes that occur on the page.

    A yellow circle marks where the first model is wrong and the second right, a red one where the
    second is wrong and the first right; the map, on a scale of its own, is what the second's neuron
    in the middle of the circle depends on. headings: of wins and of losses.
    """
    if not found:
        raise UserError("disagreements", "none", "give at least one")
    cell = (width - 0.6) / 5
    rows: list[Disagreement | str] = []
    for is_win, heading in zip((True, False), headings or ("", ""), strict=True):
        rows += [heading] * bool(heading) + [one for one in found if one.is_win == is_win]
    heights = [HEADING if isinstance(row, str) else _height(row, cell) for row in rows]
    legend = _legend(found, classes, palette)
    empty = any(one.maps is not None and one.maps.has_no_own(0) for one in found)
    lines = len(legend_rows(legend, width)) + empty
    figure = new_figure(width, sum(heights) + LEGEND_LINE * lines + 0.4)
    cells = figure.add_gridspec(len(rows), 5, height_ratios=heights)
    for index, row in enumerate(rows):
        if isinstance(row, str):
            axes = figure.add_subplot(cells[index, :])
            axes.set_axis_off()
            axes.text(0, 0.1, row, fontsize=11, color=INK, parse_math=False)
        else:
            panels = [figure.add_subplot(cells[index, column]) for column in range(5)]
            _draw_row(panels, row, classes, palette, names, cell)
    add_class_legend(figure, legend, width, NO_COLOR if empty else None)
    return figure


def _height(found: Disagreement, cell: float) -> float:
    shape = found.image.shape[1] / found.image.shape[0]
    return cell / min(3.0, max(0.4, shape)) + 0.3


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
    color = WIN if found.is_win else LOSS
    circle = Circle(found.center, radius, fill=False, edgecolor=color, linewidth=2.2, zorder=5)
    circle.set_path_effects([withStroke(linewidth=3.8, foreground="black")])
    axes.add_patch(circle)


def _legend(
    found: Sequence[Disagreement], classes: Sequence[str], palette: Palette
) -> list[tuple[Color, str]]:
    """Color and name of each class on the page, the most frequent first; unlabelled last."""
    counts = np.zeros(len(classes) + 1, np.int64)
    for one in found:
        for labels in (one.truth, one.first, one.second):
            index = np.where(labels == IGNORE, len(classes), labels)
            counts += np.bincount(index.ravel(), minlength=len(counts))
    order = [int(index) for index in np.argsort(-counts[:-1], kind="stable") if counts[index]]
    entries = [(palette[index], shorten(classes[index], LETTERS)) for index in order]
    return entries + [(UNLABELLED, "unlabelled")] * bool(counts[-1])
