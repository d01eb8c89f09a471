"""What the neurons at some points of a photograph depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.explanation.features import Look, context_of, decide, look, shares
from scaseg.explanation.geometry import Array, NeuronGrid
from scaseg.explanation.similarity import nearly_the_same
from scaseg.inference.image_input import Photograph
from scaseg.models.segmenter import Segmenter
from scaseg.nn.context import Context

ROWS = 256  # of coefficients at a time: their number times that of all neurons is held
ELSEWHERE = 4  # rows and columns of neurons that a single map is compared with
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
    was taken over, None for maps of points; `is_everybodys`: one map alone, and neurons all over
    the photograph have nearly the same.
    """

    maps: Array
    neurons: NDArray[np.int64]
    points: tuple[Point | None, ...]
    names: tuple[str, ...]
    image: NDArray[np.uint8]
    grid: NeuronGrid
    average: float
    regions: NDArray[np.bool_] | None = None
    is_everybodys: bool = False

    def __len__(self) -> int:
        return len(self.maps)

    def first(self, count: int) -> DependencyMaps:
        """The first few of them."""
        return replace(
            self,
            maps=self.maps[:count],
            neurons=self.neurons[:count],
            points=self.points[:count],
            names=self.names[:count],
            regions=None if self.regions is None else self.regions[:count],
        )

    def is_own_empty(self, index: int) -> bool:
        """Whether a map is that of one neuron, which takes no context from itself."""
        row, column = self.neurons[index]
        return bool(row >= 0 and self.maps[index, row, column] == 0)

    def on_photograph(self, index: int) -> Array:
        """Bring a map to the photograph, so that each neuron lies where it looks: (H, W)."""
        return self.grid.on_photograph(self.maps[index])


def dependency_maps(model: Segmenter, image: Photograph, points: Sequence[Point]) -> DependencyMaps:
    """Show what the neuron under each point (x, y) of a photograph depends on.

    image: a path, a PIL image, an array (H, W, 3) or a tensor (3, H, W); points: pixels of the
    upright photograph, origin top left. The model's mode is left as it was.

    >>> from scaseg import create_model
    >>> model = create_model("mobilenet_v2", head="compact", classes=3)
    >>> found = dependency_maps(model, np.zeros((64, 90, 3), np.uint8), [(10, 20)])
    >>> found.maps.shape, found.on_photograph(0).shape
    ((1, 8, 12), (64, 90))
    """
    context = context_of(model)
    seen = look(model, image)
    if not len(points):
        raise ValueError("points: none; give at least one (x, y)")
    for point in points:
        check_point(point, seen.grid.photograph)
    neurons = np.array([seen.grid.neuron_at(x, y) for x, y in points], np.int64)
    rows, columns = seen.grid.map
    targets = torch.from_numpy(neurons[:, 0] * columns + neurons[:, 1])
    found = shares(context, seen.features, targets.to(seen.features.device))
    return DependencyMaps(
        maps=found.float().cpu().numpy().reshape(-1, rows, columns),
        neurons=neurons,
        points=tuple((x, y) for x, y in points),
        names=tuple(str(number) for number in range(1, len(points) + 1)),
        image=seen.image,
        grid=seen.grid,
        average=1 / max(1, rows * columns - (context.exclude_self)),
        is_everybodys=len(points) == 1 and _is_everybodys(context, seen, int(targets[0])),
    )


def class_maps(model: Segmenter, image: Photograph) -> DependencyMaps:
    """Show what the neurons of each predicted class depend on, on average; large classes first.

    A source's share is the mean over all neurons of the class but itself: its own entry, 0, would
    make every class look as if it avoided its own region. Each map is normalised again to sum 1.
    """
    context = context_of(model)
    seen = look(model, image)
    rows, columns = seen.grid.map
    decided = decide(model, seen.features).flatten()  # (n,)
    classes, counts = decided.unique(return_counts=True)
    order = counts.argsort(descending=True, stable=True)
    classes, counts = classes[order], counts[order]
    means = []
    for number in classes:
        targets = (decided == number).nonzero().flatten().to(seen.features.device)
        parts = [shares(context, seen.features, part).sum(0) for part in targets.split(ROWS)]
        seen_by = torch.full_like(parts[0], len(targets))
        if context.exclude_self:
            seen_by[targets] -= 1
        mean = torch.stack(parts).sum(0) / seen_by.clamp(min=1)
        means.append(mean / mean.sum())
    percent = (100 * counts / len(decided)).tolist()
    names = [model.config.classes[number] for number in classes.tolist()]
    return DependencyMaps(
        maps=torch.stack(means).float().cpu().numpy().reshape(-1, rows, columns),
        neurons=np.full((len(classes), 2), -1, np.int64),
        points=(None,) * len(classes),
        names=tuple(f"{name} ({part:.0f} %)" for name, part in zip(names, percent, strict=True)),
        image=seen.image,
        grid=seen.grid,
        average=1 / (rows * columns),
        regions=(decided == classes[:, None]).reshape(-1, rows, columns).numpy(),
    )


def _is_everybodys(context: Context, seen: Look, target: int) -> bool:
    """Whether neurons all over a photograph have nearly the map of the neuron `target`."""
    rows, columns = seen.grid.map
    if rows * columns < 4:  # two sources at least, besides two neurons
        return False
    places = [np.linspace(0, side - 1, ELSEWHERE).round().astype(int) for side in (rows, columns)]
    some = np.unique([target, *(places[0][:, None] * columns + places[1]).ravel()])
    targets = torch.from_numpy(some).to(seen.features.device)
    return nearly_the_same(shares(context, seen.features, targets).cpu().numpy(), some.tolist())


def grid_points(image: NDArray[np.uint8], rows: int, columns: int) -> list[Point]:
    """Spread rows x columns points evenly over a photograph, row by row."""
    height, width = image.shape[:2]
    return [
        (int((column + 0.5) * width / columns), int((row + 0.5) * height / rows))
        for row in range(rows)
        for column in range(columns)
    ]


def check_point(point: Point, size: tuple[int, int]) -> None:
    """Refuse what is no pixel of a photograph of (height, width)."""
    height, width = size
    try:
        x, y = point
        known = isfinite(x) and isfinite(y)
    except (TypeError, ValueError):
        known = False
    if not known:
        raise ValueError(f"point {point!r}: not a pixel; give two numbers (x, y)")
    if not (0 <= x < width and 0 <= y < height):
        raise ValueError(
            f"point {x:g},{y:g}: outside the photograph of {width} x {height}; give x from 0 to "
            f"{width - 1} and y from 0 to {height - 1}, from the top left"
        )
