"""From the scores of neurons to the probabilities of pixels, a band of rows at a time.

A whole photograph's probabilities, classes x H x W numbers, need never be there at once.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from scaseg.inference.preprocessing import resize


class ScoreMap(Protocol):
    """The scores of a view's neurons, in the photograph's orientation; asked for from the top."""

    size: tuple[int, int]  # (h, w) in neurons

    def rows(self, start: int, stop: int) -> Tensor:
        """Return (classes, stop - start, w); later calls never ask for rows before `start`."""


class WholeMap:
    """Scores that are all there: (classes, h, w)."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores
        self.size: tuple[int, int] = (scores.shape[-2], scores.shape[-1])

    def rows(self, start: int, stop: int) -> Tensor:
        return self.scores[:, start:stop]


class Enlarged:
    """A map's probabilities at the photograph's size, by way of the size the network saw.

    What `softmax(model(view))`, resized to the photograph, gives: rows of it.
    """

    def __init__(
        self, scores: ScoreMap, seen: tuple[int, int], photograph: tuple[int, int]
    ) -> None:
        self.scores = scores
        self.seen = seen
        self.photograph = photograph

    def rows(self, start: int, stop: int) -> Tensor:
        """Probabilities of some rows of the photograph: (classes, stop - start, W)."""
        first, last = needed_rows(start, stop, self.seen[0], self.photograph[0])
        top, bottom = needed_rows(first, last, self.scores.size[0], self.seen[0])
        found = self.scores.rows(top, bottom).float()
        found = enlarge_rows(found, top, self.scores.size[0], self.seen, first, last)
        found = found.softmax(0)
        return enlarge_rows(found, first, self.seen[0], self.photograph, start, stop)


def needed_rows(start: int, stop: int, height: int, out_height: int) -> tuple[int, int]:
    """Which rows of a map of `height` the rows start to stop of the enlarged one are made of."""
    if height == out_height:
        return start, stop
    low, high = ((row + 0.5) * height / out_height - 0.5 for row in (start, stop - 1))
    return max(0, int(low)), min(height, int(high) + 2)


def enlarge_rows(
    x: Tensor, first: int, height: int, out_size: tuple[int, int], start: int, stop: int
) -> Tensor:
    """Rows start to stop of F.interpolate(map, out_size), from the rows of the map they need.

    x (classes, rows, w): rows of a map of `height`, from `first` on.
    """
    out_height, out_width = out_size
    if (start, stop, x.shape[1]) == (0, out_height, height):
        return resize(x.unsqueeze(0), *out_size)[0]
    x = resize(x.unsqueeze(0), x.shape[1], out_width)[0]
    if height == out_height:
        return x[:, start - first : stop - first]
    place = torch.arange(start, stop, dtype=torch.float64, device="cpu") + 0.5
    place = (place * (height / out_height) - 0.5).clamp(min=0)
    above = place.long().clamp(max=height - 1)
    below = (above + 1).clamp(max=height - 1)
    share = (place - above).to(x).view(1, -1, 1)
    upper, lower = x[:, (above - first).to(x.device)], x[:, (below - first).to(x.device)]
    return torch.lerp(upper, lower, share)
