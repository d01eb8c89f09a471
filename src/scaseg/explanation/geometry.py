"""Where the neurons of a feature map lie on the photograph, and a map of them brought there.

Three sizes are at play: the photograph's, that of the image which the network sees (`fit` may have
resized it, edges to edges), and the map's, an eighth of what is seen. What a neuron stands for is
the middle of what it sees, as its backbone says (`stride`, `offset`). (The enlarged scores, edges
to edges, lie up to half a neuron beside that; a dependency is on what was seen.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scaseg.models.backbones.base import Backbone

Array = NDArray[np.float32]
Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class NeuronGrid:
    """The neurons of one photograph's map: `first` is the pixel of what is seen at neuron 0."""

    photograph: Size
    seen: Size
    map: Size
    stride: tuple[float, float]
    first: tuple[float, float]

    @classmethod
    def of(cls, backbone: Backbone, photograph: Size, seen: Size, map_size: Size) -> NeuronGrid:
        """Lay out the neurons of a backbone."""
        stride, first = float(backbone.stride), float(backbone.offset)
        return cls(photograph, seen, map_size, (stride, stride), (first, first))

    def neuron_at(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the neuron nearest to a pixel (x, y) of the photograph."""
        row = self._place(0, np.array([y]), self.photograph[0])[0]
        column = self._place(1, np.array([x]), self.photograph[1])[0]
        return int(np.floor(row + 0.5)), int(np.floor(column + 0.5))

    def center(self, row: int, column: int) -> tuple[float, float]:
        """The pixel (x, y) of the photograph in the middle of what a neuron sees."""
        y, x = (
            (self.first[axis] + self.stride[axis] * place + 0.5)
            * (self.photograph[axis] / self.seen[axis])
            - 0.5
            for axis, place in enumerate((row, column))
        )
        return x, y

    def cell(self, row: int, column: int, size: Size | None = None) -> tuple[slice, slice]:
        """The pixels that are nearest to one neuron, rows and columns of them."""
        found = []
        for axis, place in enumerate((row, column)):
            length = (size or self.photograph)[axis]
            nearest = np.floor(self._place(axis, np.arange(length), length) + 0.5)
            first, last = np.searchsorted(nearest, (place, place + 1))
            found.append(slice(int(first), int(last)))
        return found[0], found[1]

    def on_photograph(self, values: NDArray[np.floating], size: Size | None = None) -> Array:
        """Bring a map (h, w) to the photograph's size, or to another for all of it: (H, W).

        Bilinear between the neurons; beyond the outermost, their values.
        """
        height, width = size or self.photograph
        rows = self._place(0, np.arange(height), height)
        columns = self._place(1, np.arange(width), width)
        values = np.asarray(values, np.float32)
        return _between(_between(values, rows).T, columns).T

    def _place(self, axis: int, pixels: NDArray[np.generic], length: int) -> NDArray[np.float64]:
        """Map pixels of a picture of the photograph, `length` long, to places among neurons."""
        seen = (pixels.astype(np.float64) + 0.5) * (self.seen[axis] / length) - 0.5
        place = (seen - self.first[axis]) / self.stride[axis]
        return place.clip(0, self.map[axis] - 1)


def _between(values: Array, places: NDArray[np.float64]) -> Array:
    """Rows of (h, w) at fractional places (H,), linearly between their neighbours: (H, w)."""
    low = np.floor(places).astype(np.intp)
    high = np.minimum(low + 1, len(values) - 1)
    share = (places - low).astype(np.float32)[:, None]
    return values[low] * (1 - share) + values[high] * share
