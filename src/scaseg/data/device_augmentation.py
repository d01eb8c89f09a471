"""Augmentation on the device: loaders draw and cut, the GPU colours, resizes and crops a batch.

What the loader's own chain makes, to rounding: a transform draws the same numbers in the same order
from the generator of (seed, epoch, index). The loader then only cuts out the pixels that the crop
will need and sends them as stored; photographs that are much larger than `fit` it fits itself.
Resizing is linear along each axis, so flip, `fit`, `scale` and crop of an image are two small
matrices, and those of a batch two products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from scaseg.data.augmentations import RandomHue
from scaseg.data.sample import (
    IGNORE,
    Batch,
    Example,
    Sample,
    as_example,
    collate,
    common_size,
    require_unpadded,
)
from scaseg.data.transforms import (
    ColorJitter,
    Compose,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    ResizeToFit,
    Transform,
)
from scaseg.system import matmul_precision

MOST_SENT = 8  # pixels sent for one of the fitted image: batches wait in memory, ten and more
# what the device computes, in the only order in which it does
STAGES: tuple[tuple[type, ...], ...] = (
    (RandomHorizontalFlip,),
    (ColorJitter,),
    (RandomHue,),
    (ResizeToFit,),
    (RandomResize,),
    (RandomCrop, Pad),
)


class Axis(NamedTuple):
    """How one axis of each image becomes that of its example; tensors (B, 1), float64.

    length -> fitted -> resized, in pixels; then `kept` from `start` on are cut out, and mirrored
    where the example is longer. What was sent begins at `first`; of the fitted, what is computed
    begins at `fitted_first`.
    """

    length: Tensor
    fitted: Tensor
    resized: Tensor
    start: Tensor
    kept: Tensor
    first: Tensor
    fitted_first: Tensor
    mirrored: Tensor  # 0 or 1


class Planned(NamedTuple):
    """A cut-out of an image as stored, and what is to be done with it.

    axes (2, 8): the numbers of an Axis, for rows and for columns. color (4): factors of brightness,
    contrast and saturation, and the mean of all pixels. hue (3, 3): of the colours; None: not in
    the chain. fitted: how many fitted rows and columns are computed. size, shape: of the example,
    without padding and with it.
    """

    window: Example
    axes: Tensor
    color: Tensor | None
    hue: Tensor | None
    fitted: tuple[int, int]
    size: tuple[int, int]
    shape: tuple[int, int]


class PlannedBatch(NamedTuple):
    """Cut-outs padded to one size, and what is to be done with them; see `Planned`.

    sizes (B, 2): of the examples, without padding.
    """

    windows: Batch
    axes: Tensor
    color: Tensor | None
    hue: Tensor | None
    fitted: tuple[int, int]
    sizes: Tensor
    shape: tuple[int, int]

    @property
    def names(self) -> list[str]:
        """The names of the samples."""
        return self.windows.names


def split_chain(chain: Sequence[Transform]) -> tuple[list[Transform], list[Transform]]:
    """Divide a chain into what loaders compute first, and the rest, which the device computes."""
    start, before = len(chain), len(STAGES)
    while start:
        kind = type(chain[start - 1])
        stage = next((place for place, kinds in enumerate(STAGES) if kind in kinds), before)
        if stage >= before:
            break
        start, before = start - 1, stage
    return list(chain[:start]), list(chain[start:])


def plan(sample: Sample, chain: Sequence[Transform], random: Generator) -> Planned:
    """Draw what a chain of `split_chain` draws for a sample, and cut out what it will read."""
    require_unpadded(sample, "augmentation on the device")
    fit = next((place for place, one in enumerate(chain) if isinstance(one, ResizeToFit)), None)
    if fit is not None and _is_large(sample, chain[fit]):
        sample, chain = Compose(chain[: fit + 1])(sample, random), chain[fit + 1 :]
    whole = sample.labels.shape
    mirrored, color, hue = False, None, None
    fitted = resized = whole
    corner, size, shape, mirrors = (0, 0), whole, whole, False
    for transform in chain:
        if isinstance(transform, RandomHorizontalFlip):
            mirrored = transform.draw(random)
        elif isinstance(transform, ColorJitter):
            factors = transform.draw(random)
            # a transposed or mirrored view is as good as any: it is the sum that counts
            mean = factors[0] * float(sample.image.sum(dtype=np.float64)) / sample.image.size
            color = torch.tensor([*factors, mean], dtype=torch.float32)
        elif isinstance(transform, RandomHue):
            hue = torch.from_numpy(transform.draw(random))
        elif isinstance(transform, ResizeToFit):
            fitted = size = resized = shape = transform.size(fitted)
        elif isinstance(transform, RandomResize):
            resized = size = shape = transform.size(fitted, random)
        elif isinstance(transform, RandomCrop):
            corner, shape = transform.corner(resized, random), (transform.height, transform.width)
            mirrors = transform.mirrors
            size = min(resized[0], shape[0]), min(resized[1], shape[1])
        elif isinstance(transform, Pad):
            shape = max(size[0], transform.height), max(size[1], transform.width)
            mirrors = transform.mirrors
    axes: list[tuple[int, ...]] = []
    parts: list[slice] = []
    computed: list[int] = []
    for side in (0, 1):
        length, start, stop = whole[side], corner[side], corner[side] + size[side]
        low, high = _read_by(start, stop, fitted[side], resized[side])
        first, last = _read_by(low, high, length, fitted[side])
        if turned := mirrored and side == 1:
            first, last = length - last, length - first
        lengths = (length, fitted[side], resized[side])
        axes.append((*lengths, start, size[side], first, low, int(turned)))  # as in Axis
        parts.append(slice(first, last))
        computed.append(high - low)
    window = np.s_[parts[0], parts[1]]
    cut = Sample(sample.image[window], sample.labels[window], sample.name)
    numbers = torch.tensor(axes, dtype=torch.float64)
    size = shape if mirrors else size
    return Planned(as_example(cut), numbers, color, hue, (computed[0], computed[1]), size, shape)


def _is_large(sample: Sample, fit: Transform) -> bool:
    """Whether so much more would be sent than is left of it that the loader fits it itself."""
    assert isinstance(fit, ResizeToFit)
    whole = sample.labels.shape
    return math.prod(whole) > MOST_SENT * math.prod(fit.size(whole))


def _read_by(start: int, stop: int, before: int, after: int) -> tuple[int, int]:
    """The pixels, of `before`, that are read for start to stop of `after`."""
    if before == after:
        return start, stop
    scale = before / after
    reach = max(scale, 1.0)
    low, high = int((start + 0.5) * scale - reach), int((stop - 0.5) * scale + reach) + 1
    return max(0, low), min(before, high)


def collate_planned(planned: Sequence[Planned]) -> PlannedBatch:
    """Make a batch of what a loader has planned; examples get the size that `collate` gives."""
    sizes = [one.size for one in planned]
    # a loader has coloured large images itself
    colors = [torch.tensor([1.0, 1, 1, 0]) if one.color is None else one.color for one in planned]
    hues = [torch.eye(3) if one.hue is None else one.hue for one in planned]
    return PlannedBatch(
        collate([one.window for one in planned]),
        torch.stack([one.axes for one in planned]),
        torch.stack(colors) if any(one.color is not None for one in planned) else None,
        torch.stack(hues) if any(one.hue is not None for one in planned) else None,
        (max(one.fitted[0] for one in planned), max(one.fitted[1] for one in planned)),
        torch.tensor(sizes),
        common_size([one.shape for one in planned], sizes),
    )


@torch.no_grad()
def augment(batch: PlannedBatch, device: torch.device | str) -> Batch:
    """Do on a device what was planned: the batch that `collate` makes of the loader's examples."""
    windows, (height, width) = batch.windows, batch.shape
    is_cuda = torch.device(device).type == "cuda"
    pixels, labels, axes = (
        one.to(device, non_blocking=is_cuda) for one in (windows.images, windows.labels, batch.axes)
    )
    is_uint8 = pixels.dtype == torch.uint8
    outside = None  # which rows and columns of each example are padding
    if (batch.sizes != torch.tensor(batch.shape)).any():
        ends = batch.sizes.to(device, non_blocking=is_cuda)
        outside = [
            torch.arange(count, device=device) >= ends[:, side : side + 1]
            for side, count in enumerate(batch.shape)
        ]
    with matmul_precision("highest"):  # TF32 has 10 bits, and pixels have 8
        x = _recolor(pixels, batch.color, batch.hue)
        rows, columns = (
            Axis(*(one.unsqueeze(1) for one in axes[:, side].unbind(1))) for side in (0, 1)
        )
        across = _resizing(columns, width, x.shape[3], batch.fitted[1])
        down = _resizing(rows, height, x.shape[2], batch.fitted[0])
        if outside is not None:
            across.masked_fill_(outside[1].unsqueeze(2), 0)
            down.masked_fill_(outside[0].unsqueeze(2), 0)
        # first along the rows, then across them, 8 bits in between: as Pillow does
        x = _rounded(x.flatten(1, 2) @ across.mT, is_uint8).unflatten(1, (-1, pixels.shape[2]))
        x = x.permute(0, 2, 3, 1).flatten(2)  # (B, H, w * C)
        x = _rounded(down @ x, is_uint8).unflatten(2, (width, -1))
    places = torch.arange(len(x), device=device).view(-1, 1, 1)
    picked = labels[
        places,
        _picked(rows, height, labels.shape[1]).unsqueeze(2),
        _picked(columns, width, labels.shape[2]).unsqueeze(1),
    ]
    if outside is not None:
        picked = picked.masked_fill(outside[0].unsqueeze(2) | outside[1].unsqueeze(1), IGNORE)
    images = x.to(torch.uint8) if is_uint8 else x
    return Batch(images.permute(0, 3, 1, 2), picked, batch.sizes, windows.names)


def _recolor(pixels: Tensor, color: Tensor | None, hue: Tensor | None) -> Tensor:
    """ColorJitter and RandomHue of a batch (B, C, H, W) -> the same as floats."""
    x = pixels.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    if color is not None:
        color = color.to(x.device, non_blocking=x.is_cuda)
        bright, contrast, saturation, mean = (one.view(-1, 1, 1, 1) for one in color.unbind(1))
        x.mul_(bright).sub_(mean).mul_(contrast).add_(mean)
        gray = x.sum(1, keepdim=True).div_(x.shape[1])
        x.sub_(gray).mul_(saturation).add_(gray)
        if pixels.dtype == torch.uint8:
            x.round_().clamp_(0, 255)
    if hue is not None:
        turned = hue.to(x.device, non_blocking=x.is_cuda) @ x.flatten(2)
        x = turned.round_().clamp_(0, 255).view_as(x)
    return x


def _resizing(axis: Axis, count: int, sent: int, fitted: int) -> Tensor:
    """The weight of each pixel that was sent in each one of the example: (B, count, sent)."""

    def numbers(most: int, first: Tensor) -> Tensor:
        return torch.arange(most, dtype=torch.float64, device=first.device) + first

    source = numbers(sent, axis.first)
    source = torch.where(axis.mirrored > 0, axis.length - 1 - source, source)
    between = numbers(fitted, axis.fitted_first)
    first = _triangle(axis.length, axis.fitted, between, source)
    second = _triangle(axis.fitted, axis.resized, _places(axis, count), between)
    return second.float() @ first.float()  # places want 64 bits, weights do not


def _triangle(before: Tensor, after: Tensor, wanted: Tensor, source: Tensor) -> Tensor:
    """Pillow's bilinear filter: weights (B, wanted, source) of an axis resized before -> after."""
    scale = (before / after).unsqueeze(2)  # (B, 1, 1)
    distance = (source + 0.5).unsqueeze(1) - (wanted + 0.5).unsqueeze(2) * scale
    weights = (1 - distance.abs() / scale.clamp(min=1)).clamp_(min=0)
    weights *= ((source >= 0) & (source < before)).unsqueeze(1)
    return weights / weights.sum(2, keepdim=True).clamp(min=1e-9)


def _picked(axis: Axis, count: int, sent: int) -> Tensor:
    """The pixel, of those sent, whose label each one of the example gets: (B, count)."""
    place = _places(axis, count)
    for before, after in ((axis.fitted, axis.resized), (axis.length, axis.fitted)):
        place = ((place + 0.5) * before / after).floor()
    place = torch.where(axis.mirrored > 0, axis.length - 1 - place, place)
    return (place - axis.first).long().clamp_(0, sent - 1)


def _places(axis: Axis, count: int) -> Tensor:
    """The pixel, of the resized, that each one of the example is: (B, count).

    Beyond those that are kept, their mirror: of 3, 0 1 2 2 1 0 0 1 and so on.
    """
    place = torch.arange(count, dtype=torch.float64, device=axis.kept.device) % (2 * axis.kept)
    return axis.start + torch.minimum(place, 2 * axis.kept - 1 - place)


def _rounded(x: Tensor, is_uint8: bool) -> Tensor:
    return x.add_(0.5).floor_().clamp_(0, 255) if is_uint8 else x
