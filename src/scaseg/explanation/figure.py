"""Dependency maps as a figure: after section 5.4 of the paper."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from scaseg.errors import UserError
from scaseg.explanation.maps import DependencyMaps
from scaseg.plots.palette import shorten

DPI = 150
MAX_MAPS = 60
NEARLY_EVEN = 0.1  # a scale that spans less than this part of the average shows hardly anything
INK = "#222222"
GRAY = 128  # a color that no scale has
NO_COLOR = "grey at the ring: a neuron takes no context from itself"
TIMES = "\N{MULTIPLICATION SIGN}"
Rgb = NDArray[np.uint8]
# Perceptually uniform; its ends, black and white, are left out: no photograph shows upon them
COLORS = ListedColormap(colormaps["inferno"](np.linspace(0.08, 0.97, 256)), "dependency")


def draw_dependency_maps(maps: DependencyMaps, *, width: float = 10) -> Figure:
    """Draw a photograph with its points numbered, and the map of each over the photograph.

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
    rows, columns, span = choose_layout(count, shape)
    cell = width / columns
    caption = _caption(maps)
    below = 0.9 + 0.16 * len(caption.splitlines())  # inches: the scale, and what stands under it
    figure = new_figure(width, rows * (cell / shape + 0.28) + below)
    cells = figure.add_gridspec(rows, columns)
    colors = map_colors(maps)

    photograph = figure.add_subplot(cells[:span, :span])
    show_image(photograph, maps.image, cell * span)
    style_panel(photograph, "photograph").set_anchor("N")
    free = (place for place in np.ndindex(rows, columns) if max(place) >= span)
    for index, place in zip(range(count), free, strict=False):
        axes = style_panel(figure.add_subplot(cells[place]), _heading(maps, index, cell))
        show_map(axes, maps, index, colors, cell)
        if (point := maps.points[index]) is not None:
            mark_point(photograph, point, maps.names[index])
            mark_point(axes, point)
        if maps.regions is not None:
            _outline(axes, maps, maps.regions[index])
    _add_scale(figure, colors, maps.average, caption)
    return figure


def choose_layout(count: int, shape: float, *, page: float = 1.6) -> tuple[int, int, int]:
    """Arrange `count` small panels and a large one, all of width / height `shape`.

    Returns the rows and columns of cells, and how many of both the large panel takes, at the top
    left. Preferred: a page near `page` in shape, no empty cells, a large panel that takes a third
    of the width, and few columns. The weights were chosen by looking at pages of 1 to 12.
    """

    def cost(layout: tuple[int, int, int]) -> float:
        rows, columns, span = layout
        ratio = columns * shape / rows
        empty = 1 - (span**2 + count) / (rows * columns)
        narrow = max(0.0, 0.35 - span / columns)
        tall = max(0.0, -log(ratio))  # screens are wide
        return abs(log(ratio / page)) + tall + 6 * empty + 3 * narrow + 0.06 * columns

    return min(
        (
            (max(span, -(-(count + span**2) // columns)), columns, span)
            for span in (1, 2, 3)
            for columns in range(span, count + 2 * span)
        ),
        key=cost,
    )


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
    if image.shape[2] != 3:  # channels that are not red, green and blue: as grey
        image = np.repeat(image.mean(2, keepdims=True).astype(np.uint8), 3, axis=2)
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
    bar = figure.colorbar(
        colors, ax=figure.axes, location="bottom", extend="both", shrink=0.6, aspect=45, pad=0.02
    )
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
    """What a map is, and its largest coefficient; in narrow panels without the place."""
    most = f"up to {float(maps.maps[index].max()) / maps.average:.3g} {TIMES}"
    name = maps.names[index]
    if (point := maps.points[index]) is not None and inches > 2:
        name = f"{name}  ({point[0]:g}, {point[1]:g})"
    return f"{shorten(name, max(6, int(inches / 0.075) - len(most)))}  {most}"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches, with little between its panels."""
    layout = ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.03, wspace=0.01, hspace=0.01)
    return Figure(figsize=(width, height), layout=layout, dpi=DPI)


def style_panel(axes: Axes, title: str, *, fontsize: float = 9) -> Axes:
    """Give a panel its title, and no ticks nor frame: a picture has its own edges."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=fontsize, color=INK, pad=3, parse_math=False)
    return axes
