"""Sliding-window inference: images of any size, in windows that are blended where they overlap.

Windows start at multiples of the backbone's stride and are blended at its neurons. So a neuron far
from any seam has the very score that it would have in one pass over the whole image, and only a
strip of windows is held, at 1/8.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scaseg.inference.preprocessing import Preprocessed
from scaseg.models.segmenter import Segmenter
from scaseg.nn.streaming import StreamedContext

COLUMNS = 256  # neurons side by side that the head is given at once


class Window(NamedTuple):
    """One window along one axis.

    own: the neurons, counted from its first, that are no other window's own: overlaps are divided
    in the middle. blending: the weight of each neuron; those of all windows sum to 1.
    """

    pixels: slice
    neurons: slice
    own: slice
    blending: Tensor


class WindowGrid:
    """The windows of an image: evenly spaced, overlapping by at least `overlap` pixels.

    size: (h, w) of the whole image in neurons.
    """

    def __init__(self, model: Segmenter, size: tuple[int, int], window: int, overlap: int) -> None:
        self.size = model.backbone.map_size(*size)
        self.rows, self.columns = (
            _windows(pixels, neurons, window, overlap, model.backbone.stride)
            for pixels, neurons in zip(size, self.size, strict=True)
        )

    def crops(
        self, image: Preprocessed, row: Window, batch_size: int
    ) -> Iterator[tuple[list[Window], Tensor]]:
        """Cut a row of windows out of an image: their columns, and pixels (B, C, h, w)."""
        pixels = image.rows(row.pixels)
        for _, group in groupby(self.columns, lambda one: one.pixels.stop - one.pixels.start):
            columns = list(group)  # of one width
            for first in range(0, len(columns), batch_size):
                batch = columns[first : first + batch_size]
                yield batch, torch.cat([pixels[..., column.pixels] for column in batch])


def evenly_spaced(length: int, window: int, overlap: int) -> Iterator[slice]:
    """Slices of one size that cover a length, overlapping by at least `overlap`."""
    if length <= window:
        yield slice(0, length)
        return
    count = -(-(length - overlap) // (window - overlap))
    for index in range(count):
        start = round(index * (length - window) / (count - 1))
        yield slice(start, start + window)


def _windows(pixels: int, neurons: int, window: int, overlap: int, stride: int) -> list[Window]:
    parts, shared = [slice(0, neurons)], -(-overlap // stride)
    if pixels > window:
        length = max(1, window // stride)
        parts = list(evenly_spaced(neurons, length, min(shared, length - 1)))
    borders = [0, *((a.stop + b.start) // 2 for a, b in pairwise(parts)), neurons]
    total, ramps = torch.zeros(neurons), []
    for part in parts:
        distance = torch.arange(1.0, part.stop - part.start + 1)
        distance = torch.minimum(distance, distance.flip(0))  # from the nearer edge
        ramps.append((distance / (shared + 1)).clamp(max=1))
        total[part] += ramps[-1]
    return [
        Window(
            # the last one has what is left of the last stride, or of a pool's odd pixels
            slice(part.start * stride, pixels if part.stop == neurons else part.stop * stride),
            part,
            slice(start - part.start, stop - part.start),
            ramp / total[part],
        )
        for part, ramp, (start, stop) in zip(parts, ramps, pairwise(borders), strict=True)
    ]


def sliding_window_inference(
    model: Segmenter,
    image: Preprocessed,
    window: int,
    overlap: int,
    context_scope: str = "window",
    batch_size: int = 1,
) -> RowStream:
    """Score an image in windows, which are computed as rows are asked for: (classes, h, w).

    context_scope "image": a first pass over all windows streams the context of the whole image.
    """
    grid = WindowGrid(model, image.size, window, overlap)
    context = stream_context(model, image, grid, batch_size) if context_scope == "image" else None
    features = _BlendedFeatures(model, image, grid, context, batch_size)
    return _HeadScores(model.head, features, grid.rows[0].neurons.stop, flipped=image.flipped)


def stream_context(
    model: Segmenter, image: Preprocessed, grid: WindowGrid, batch_size: int
) -> StreamedContext:
    """Stream the context of a whole image: each neuron counts once, in the window that owns it."""
    streamed = StreamedContext(model.context)
    for row in grid.rows if streamed.sums is not None else ():
        for columns, images in grid.crops(image, row, batch_size):
            features, _ = model.backbone(images)
            for column, part in zip(columns, features, strict=True):
                streamed.add(part[:, row.own, column.own].unsqueeze(0))
    return streamed


class RowStream:
    """A map (channels, h, w): all there, or computed from the top, some rows at a time."""

    def __init__(self, size: tuple[int, int], rows: Tensor | None = None) -> None:
        self.size = size  # (h, w)
        self._held = rows
        self._stop = 0 if rows is None else rows.shape[1]  # the row after the last one held

    def rows(self, start: int, stop: int) -> Tensor:
        """Return (channels, stop - start, w); later calls never ask for rows before `start`."""
        while self._held is None or self._stop < stop:
            rows, top = self._compute(self._stop), self._stop
            self._stop += rows.shape[1]
            if self._held is not None:
                kept = max(0, start - (top - self._held.shape[1]))
                rows = torch.cat([self._held[:, kept:], rows], dim=1)
            self._held = rows
        first = self._stop - self._held.shape[1]
        return self._held[:, start - first : stop - first]

    def _compute(self, top: int) -> Tensor:
        """Compute some rows from `top` on."""
        raise NotImplementedError


class _HeadScores(RowStream):
    """The scores of an image's neurons, in its own orientation, `step` rows at a time.

    The head reads up to 12 neurons to each side, and at the edge of a window it would read zeros,
    which showed as lines. So it gets features that are blended from all windows around.
    """

    def __init__(self, head: nn.Module, features: RowStream, step: int, *, flipped: bool) -> None:
        super().__init__(features.size)
        self._head, self._features = head, features
        self._step, self._flipped = step, flipped
        self._reach = head_reach(head)

    def _compute(self, top: int) -> Tensor:
        above, bottom = max(0, top - self._reach), min(top + self._step, self.size[0])
        features = self._features.rows(above, min(bottom + self._reach, self.size[0]))
        found = []
        for left in range(0, self.size[1], COLUMNS):
            right = min(left + COLUMNS, self.size[1])
            before = max(0, left - self._reach)
            part = features[..., before : right + self._reach].unsqueeze(0)
            scores = self._head(part)[0, :, top - above : bottom - above]
            found.append(scores[..., left - before : right - before].float())
        scores = torch.cat(found, dim=-1)
        return scores.flip(-1) if self._flipped else scores


class _BlendedFeatures(RowStream):
    """What the head gets: features of windows, blended, a row of windows at a time."""

    def __init__(
        self,
        model: Segmenter,
        image: Preprocessed,
        grid: WindowGrid,
        context: StreamedContext | None,
        batch_size: int,
    ) -> None:
        super().__init__(grid.size)
        self._model, self._image, self._grid = model, image, grid
        self._context, self._batch_size = context, batch_size
        self._next = 0  # row of windows to compute
        self._open: Tensor | None = None  # rows below, of which the next windows have a share

    def _compute(self, top: int) -> Tensor:
        row = self._grid.rows[self._next]
        blended = self._blend(row)
        if self._open is not None:
            blended[:, : self._open.shape[1]] += self._open
        self._next += 1
        last = self._next == len(self._grid.rows)
        final = blended.shape[1] if last else self._grid.rows[self._next].neurons.start - top
        self._open = blended[:, final:]
        return blended[:, :final]

    def _blend(self, row: Window) -> Tensor:
        """Blend the windows of one row: (channels, rows, w)."""
        blended: Tensor | None = None
        for columns, images in self._grid.crops(self._image, row, self._batch_size):
            whole = partial(self._whole_context, row, columns)
            context = None if self._context is None else whole
            features, _ = self._model.features(images, context=context)
            for column, part in zip(columns, features.float(), strict=True):
                if blended is None:
                    blended = part.new_zeros(*part.shape[:2], self._grid.size[1])
                blended[..., column.neurons] += part * column.blending.to(part)
        assert blended is not None
        return blended.mul_(row.blending.to(blended)[:, None])

    def _whole_context(self, row: Window, columns: list[Window], features: Tensor) -> Tensor:
        """Add the whole image's context to the features of some windows, (B, channels, h, w)."""
        assert self._context is not None
        found = []
        for column, part in zip(columns, features, strict=True):
            own = torch.zeros(part.shape[-2:], dtype=torch.bool, device=part.device)
            own[row.own, column.own] = True
            found.append(self._context(part.unsqueeze(0), own))
        return torch.cat(found)


def head_reach(head: nn.Module) -> int:
    """How many neurons to each side a head reads."""
    return sum(
        max(d * (k // 2) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
        for layer in head.modules()
        if isinstance(layer, nn.Conv2d)
    )
