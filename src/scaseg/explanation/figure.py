"""Dependency maps as a figure: after section 5.4 of the paper."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from scaseg.explanation.geometry import NeuronGrid
from scaseg.explanation.layout import choose_layout
from scaseg.explanation.maps import DependencyMaps, Point
from scaseg.explanation.similarity import likeness

DPI = 150
MOST = 60  # maps on a page
NEARLY = 0.1  # a scale that spans less than this part of the average shows hardly anything
INK = "#222222"
EMPTY = 128  # grey, which no scale has
NO_COLOR = "grey at the ring: a neuron takes no context from itself"
TIMES = "\N{MULTIPLICATION SIGN}"
Rgb = NDArray[np.uint8]
# Perceptually uniform; its ends, black and white, are left out: no photograph shows upon them
COLORS = ListedColormap(colormaps["inferno"](np.linspace(0.08, 0.97, 256)), "dependency")


def draw_dependency_maps(maps: DependencyMaps, *, width: float = 10, title: str = "") -> Figure:
    """Draw a photograph with its points numbered, and the map of each over the photograph.

    width in inches. All maps share one scale, so that they can be compared; its numbers are
    multiples of the share that each neuron would have if all counted alike, and, above, the shares
    themselves. The lightest and darkest half percent are cut off, so that one neuron cannot make
    all others look alike.
    """
    if len(maps) > MOST:
        raise ValueError(f"maps: {len(maps)}; a figure has room for {MOST} at most")
    height_px, width_px = maps.image.shape[:2]
    shape = min(4.0, max(0.25, width_px / height_px))  # beyond, a strip of cells would be lines
    layout = choose_layout(len(maps), shape)
    cell = width / layout.columns
    said = _scale_words(maps)
    below = 0.9 + 0.16 * len(said.splitlines())  # inches: the scale, and what stands under it
    height = layout.rows * (cell / shape + 0.28) + below + (0.3 if title else 0)
    figure = Figure(figsize=(width, height), layout=tight(), dpi=DPI)
    if title:
        figure.suptitle(title, fontsize=11, color=INK, parse_math=False)
    cells = figure.add_gridspec(layout.rows, layout.columns)
    scale, colors = map_colors(maps)

    axes = panel(figure.add_subplot(cells[: layout.span, : layout.span]))
    show_image(axes, maps.image, cell * layout.span)
    axes.set_anchor("N")
    for name, point in zip(maps.names, maps.points, strict=True):
        if point is not None:
            mark_point(axes, point, name, maps.grid)
    axes.set_title("photograph", fontsize=9, color=INK, pad=3)
    panels = [axes]
    for index, place in enumerate(layout.cells(len(maps))):
        axes = panel(figure.add_subplot(cells[place]))
        show_map(axes, maps, index, scale, colors, cell)
        point = maps.points[index]
        if point is not None:
            mark_point(axes, point, "", maps.grid)
        if maps.regions is not None:
            outline(axes, maps.regions[index], maps.grid)
        axes.set_title(_heading(maps, index, cell), fontsize=9, color=INK, pad=3, parse_math=False)
        panels.append(axes)
    add_scale(figure, panels, scale, colors, maps.average, said)
    return figure


def map_colors(maps: DependencyMaps) -> tuple[Normalize, Colormap]:
    """The common scale of all maps, in multiples of the average; signed ones diverge around 0."""
    found = _values(maps)
    if (found < 0).any():
        most = float(np.quantile(np.abs(found), 0.995)) or 1.0
        return Normalize(-most, most), colormaps["RdBu_r"]
    low, high = (float(np.quantile(found, q)) for q in (0.005, 0.995))
    if high - low < 1e-3 * max(high, 1e-9):  # all alike: no colour for rounding errors
        low, high = 0.0, max(2 * high, 1e-9)
    return Normalize(low, high), COLORS


def evenness(maps: DependencyMaps) -> str:
    """Say where colours show hardly anything: how little the coefficients differ; else nothing."""
    low, high = (float(np.quantile(_values(maps), q)) for q in (0.005, 0.995))
    if high - low >= NEARLY:
        return ""
    most = 100 * max(1 - low, high - 1)
    return (
        "all alike" if most < 0.1 else f"nearly even: 99 % lie within {most:.2g} % of the average"
    )


def _values(maps: DependencyMaps) -> NDArray[np.floating]:
    """All coefficients of all maps, in multiples of the average; empty own entries say nothing."""
    counts = np.ones(maps.maps.shape, bool)
    for index, (row, column) in enumerate(maps.neurons):
        if maps.is_own_empty(index):
            counts[index, row, column] = False
    return maps.maps[counts] / maps.average if counts.any() else np.zeros(1)


def show_map(
    axes: Axes,
    maps: DependencyMaps,
    index: int,
    scale: Normalize,
    colors: Colormap,
    inches: float,
) -> None:
    """Draw one map in its colours, with the photograph's details as light and shade upon it.

    Where a neuron takes no context from itself there is no coefficient, and no colour: left as 0 it
    would look like a neuron that is not heard, and its shadow like several. (The photograph instead
    of grey was tried: pale sand on a dark map looks like a high value.)
    """
    small = _for_panel(maps.image, inches)
    empty = maps.is_own_empty(index)
    row, column = maps.neurons[index].tolist()
    values = _without(maps.maps[index], row, column) if empty else maps.maps[index]
    multiples = maps.grid.on_photograph(values, small.shape[:2]) / maps.average
    picture = shaded(colors(scale(multiples))[..., :3], small)
    if empty:
        picture[maps.grid.cell(row, column, small.shape[:2])] = EMPTY
    show_image(axes, picture, inches, extent=maps.image.shape[:2])


def _without(values: NDArray[np.float32], row: int, column: int) -> NDArray[np.float32]:
    """A map (h, w) with one entry put at the mean of its neighbours: no shadow around it."""
    around = values[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
    filled = values.copy()
    filled[row, column] = (around.sum() - values[row, column]) / max(1, around.size - 1)
    return filled


def shaded(painted: NDArray[np.floating], image: Rgb) -> Rgb:
    """Lay the details of a photograph over colours: what differs from its surroundings.

    Not a mixture of the two: a bright sky would then look like a high value. Wide areas keep the
    colours of the scale, in dark photographs as in light ones.
    """
    gray = Image.fromarray(image).convert("L")
    around = gray.filter(ImageFilter.GaussianBlur(max(2.0, max(gray.size) / 40)))
    detail = np.asarray(gray, np.float32) - np.asarray(around, np.float32)
    strength = max(4.0, float(np.quantile(np.abs(detail), 0.97)))  # noise of a blank stays small
    shade = (detail / strength).clip(-1, 1)[..., None] * 0.33
    mixed = np.where(shade > 0, painted + (1 - painted) * shade, painted * (1 + 1.4 * shade))
    return (255 * mixed.clip(0, 1)).astype(np.uint8)


def show_image(
    axes: Axes, image: Rgb, inches: float, *, extent: tuple[int, int] | None = None
) -> None:
    """Draw pixels so that coordinates are the photograph's, whatever size is drawn."""
    height, width = extent or image.shape[:2]
    small = _for_panel(image, inches)
    place = (-0.5, width - 0.5, height - 0.5, -0.5)
    axes.imshow(small, extent=place, interpolation="bilinear", aspect="equal")


def mark_point(axes: Axes, point: Point, name: str, grid: NeuronGrid) -> None:
    """Ring a point, white within black, so that it shows on anything; number it beside the ring."""
    x, y = point
    for color, line in (("black", 3.2), ("white", 1.4)):
        axes.plot(x, y, "o", mfc="none", mec=color, mew=line, ms=9, clip_on=False, zorder=5)
    if not name:
        return
    height, width = grid.photograph
    right, below = x < 0.9 * width, y < 0.15 * height
    axes.annotate(
        name,
        point,
        (7 if right else -7, -7 if below else 7),
        textcoords="offset points",
        ha="left" if right else "right",
        va="top" if below else "bottom",
        fontsize=11,
        fontweight="bold",
        color="white",
        path_effects=[withStroke(linewidth=2.5, foreground="black")],
        zorder=6,
    )


def outline(axes: Axes, region: NDArray[np.bool_], grid: NeuronGrid) -> None:
    """Draw a line around the neurons that a mean was taken over."""
    if region.all() or not region.any():
        return
    rows, columns = (min(side, 400) for side in grid.photograph)
    if min(rows, columns) < 2:  # a strip has no line around it
        return
    inside = grid.on_photograph(region.astype(np.float32), (rows, columns))
    height, width = grid.photograph
    x = (np.arange(columns) + 0.5) * width / columns - 0.5
    y = (np.arange(rows) + 0.5) * height / rows - 0.5
    for color, line in (("black", 2.2), ("white", 0.9)):
        axes.contour(x, y, inside, levels=[0.5], colors=color, linewidths=line)


def add_scale(
    figure: Figure,
    panels: list[Axes],
    scale: Normalize,
    colors: Colormap,
    average: float,
    said: str,
) -> None:
    """Add the bar that says what the colours mean: multiples of the average, and the shares."""
    bar = figure.colorbar(
        ScalarMappable(scale, colors),
        ax=panels,
        location="bottom",
        extend="both",
        shrink=0.6,
        aspect=45,
        pad=0.02,
    )
    bar.set_label(said, fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8, colors=INK)
    upper = bar.ax.secondary_xaxis(
        "top",
        functions=(
            lambda multiple: np.multiply(multiple, average),
            lambda share: np.divide(share, average),
        ),
    )
    upper.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3), useMathText=True)
    upper.tick_params(labelsize=8, colors=INK)
    upper.set_xlabel("share of the neuron's context", fontsize=9, color=INK)


def _scale_words(maps: DependencyMaps) -> str:
    """What the scale means, and what its colours would not tell; a line each."""
    said = f"coefficient, {TIMES} the average over all neurons"
    if (even := evenness(maps)) != "":
        said += f"  ({even})"
    if (alike := likeness(maps)) != "":
        said += f"\n{alike}"
    if any(maps.is_own_empty(index) for index in range(len(maps))):
        said += f"\n{NO_COLOR}"
    return said


def _heading(maps: DependencyMaps, index: int, inches: float) -> str:
    """What a map is, and its largest coefficient; in narrow panels the place is not said."""
    most = f"up to {float(maps.maps[index].max()) / maps.average:.3g} {TIMES}"
    name = maps.names[index]
    point = maps.points[index]
    if point is not None and inches > 2:
        name = f"{name}  ({point[0]:g}, {point[1]:g})"
    room = max(6, int(inches / 0.075) - len(most))
    name = name if len(name) <= room else name[: room - 1] + "…"
    return f"{name}  {most}"


def tight() -> ConstrainedLayoutEngine:
    """Lay panels out with little between them."""
    return ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.03, wspace=0.01, hspace=0.01)


def panel(axes: Axes) -> Axes:
    """Take ticks and frame off: a picture has its own edges."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    return axes


def _for_panel(image: Rgb, inches: float) -> Rgb:
    """Shrink what has more pixels than the panel shows; enlarge what is tiny, smoothly."""
    height, width = image.shape[:2]
    if image.shape[2] != 3:  # channels that are not red, green and blue: as grey
        image = np.repeat(image.mean(2, keepdims=True).astype(np.uint8), 3, axis=2)
    wanted = 2 * DPI * inches / max(height, width)
    if 0.5 <= wanted <= 1:
        return image
    size = (max(1, round(width * wanted)), max(1, round(height * wanted)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))
