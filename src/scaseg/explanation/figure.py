"""Dependency maps as a figure: after section 5.4 of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import log
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from scaseg.errors import UserError
from scaseg.explanation.maps import DependencyMaps
from scaseg.metrics import percent
from scaseg.plots.palette import Color, overlay, shorten

DPI = 150
MAX_MAPS = 60
OPACITY = 0.6  # of the classes over the photograph
SMALLEST, MAX_CLASSES = 0.005, 24  # share and number of classes in the legend
LETTERS = 30  # of a class name
TITLE, LEGEND_LINE = 0.28, 0.155  # inches
NEARLY_EVEN = 0.1  # a scale that spans less than this part of the average shows hardly anything
INK = "#222222"
GRAY = 128  # a color that no scale has
NO_COLOR = "grey at the ring: a neuron takes no context from itself"
TIMES = "\N{MULTIPLICATION SIGN}"
Rgb = NDArray[np.uint8]
# Perceptually uniform; its ends, black and white, are left out: no photograph shows upon them
COLORS = ListedColormap(colormaps["inferno"](np.linspace(0.08, 0.97, 256)), "dependency")


def draw_dependency_maps(maps: DependencyMaps, *, width: float = 10) -> Figure:
    """Draw a photograph and its prediction with the points numbered, and the map of each point.

    width in inches. All maps share one scale, so that they can be compared; its numbers are
    multiples of the share that each neuron would have if all counted alike, and, above, the shares
    themselves. The lightest and darkest half percent are cut off, so that one neuron cannot make
    all others look alike. Of more than MAX_MAPS classes, the largest are drawn.
    """
    if len(maps) > MAX_MAPS and maps.regions is None:
        raise UserError("point", f"{len(maps)}", f"a figure has room for {MAX_MAPS} at most")
    count = min(len(maps), MAX_MAPS)
    height_px, width_px = maps.image.shape[:2]
    shape = min(4.0, max(0.25, width_px / height_px))  # beyond, a strip of cells would be lines
    large = 1 if maps.segmentation is None else 2
    layout = choose_layout(count, shape, large=large)
    cell = width / layout.columns
    caption, legend = _caption(maps), _legend_entries(maps)
    below = 0.9 + 0.16 * len(caption.splitlines())  # inches: the scale, and what stands under it
    below += LEGEND_LINE * len(legend_rows(legend, width))
    heights = [cell / shape + TITLE * has_title for has_title in layout.titled_rows()]
    figure = new_figure(width, sum(heights) + below)
    cells = figure.add_gridspec(layout.rows, layout.columns, height_ratios=heights)
    colors = map_colors(maps)

    span = layout.span
    pictures = [figure.add_subplot(cells[place]) for place in layout.large_panels()]
    show_image(pictures[0], maps.image, cell * span)
    style_panel(pictures[0], "photograph")
    if maps.segmentation is not None:
        found = maps.segmentation
        painted = overlay(maps.image, found.labels, found.palette, OPACITY)
        show_image(pictures[1], painted, cell * span)
        style_panel(pictures[1], "prediction")
    for index, place in zip(range(count), layout.free_cells(), strict=False):
        axes = style_panel(figure.add_subplot(cells[place]), _heading(maps, index, cell))
        show_map(axes, maps, index, colors, cell)
        if (point := maps.points[index]) is not None:
            for picture in pictures:
                mark_point(picture, point, maps.names[index])
            mark_point(axes, point)
        if maps.regions is not None:
            _outline(axes, maps, maps.regions[index])
    _add_scale(figure, colors, maps.average, caption)
    if legend:
        add_class_legend(figure, legend, width)
    return figure


class Layout(NamedTuple):
    """Cells of a figure: one or two large panels at the top left, small ones in the rest.

    span: rows and columns that a large panel takes. stacked: the second lies below the first.
    """

    rows: int
    columns: int
    span: int
    large: int = 1
    stacked: bool = False

    def large_panels(self) -> list[tuple[slice, slice]]:
        """The cells of each large panel."""
        starts = [index * self.span for index in range(self.large)]
        first = slice(0, self.span)
        parts = [slice(start, start + self.span) for start in starts]
        return [(part, first) if self.stacked else (first, part) for part in parts]

    def titled_rows(self) -> list[bool]:
        """Whether any panel begins in a row, and has its title there."""
        begun = {part[0].start for part in self.large_panels()}
        begun |= {row for row, _ in self.free_cells()}
        return [row in begun for row in range(self.rows)]

    def free_cells(self) -> Iterator[tuple[int, int]]:
        """The other cells, row by row."""
        high, wide = (self.large * self.span, self.span)[:: 1 if self.stacked else -1]
        for row, column in np.ndindex(self.rows, self.columns):
            if row >= high or column >= wide:
                yield row, column


def choose_layout(count: int, shape: float, *, large: int = 1, page: float = 1.6) -> Layout:
    """Arrange `count` small panels and one or two large ones, all of width / height `shape`.

    Preferred: a page near `page` in shape, no empty cells, large panels that take a third of the
    width, and few columns. The weights were chosen by looking at pages of 1 to 12.
    """

    def cost(layout: Layout) -> float:
        rows, columns, span, *_ = layout
        ratio = columns * shape / rows
        empty = 1 - (large * span**2 + count) / (rows * columns)
        narrow = max(0.0, 0.35 - span / columns)
        tall = max(0.0, -log(ratio))  # screens are wide
        return abs(log(ratio / page)) + tall + 6 * empty + 3 * narrow + 0.06 * columns

    def layouts() -> Iterator[Layout]:
        for stacked, span in product((False, True)[:large], (1, 2, 3)):
            high, wide = (large * span, span)[:: 1 if stacked else -1]
            for columns in range(wide, count + large * span + 1):
                rows = max(high, -(-(count + large * span**2) // columns))
                yield Layout(rows, columns, span, large, stacked)

    return min(layouts(), key=cost)


def map_colors(maps: DependencyMaps) -> ScalarMappable:
    """Return the common scale of all maps, in multiples of the average; around 0 if signed."""
    values = _multiples(maps)
    if (values < 0).any():
        most = float(np.quantile(np.abs(values), 0.995)) or 1.0
        return ScalarMappable(Normalize(-most, most), colormaps["RdBu_r"])
    low, high = (float(np.quantile(values, q)) for q in (0.005, 0.995))
    if high - low < 1e-3 * max(high, 1e-9):  # all alike: no color for rounding errors
        low, high = 0.0, max(2 * high, 1e-9)
    return ScalarMappable(Normalize(low, high), COLORS)


def evenness_note(maps: DependencyMaps) -> str:
    """Say how little the coefficients differ where colors show hardly anything; else nothing."""
    low, high = (float(np.quantile(_multiples(maps), q)) for q in (0.005, 0.995))
    if high - low >= NEARLY_EVEN:
        return ""
    most = 100 * max(1 - low, high - 1)
    nearly = f"nearly even: 99 % lie within {most:.2g} % of the average"
    return "all alike" if most < 0.1 else nearly


def _multiples(maps: DependencyMaps) -> NDArray[np.floating]:
    """All coefficients of all maps, in multiples of the average, without empty own entries."""
    counts = np.ones(maps.maps.shape, bool)
    for index, (row, column) in enumerate(maps.neurons):
        counts[index, row, column] = not maps.has_no_own(index)
    return maps.maps[counts] / maps.average if counts.any() else np.zeros(1)


def show_map(
    axes: Axes, maps: DependencyMaps, index: int, colors: ScalarMappable, inches: float
) -> None:
    """Draw one map in its colors, with the photograph's details as light and shade upon it.

    Where a neuron takes no context from itself there is no coefficient, and no color: left as 0 it
    would look like a neuron that does not count, and its shadow like several. (The photograph
    instead of grey was tried: pale sand on a dark map looks like a high value.)
    """
    small = _fit_panel(maps.image, inches)
    row, column = maps.neurons[index].tolist()
    values, empty = maps.maps[index].copy(), maps.has_no_own(index)
    if empty:  # the mean of its neighbours: no shadow around it
        around = values[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
        values[row, column] = around.sum() / max(1, around.size - 1)
    multiples = maps.grid.upsample(values, small.shape[:2]) / maps.average
    picture = shade(colors.to_rgba(multiples)[..., :3], small)
    if empty:
        picture[maps.grid.cell(row, column, small.shape[:2])] = GRAY
    show_image(axes, picture, inches, size=maps.image.shape[:2])


def shade(painted: NDArray[np.floating], image: Rgb) -> Rgb:
    """Lay the details of a photograph over colors: what differs from its surroundings.

    Not a mixture of the two: a bright sky would then look like a high value. Wide areas keep the
    colors of the scale, in dark photographs as in light ones.
    """
    gray = Image.fromarray(image).convert("L")
    around = gray.filter(ImageFilter.GaussianBlur(max(2.0, max(gray.size) / 40)))
    detail = np.asarray(gray, np.float32) - np.asarray(around, np.float32)
    strength = max(4.0, float(np.quantile(np.abs(detail), 0.97)))  # noise of a blank stays small
    light = (detail / strength).clip(-1, 1)[..., None] * 0.33
    mixed = np.where(light > 0, painted + (1 - painted) * light, painted * (1 + 1.4 * light))
    return (255 * mixed.clip(0, 1)).astype(np.uint8)


def show_image(
    axes: Axes, image: Rgb, inches: float, *, size: tuple[int, int] | None = None
) -> None:
    """Draw pixels so that coordinates are those of a photograph of `size`, whatever is drawn."""
    height, width = size or image.shape[:2]
    edges = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(_fit_panel(image, inches), extent=edges, interpolation="bilinear", aspect="equal")


def _fit_panel(image: Rgb, inches: float) -> Rgb:
    """Shrink what has more pixels than the panel shows; enlarge what is tiny, smoothly."""
    height, width = image.shape[:2]
    wanted = 2 * DPI * inches / max(height, width)
    if 0.5 <= wanted <= 1:
        return image
    size = (max(1, round(width * wanted)), max(1, round(height * wanted)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def mark_point(axes: Axes, point: tuple[float, float], name: str = "") -> None:
    """Ring a point, white within black, so that it shows on anything; number it beside the ring."""
    for color, line in (("black", 3.2), ("white", 1.4)):
        axes.plot(*point, "o", mfc="none", mec=color, mew=line, ms=9, clip_on=False, zorder=5)
    right, low = point[0] < 0.9 * axes.get_xlim()[1], point[1] < 0.15 * axes.get_ylim()[0]
    style: dict[str, Any] = {"color": "white", "fontsize": 11, "fontweight": "bold", "zorder": 6}
    style |= {"ha": "left" if right else "right", "va": "top" if low else "bottom"}
    style |= {"path_effects": [withStroke(linewidth=2.5, foreground="black")]}
    beside = (7 if right else -7, -7 if low else 7)
    axes.annotate(name, point, beside, textcoords="offset points", **style)


def _outline(axes: Axes, maps: DependencyMaps, region: NDArray[np.bool_]) -> None:
    """Draw a line around the neurons that a mean was taken over."""
    height, width = maps.grid.image_size
    rows, columns = min(height, 400), min(width, 400)
    if region.all() or not region.any() or min(rows, columns) < 2:  # a strip has no line around it
        return
    inside = maps.grid.upsample(region, (rows, columns))
    edges: dict[str, Any] = {"origin": "lower", "extent": (-0.5, width - 0.5, -0.5, height - 0.5)}
    for color, line in (("black", 2.2), ("white", 0.9)):
        axes.contour(inside, levels=[0.5], colors=color, linewidths=line, **edges)


def _add_scale(figure: Figure, colors: ScalarMappable, average: float, caption: str) -> None:
    """Add the bar that says what the colors mean: multiples of the average, and the shares."""
    style: dict[str, Any] = {"location": "bottom", "extend": "both", "shrink": 0.6, "aspect": 45}
    style |= {"pad": 0.02, "panchor": False}  # panels stay where they are
    bar = figure.colorbar(colors, ax=figure.axes, **style)
    bar.set_label(caption, fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8, colors=INK)
    shares = (lambda multiple: multiple * average, lambda share: share / average)
    upper = bar.ax.secondary_xaxis("top", functions=shares)
    upper.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3), useMathText=True)
    upper.tick_params(labelsize=8, colors=INK)
    upper.set_xlabel("share of the neuron's context", fontsize=9, color=INK)


def _caption(maps: DependencyMaps) -> str:
    """What the scale means, and what its colors would not show; a line each."""
    scale, even = f"coefficient, {TIMES} the average over all neurons", evenness_note(maps)
    empty = any(map(maps.has_no_own, range(len(maps))))
    left_out = f"the {MAX_MAPS} largest of {len(maps)} classes; an npz file has all"
    lines = [f"{scale}  ({even})" if even else scale, maps.similarity_note()]
    lines += [NO_COLOR] * empty + [left_out] * (len(maps) > MAX_MAPS)
    return "\n".join(filter(None, lines))


def _heading(maps: DependencyMaps, index: int, inches: float) -> str:
    """What a map is, and its largest coefficient; in narrow panels without the place or share."""
    is_narrow = inches <= 2.6
    most = f"{float(maps.maps[index].max()) / maps.average:.3g} {TIMES}"
    most = f"\N{LESS-THAN OR EQUAL TO} {most}" if is_narrow else f"up to {most}"
    name = maps.names[index]
    if is_narrow and maps.regions is not None:
        name = name.rpartition(" (")[0]  # the legend has the share
    if maps.answers:
        name = f"{name}  {maps.answers[index]}"
    if (point := maps.points[index]) is not None and not is_narrow:
        name = f"{name}  ({point[0]:g}, {point[1]:g})"
    return f"{shorten(name, max(6, int(inches / 0.075) - len(most)))}  {most}"


def _legend_entries(maps: DependencyMaps) -> list[tuple[Color, str]]:
    """Color, name and share of each class that the prediction has, the largest first."""
    if maps.segmentation is None:
        return []
    areas = zip(maps.segmentation.areas().items(), maps.segmentation.palette, strict=True)
    found = sorted(((share, name, color) for (name, share), color in areas), reverse=True)
    named = [one for one in found if one[0] >= SMALLEST][:MAX_CLASSES]
    return [
        (color, f"{shorten(name, LETTERS)}  {percent(share, 0)} %") for share, name, color in named
    ]


def legend_rows(entries: Sequence[tuple[Color, str]], width: float) -> list[int]:
    """How many entries each row of a legend has, in a figure `width` inches wide."""
    longest = max((len(text) for _, text in entries), default=1)
    columns = max(1, min(len(entries), int(width / (0.55 + 0.068 * longest))))
    return [columns] * -(-len(entries) // columns)


def add_class_legend(
    figure: Figure, entries: Sequence[tuple[Color, str]], width: float, title: str | None = None
) -> None:
    """Add colors and names below a figure."""
    patches = [
        Patch(
            facecolor="#{:02x}{:02x}{:02x}".format(*color),
            edgecolor=INK,
            linewidth=0.5,
            # a legend would read $ as a formula, and leave out what starts with _
            label="\u200b" + name.replace("$", r"\$"),
        )
        for color, name in entries
    ]
    style: dict[str, Any] = {"ncols": legend_rows(entries, width)[0], "fontsize": 8}
    style |= {"title": title, "title_fontsize": 8, "frameon": False}
    style |= {"handlelength": 1.2, "columnspacing": 1.0, "labelspacing": 0.35}
    figure.legend(handles=patches, loc="outside lower center", **style)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches, with little between its panels."""
    layout = ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.03, wspace=0.01, hspace=0.01)
    return Figure(figsize=(width, height), layout=layout, dpi=DPI)


def style_panel(axes: Axes, title: str, *, fontsize: float = 9) -> Axes:
    """Give a panel its title, and no ticks nor frame: a picture has its own edges."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_anchor("N")  # pictures beside each other begin at one height
    axes.set_title(title, fontsize=fontsize, color=INK, pad=3, parse_math=False)
    return axes
