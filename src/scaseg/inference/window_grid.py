"""Where the windows of a photograph lie, and what each counts for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.models.segmenter import Segmenter


class Window(NamedTuple):
    """One window along one axis: its pixels, its neurons, and the neurons that are its own.

    Every neuron is some one window's own: overlaps are divided in the middle.
    """

    pixels: slice
    neurons: slice
    own: slice


class Grid:
    """Where the windows of a view lie: evenly spread, sharing at least `overlap` pixels."""

    def __init__(self, model: Segmenter, size: tuple[int, int], window: int, overlap: int) -> None:
        stride = model.backbone.stride
        self.size = model.backbone.map_size(*size)
        self.rows, self.columns = (
            _axis(pixels, neurons, window, overlap, stride)
            for pixels, neurons in zip(size, self.size, strict=True)
        )
        reach = -(-overlap // stride)
        self.row_shares = _shares(self.rows, self.size[0], reach)
        self.column_shares = _shares(self.columns, self.size[1], reach)


def slices(length: int, window: int, overlap: int) -> Iterator[slice]:
    """Slices of one size that cover a length, evenly spread, sharing at least `overlap`."""
    if length <= window:
        yield slice(0, length)
        return
    count = -(-(length - overlap) // (window - overlap))
    for index in range(count):
        start = round(index * (length - window) / (count - 1))
        yield slice(start, start + window)


def _axis(pixels: int, neurons: int, window: int, overlap: int, stride: int) -> list[Window]:
    if pixels <= window:
        everything = slice(0, neurons)
        return [Window(slice(0, pixels), everything, everything)]
    length = max(1, window // stride)
    shared = min(-(-overlap // stride), length - 1)
    found = list(slices(neurons, length, shared))
    borders = [0, *((a.stop + b.start) // 2 for a, b in pairwise(found))]
    borders.append(neurons)
    return [
        Window(
            # the last one has what is left of the last stride, or of a pool's odd pixels
            slice(part.start * stride, pixels if part.stop == neurons else part.stop * stride),
            part,
            slice(borders[index], borders[index + 1]),
        )
        for index, part in enumerate(found)
    ]


def _shares(windows: list[Window], neurons: int, reach: int) -> list[Tensor]:
    """What each window counts for along one axis: less towards its edges, summing to 1."""
    total = torch.zeros(neurons)
    ramps = []
    for window in windows:
        distance = torch.arange(1.0, window.neurons.stop - window.neurons.start + 1)
        distance = torch.minimum(distance, distance.flip(0))
        ramps.append((distance / (reach + 1)).clamp(max=1))
        total[window.neurons] += ramps[-1]
    return [ramp / total[window.neurons] for ramp, window in zip(ramps, windows, strict=True)]


def batches(columns: list[Window], batch_size: int) -> Iterator[list[int]]:
    """Windows of one width, as many as fit in a batch."""
    widths = [window.pixels.stop - window.pixels.start for window in columns]
    for _, group in groupby(range(len(columns)), key=widths.__getitem__):
        places = list(group)
        for first in range(0, len(places), batch_size):
            yield places[first : first + batch_size]


def own_part(window: Window) -> slice:
    """Its own neurons, counted from its first."""
    start = window.neurons.start
    return slice(window.own.start - start, window.own.stop - start)
