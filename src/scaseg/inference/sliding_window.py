"""Sliding-window inference: images of any size, in windows that are blended where they overlap.

Windows start at multiples of the backbone's stride and are blended at its neurons. So a neuron far
from any seam has the very score that it would have in one pass over the whole image, and only a
strip of windows is held, at 1/8. A head that reads finer maps scores each window by itself: it
looks less far beyond an edge than a window is blended, and its scores are blended, at 1/4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scaseg.inference.preprocessing import Preprocessed
from scaseg.models.heads import PyramidHead
from scaseg.models.segmenter import Segmenter, require_finite
from scaseg.nn.streaming import StreamedContext

COLUMNS = 256  # neurons side by side that the head is given at once


class Window(NamedTuple):
    """One window along one axis.

    neurons: of the features. own: those, counted from its first, that are no other window's own:
    overlaps are divided in the middle. blended: the neurons of what is blended, features or scores
    of a finer map; blending: the weight of each; those of all windows sum to 1.
    """

    pixels: slice
    neurons: slice
    own: slice
    blended: slice
    blending: Tensor


class WindowGrid:
    """The windows of an image: evenly spaced, overlapping by at least `overlap` pixels.

    size: (h, w) of the whole image in neurons that are blended.
    """

    def __init__(self, model: Segmenter, size: tuple[int, int], window: int, overlap: int) -> None:
        backbone, finer = model.backbone, model.backbone.stride // model.score_stride
        neurons, self.size = backbone.map_size(*size), model.score_size(*size)
        self.rows, self.columns = (
            _windows(*lengths, window, overlap, backbone.stride, finer)
            for lengths in zip(size, neurons, self.size, strict=True)
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


def evenly_spaced(length: int, window: int, overlap: int) -> list[slice]:
    """Return slices of one size that cover a length, overlapping by at least `overlap`."""
    if length <= window:
        return [slice(0, length)]
    count = -(-(length - overlap) // (window - overlap))
    starts = [round(index * (length - window) / (count - 1)) for index in range(count)]
    return [slice(start, start + window) for start in starts]


def _windows(
    pixels: int, neurons: int, blended: int, window: int, overlap: int, stride: int, finer: int
) -> list[Window]:
    """The windows along one axis; finer: neurons that are blended for each one of the features."""
    parts, shared = [slice(0, neurons)], -(-overlap // stride)
    if pixels > window:
        length = max(1, window // stride)
        parts = evenly_spaced(neurons, length, min(shared, length - 1))
    borders = [0, *((a.stop + b.start) // 2 for a, b in pairwise(parts)), neurons]
    places = [
        slice(part.start * finer, blended if part.stop == neurons else part.stop * finer)
        for part in parts
    ]
    total, ramps = torch.zeros(blended), []
    for place in places:
        distance = torch.arange(1.0, place.stop - place.start + 1)
        distance = torch.minimum(distance, distance.flip(0))  # from the nearer edge
        ramps.append((distance / (shared * finer + 1)).clamp(max=1))
        total[place] += ramps[-1]
    return [
        Window(
            # the last one has what is left of the last stride, or of a pool's odd pixels
            slice(part.start * stride, pixels if part.stop == neurons else part.stop * stride),
            part,
            slice(start - part.start, stop - part.start),
            place,
            ramp / total[place],
        )
        for part, place, ramp, (start, stop) in zip(
            parts, places, ramps, pairwise(borders), strict=True
        )
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
    context = None
    if context_scope == "image":
        context = StreamedContext(model.context)
        for row in grid.rows if context.sums is not None else ():
            for columns, images in grid.crops(image, row, batch_size):
                features, _ = model.backbone(images)
                for column, part in zip(columns, features, strict=True):
                    # each neuron counts once, in the window that owns it
                    context.add(part[:, row.own, column.own].unsqueeze(0))
    blended = _blend(model, image, grid, context, batch_size)
    if not isinstance(model.head, PyramidHead):
        features = RowStream(grid.size, blended)
        blended = _score_rows(model.head, features, grid.rows[0].neurons.stop)
    return RowStream(grid.size, (require_finite(model, block) for block in blended))


class RowStream:
    """A map (..., h, w) that comes in blocks of rows, from the top; few of them are held."""

    def __init__(self, size: tuple[int, int], blocks: Iterable[Tensor]) -> None:
        self.size = size  # (h, w)
        self._blocks = iter(blocks)
        self._held: Tensor | None = None
        self._first = self._stop = 0  # the rows held

    def rows(self, start: int, stop: int) -> Tensor:
        """Return (..., stop - start, w); later calls never ask for rows before `start`."""
        while self._stop < stop:
            block, first = next(self._blocks), self._stop
            self._stop += block.shape[-2]
            if self._held is not None and start < first:
                block = torch.cat([self._held[..., max(0, start - self._first) :, :], block], -2)
            self._held, self._first = block, self._stop - block.shape[-2]
        assert self._held is not None
        return self._held[..., start - self._first : stop - self._first, :]


def _score_rows(head: nn.Module, features: RowStream, step: int) -> Iterator[Tensor]:
    """Yield the scores of neurons, `step` rows at a time: (classes, rows, w).

    The head reads up to 12 neurons to each side, and at the edge of a window it would read zeros,
    which showed as lines. So it gets features that are blended from all windows around.
    """
    (height, width), reach = features.size, head_reach(head)
    for top in range(0, height, step):
        above, bottom = max(0, top - reach), min(top + step, height)
        around = features.rows(above, min(bottom + reach, height))
        found = []
        for left in range(0, width, COLUMNS):
            before, right = max(0, left - reach), min(left + COLUMNS, width)
            scores = head(around[..., before : right + reach].unsqueeze(0))[0].float()
            found.append(scores[:, top - above : bottom - above, left - before : right - before])
        yield torch.cat(found, dim=-1)


def _blend(
    model: Segmenter,
    image: Preprocessed,
    grid: WindowGrid,
    context: StreamedContext | None,
    batch_size: int,
) -> Iterator[Tensor]:
    """Yield what is blended, a row of windows at a time: (channels, rows, w).

    Scores of a head that reads finer maps, else the features that the head gets.
    """
    below: Tensor | None = None  # rows of which the next windows have a share
    ends = [*(row.blended.start for row in grid.rows[1:]), grid.size[0]]
    for row, end in zip(grid.rows, ends, strict=True):
        blended: Tensor | None = None
        for columns, images in grid.crops(image, row, batch_size):
            whole = None if context is None else partial(_add_context, context, row, columns)
            features = model.features(images, context=whole)
            found = model.score(features)[0] if features.finer else features.x
            for column, part in zip(columns, found.float(), strict=True):
                if blended is None:
                    blended = part.new_zeros(*part.shape[:2], grid.size[1])
                blended[..., column.blended] += part * column.blending.to(part)
        assert blended is not None
        blended.mul_(row.blending.to(blended)[:, None])
        if below is not None:
            blended[:, : below.shape[1]] += below
        below = blended[:, end - row.blended.start :]
        yield blended[:, : end - row.blended.start]


def _add_context(
    context: StreamedContext, row: Window, columns: list[Window], features: Tensor
) -> Tensor:
    """Add the whole image's context to the features of some windows, (B, channels, h, w)."""
    found = []
    for column, part in zip(columns, features, strict=True):
        own = torch.zeros(part.shape[-2:], dtype=torch.bool, device=part.device)
        own[row.own, column.own] = True
        found.append(context(part.unsqueeze(0), own))
    return torch.cat(found)


def head_reach(head: nn.Module) -> int:
    """How many neurons to each side a head reads."""
    return sum(
        max(d * (k // 2) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
        for layer in head.modules()
        if isinstance(layer, nn.Conv2d)
    )
