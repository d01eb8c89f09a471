"""Dependency maps: what the neurons at some points of a photograph, or of a class, depend on."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.errors import UserError
from scaseg.explanation.features import Array, ContextFeatures, NeuronGrid, extract_features
from scaseg.inference.predict import predict
from scaseg.inference.preprocessing import ImageLike, as_array
from scaseg.inference.segmentation import Segmentation
from scaseg.io.atomic import whole_file
from scaseg.io.ownership import MARK
from scaseg.models.segmenter import Segmenter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 256  # of coefficients at a time: their number times that of all neurons is held
ELSEWHERE = 4  # rows and columns of neurons that a single map is compared with
# Maps count as one where no more than this share of the context would have to move from one source
# to another: on photographs, maps that are 0.07 apart cannot be told apart by eye, on scenes such
# as are 0.3 apart can.
NEARLY_EQUAL = 0.1
# ... and no more than this part of how far they are from even: a figure's scale shows that much,
# however little it is, so that even maps with a pattern each look different.
OF_PATTERN = 0.25
ROUNDING = 1e-4
Row = NDArray[np.float64]
Point = tuple[float, float]  # x, y: pixels of the upright photograph, origin top left


@dataclass(frozen=True)
class DependencyMaps:
    """Maps (P, h, w) over the neurons of a photograph's feature map.

    Each map holds the shares of all neurons in the context of one neuron: its row of coefficients,
    normalised to sum 1, its own entry 0 (but for "dot", which keeps it). For a map that stands
    for several neurons, their mean. `points` (P) are pixels (x, y), None where the map is not that
    of a point; `neurons` (P, 2) are row and column of each point's neuron, -1 where it has none;
    `names` say what each map is; `image` is the photograph (H, W, 3); `average` is the share that
    every neuron would have if all counted alike; `regions` (P, h, w) are the neurons that a mean
    was taken over, None for maps of points; `is_common`: one map alone, and neurons all over the
    photograph have nearly the same; `segmentation` is what the model predicts for the photograph,
    and `answers` (P) the class that it predicts at each point.
    """

    maps: Array
    neurons: NDArray[np.int64]
    points: tuple[Point | None, ...]
    names: tuple[str, ...]
    image: NDArray[np.uint8]
    grid: NeuronGrid
    average: float
    regions: NDArray[np.bool_] | None = None
    is_common: bool = False
    segmentation: Segmentation | None = None
    answers: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.maps)

    def has_no_own(self, index: int) -> bool:
        """Whether a map is that of one neuron, which takes no context from itself."""
        row, column = self.neurons[index]
        return bool(row >= 0 and self.maps[index, row, column] == 0)

    def upsample(self, index: int) -> Array:
        """Resize a map to the photograph (H, W); see `NeuronGrid`."""
        return self.grid.upsample(self.maps[index])

    def similarity_note(self) -> str:
        """Say in a few words where the maps show one thing only; else nothing."""
        if len(self) == 1:
            return "all neurons here have nearly this map" if self.is_common else ""
        columns = self.maps.shape[2]
        own = [row * columns + column if row >= 0 else -1 for row, column in self.neurons.tolist()]
        same = nearly_equal(self.maps.reshape(len(self), -1), own)
        return "these maps are nearly one and the same" if same else ""

    def figure(self, *, width: float = 10) -> Figure:
        """Draw the photograph and the maps, `width` inches wide."""
        from scaseg.explanation.figure import draw_dependency_maps

        return draw_dependency_maps(self, width=width)

    def save(self, path: str | Path, *, format: str | None = None) -> None:  # noqa: A002
        """Write the figure as png, pdf or svg, or the numbers as npz, by the path's suffix.

        In an npz file: maps (P, h, w), neurons (P, 2) row and column, points (P, 2) x and y (NaN
        where a map is not that of a point), names (P,), answers (P,) of points, average, centres_x
        (w,) and centres_y (h,), the pixels in the middle of receptive fields, and regions (P, h, w)
        of classes.
        """
        if (format or Path(path).suffix.lower().lstrip(".")) != "npz":
            from scaseg.plots.figures import save_figure

            save_figure(self.figure(), path, format=format)
            return
        rows, columns = self.grid.map_size
        arrays = {
            "maps": self.maps,
            "neurons": self.neurons,
            "points": np.array([point or (np.nan, np.nan) for point in self.points]),
            "names": np.array(self.names),
            "answers": np.array(self.answers),
            "average": np.array(self.average),
            "centres_x": np.array([self.grid.center(0, column)[0] for column in range(columns)]),
            "centres_y": np.array([self.grid.center(row, 0)[1] for row in range(rows)]),
        } | ({} if self.regions is None else {"regions": self.regions})
        with whole_file(Path(path)) as temporary, temporary.open("w+b") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            with zipfile.ZipFile(file, "a") as archive:  # so that --overwrite knows it again
                archive.comment = MARK.encode()


def explain(
    model: Segmenter,
    image: ImageLike,
    *,
    points: Sequence[Point] | None = None,
    grid: tuple[int, int] | None = None,
    classes: bool = False,
) -> DependencyMaps:
    """Show what neurons of a photograph depend on, chosen in one of three ways.

    image: a path, a PIL image, an array (H, W, 3) or a tensor (3, H, W). points: the neurons under
    these pixels (x, y) of the upright photograph, origin top left. grid: those under (rows,
    columns) points, evenly spread. classes: the mean over all neurons of each predicted class,
    large classes first. The prediction comes along: `segmentation`, and the class at each point,
    `answers`. The model's mode is left as it was.

    >>> from scaseg import create_model
    >>> model = create_model("mobilenet_v2", head="compact", classes=3)
    >>> found = explain(model, np.zeros((64, 90, 3), np.uint8), points=[(10, 20)])
    >>> found.maps.shape, found.upsample(0).shape
    ((1, 8, 12), (64, 90))
    >>> found.answers[0] in model.classes
    True
    """
    if (points is not None) + (grid is not None) + classes != 1:
        raise UserError("point", "none, or another choice too", "give points, grid or classes")
    pixels = as_array(model, image)
    features = extract_features(model, pixels)
    if grid is not None:
        points = grid_points(features.grid.image_size, *grid)
    found = _class_maps(features) if points is None else _point_maps(features, points)
    segmentation: Segmentation = predict(model, pixels)
    answers = tuple(
        model.classes[segmentation.labels[int(point[1]), int(point[0])]]
        for point in found.points
        if point is not None
    )
    return replace(found, segmentation=segmentation, answers=answers)


def grid_points(size: tuple[int, int], rows: int, columns: int) -> list[Point]:
    """Spread rows x columns points evenly over a photograph of (height, width), row by row."""
    height, width = size
    if not (0 < rows <= height and 0 < columns <= width):
        problem = f"{rows}x{columns} of an image with {height} rows of {width} pixels"
        raise UserError("grid", problem, "give at least one point, and no more than that")
    return [
        (int((column + 0.5) * width / columns), int((row + 0.5) * height / rows))
        for row in range(rows)
        for column in range(columns)
    ]


def _point_maps(features: ContextFeatures, points: Sequence[Point]) -> DependencyMaps:
    height, width = features.grid.image_size
    try:
        pixels = np.asarray(points, np.float64)
    except (TypeError, ValueError):
        pixels = np.empty(0)
    if pixels.shape != (len(points), 2) or not np.isfinite(pixels).all():
        raise UserError("point", f"{points!r}"[:80], "give at least one, two numbers (x, y) each")
    for x, y in pixels:
        if not (0 <= x < width and 0 <= y < height):
            problem = f"{x:g},{y:g} is outside the image of {width} x {height}"
            remedy = f"give x from 0 to {width - 1} and y from 0 to {height - 1}, from the top left"
            raise UserError("point", problem, remedy)
    neurons = np.array([features.grid.neuron_at(x, y) for x, y in points], np.int64)
    rows, columns = features.grid.map_size
    targets = torch.from_numpy(neurons[:, 0] * columns + neurons[:, 1])
    return DependencyMaps(
        maps=features.coefficients(targets).float().cpu().numpy().reshape(-1, rows, columns),
        neurons=neurons,
        points=tuple((x, y) for x, y in points),
        names=tuple(str(number) for number in range(1, len(points) + 1)),
        image=features.image,
        grid=features.grid,
        average=1 / max(1, rows * columns - features.context.exclude_self),
        is_common=len(points) == 1 and _is_common(features, int(targets[0])),
    )


def _is_common(features: ContextFeatures, target: int) -> bool:
    """Whether neurons all over a photograph have nearly the map of the neuron `target`."""
    rows, columns = features.grid.map_size
    if rows * columns < 4:  # two sources at least, besides two neurons
        return False
    places = [np.linspace(0, side - 1, ELSEWHERE).round().astype(int) for side in (rows, columns)]
    some = np.unique([target, *(places[0][:, None] * columns + places[1]).ravel()])
    return nearly_equal(features.coefficients(torch.from_numpy(some)).cpu().numpy(), some.tolist())


def _class_maps(features: ContextFeatures) -> DependencyMaps:
    """Average the maps of all neurons of each predicted class.

    A source's share is the mean over all neurons of the class but itself: its own entry, 0, would
    make every class look as if it avoided its own region. Each map is normalised again to sum 1.
    """
    rows, columns = features.grid.map_size
    predicted = features.classes().flatten()  # (n,)
    classes, counts = predicted.unique(return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    classes, counts = classes[order], counts[order]
    means = []
    for number in classes:
        targets = (predicted == number).nonzero().flatten()
        total = torch.stack([features.coefficients(part).sum(0) for part in targets.split(ROWS)])
        counted = torch.full_like(total[0], len(targets))
        if features.context.exclude_self:
            counted[targets.to(counted.device)] -= 1
        mean = total.sum(0) / counted.clamp(min=1)
        means.append(mean / (mean.sum() or 1))  # 0: the only neuron there is
    names = [features.model.config.classes[number] for number in classes.tolist()]
    percent = (100 * counts / len(predicted)).tolist()
    return DependencyMaps(
        maps=torch.stack(means).float().cpu().numpy().reshape(-1, rows, columns),
        neurons=np.full((len(classes), 2), -1, np.int64),
        points=(None,) * len(classes),
        names=tuple(f"{name} ({part:.0f} %)" for name, part in zip(names, percent, strict=True)),
        image=features.image,
        grid=features.grid,
        average=1 / (rows * columns),
        regions=(predicted == classes[:, None]).reshape(-1, rows, columns).numpy(),
    )


def nearly_equal(maps: NDArray[np.floating], own: Sequence[int]) -> bool:
    """Whether some maps (P, n) hardly differ; `own` (P) are the entries left out, -1: none."""
    rows = list(zip(maps.astype(np.float64), own, strict=True))
    pattern = max(distance(row, np.ones_like(row), [place]) for row, place in rows)
    most = max(ROUNDING, min(NEARLY_EQUAL, OF_PATTERN * pattern))
    pairs = combinations(rows, 2)
    return all(distance(one, other, [a, b]) <= most for (one, a), (other, b) in pairs)


def distance(one: Row, other: Row, left_out: Sequence[int]) -> float:
    """Half the sum of |differences| of two maps (n,), each of sum 1 without the entries left out.

    0: the same map, 1: nothing in common (the total variation distance).
    """
    kept = np.ones(one.shape, bool)
    kept[[place for place in left_out if place >= 0]] = False
    first, second = (row[kept] / (np.abs(row[kept]).sum() or 1) for row in (one, other))
    return float(np.abs(first - second).sum() / 2)
