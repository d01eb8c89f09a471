"""Scores of a photograph too large for one pass: in windows that fade into each other.

Windows start at multiples of the backbone's stride and are blended at its neurons. So a neuron far
from any seam has the very score that it would have in one pass over the whole, whatever the
photograph's size, and what is held is a strip of windows at 1/8.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scaseg.inference.preprocessing import View
from scaseg.inference.window_grid import Grid, Window, batches, own_part
from scaseg.models.segmenter import Segmenter

Context = Callable[[Tensor, slice, slice], Tensor]
COLUMNS = 256  # neurons side by side that the head sees at once


class SlidingWindow:
    """The scores of a view's neurons: features from windows, the head over all of them.

    The head looks far (12 neurons to each side), and at the edge of a window it would look into
    nothing: that showed as lines. So it is given features blended from all windows around.
    """

    def __init__(
        self,
        model: Segmenter,
        view: View,
        grid: Grid,
        *,
        context: Context | None = None,
        batch_size: int = 1,
    ) -> None:
        self.size = grid.size
        self._head = model.head
        self._mirrored = view.mirrored
        self._features = FeatureRows(model, view, grid, context, batch_size)
        self._reach = reach(model.head)
        first = grid.rows[0].neurons
        self._step = first.stop - first.start  # rows that the head sees at once
        self._rows = Held()

    def rows(self, start: int, stop: int) -> Tensor:
        while self._rows.stop < stop:
            top = self._rows.stop
            self._rows.add(self._scores(top, min(top + self._step, self.size[0])), start)
        return self._rows.get(start, stop)

    def _scores(self, top: int, bottom: int) -> Tensor:
        """Let the head judge some rows: (classes, bottom - top, w)."""
        above = max(0, top - self._reach)
        features = self._features.rows(above, min(bottom + self._reach, self.size[0]))
        found = []
        for left in range(0, self.size[1], COLUMNS):
            right = min(left + COLUMNS, self.size[1])
            before = max(0, left - self._reach)
            part = features[..., before : right + self._reach].unsqueeze(0)
            scores = self._head(part)[0, :, top - above : bottom - above]
            found.append(scores[..., left - before : right - before].float())
        scores = torch.cat(found, dim=-1)
        return scores.flip(-1) if self._mirrored else scores


class FeatureRows:
    """What the head is to see of a view, blended from windows, a strip of them at a time."""

    def __init__(
        self,
        model: Segmenter,
        view: View,
        grid: Grid,
        context: Context | None,
        batch_size: int,
    ) -> None:
        self._model = model
        self._view = view
        self._grid = grid
        self._context = context
        self._batch_size = batch_size
        self._next = 0  # strip to compute
        self._rows = Held()
        self._open: Tensor | None = None  # rows after those held: the next strip has its share

    def rows(self, start: int, stop: int) -> Tensor:
        """Return (channels, stop - start, w); later calls never ask for rows before `start`."""
        while self._rows.stop < stop:
            self._rows.add(self._advance(), start)
        return self._rows.get(start, stop)

    def _advance(self) -> Tensor:
        """Compute a strip; return its rows that no later strip has a share in."""
        rows = self._grid.rows
        here = rows[self._next]
        strip = self._strip(self._next)
        if self._open is not None:
            strip[:, : self._open.shape[1]] += self._open
        self._next += 1
        last = self._next == len(rows)
        final = strip.shape[1] if last else rows[self._next].neurons.start - here.neurons.start
        self._open = strip[:, final:]
        return strip[:, :final]

    def _strip(self, index: int) -> Tensor:
        """Blend the windows side by side in one strip: (channels, rows, w)."""
        grid = self._grid
        row = grid.rows[index]
        pixels = self._view.strip(row.pixels)
        blended: Tensor | None = None
        for places in batches(grid.columns, self._batch_size):
            images = torch.cat([pixels[..., grid.columns[at].pixels] for at in places])
            context = None
            if self._context is not None:
                windows = [(row, grid.columns[at]) for at in places]
                context = _Replaced(self._context, windows)
            features, _ = self._model.features(images, context=context)
            for at, part in zip(places, features.float(), strict=True):
                if blended is None:
                    blended = part.new_zeros(part.shape[0], part.shape[1], grid.size[1])
                blended[..., grid.columns[at].neurons] += part * grid.column_shares[at].to(part)
        assert blended is not None
        return blended.mul_(grid.row_shares[index].to(blended)[:, None])


class Held:
    """Consecutive rows of something, (channels, rows, w): added below, forgotten above."""

    def __init__(self) -> None:
        self.stop = 0  # the row after the last one held
        self._rows: Tensor | None = None

    def add(self, rows: Tensor, start: int) -> None:
        """Add rows; those before `start` will not be asked for again."""
        self.stop += rows.shape[1]
        if self._rows is not None:
            first = self.stop - rows.shape[1] - self._rows.shape[1]
            rows = torch.cat([self._rows[:, max(0, start - first) :], rows], dim=1)
        self._rows = rows

    def get(self, start: int, stop: int) -> Tensor:
        assert self._rows is not None
        first = self.stop - self._rows.shape[1]
        return self._rows[:, start - first : stop - first]


def reach(head: nn.Module) -> int:
    """How many neurons to each side a head looks."""
    return sum(
        max(dilation * (kernel // 2) for dilation, kernel in zip(*sizes, strict=True))
        for sizes in (
            (layer.dilation, layer.kernel_size)
            for layer in head.modules()
            if isinstance(layer, nn.Conv2d)
        )
    )


class _Replaced:
    """A context for a batch of windows that knows which neurons are each window's own."""

    def __init__(self, context: Context, windows: list[tuple[Window, Window]]) -> None:
        self.context = context
        self.windows = windows

    def __call__(self, features: Tensor) -> Tensor:
        return torch.cat(
            [
                self.context(features[at : at + 1], own_part(row), own_part(column))
                for at, (row, column) in enumerate(self.windows)
            ]
        )
