"""From photographs to segmentations: in batches where sizes allow, in bands of rows always."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg.inference.image_input import SINGLE, Photograph, as_pixels, as_tensor
from scaseg.inference.preprocessing import View, seen_size
from scaseg.inference.segmentation import Segmentation, palette_of
from scaseg.inference.test_time import TestTimeAugmentation, band_rows, bands, look
from scaseg.inference.upsampling import Enlarged, WholeMap
from scaseg.models.segmenter import Segmenter

Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: dict[str, torch.dtype | None] = {
    "fp32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# Pixels of a batch, padding counted: beyond it more images at once gain nothing and cost memory
BATCH_PIXELS = 4_000_000
# How much of a batch may be padding, which is computed for nothing
PADDING = 0.15

Key = TypeVar("Key")
OnBand = Callable[[Any, tuple[int, int], Tensor], None]


@overload
def predict(  # type: ignore[overload-overlap]  # a path is a sequence too
    model: Segmenter,
    images: Photograph,
    *,
    scores: bool = False,
    how: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "fp32",
) -> Segmentation: ...
@overload
def predict(
    model: Segmenter,
    images: Iterable[Photograph],
    *,
    scores: bool = False,
    how: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "fp32",
) -> list[Segmentation]: ...
def predict(
    model: Segmenter,
    images: Photograph | Iterable[Photograph],
    *,
    scores: bool = False,
    how: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "fp32",
) -> Segmentation | list[Segmentation]:
    """Segment a photograph, or a list of them, on the device where the model is.

    A photograph is a path, a PIL image, an array (H, W, 3) or a tensor (3, H, W) of uint8.
    scores: keep the probabilities of all classes too. how: scales, mirroring, windows. batch_size:
    photographs of a similar size, or windows, computed at once (1 on a CPU, 8 elsewhere). The
    model's mode is left as it was.

    >>> import numpy as np, scaseg
    >>> model = scaseg.create_model("mobilenet_v2", head="compact", classes=["sky", "road"])
    >>> predict(model, np.zeros((30, 40, 3), np.uint8)).labels.shape
    (30, 40)
    """
    single = isinstance(images, SINGLE) or not isinstance(images, Iterable)
    several: Iterable[Any] = [images] if single else images  # type: ignore[assignment]
    found = segment(
        model,
        ((place, as_pixels(model, image)) for place, image in enumerate(several)),
        scores=scores,
        how=how,
        batch_size=batch_size,
        precision=precision,
    )
    in_order = [segmentation for _, segmentation in sorted(found, key=lambda pair: pair[0])]
    return in_order[0] if single else in_order


@torch.no_grad()
def segment(
    model: Segmenter,
    photographs: Iterable[tuple[Key, NDArray[np.uint8]]],
    *,
    scores: bool = False,
    how: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "fp32",
    on_band: OnBand | None = None,
) -> Iterator[tuple[Key, Segmentation]]:
    """Segment photographs (H, W, C) as they come, and name each by the key that came with it.

    Those of a similar size wait for each other, a few at most: the order may change. on_band gets
    the probabilities of each photograph, from the top, a band of rows at a time: its key, its
    (H, W), and (classes, rows, W); so that they need never be held all at once.
    """
    how = how or TestTimeAugmentation()
    device = next(model.parameters()).device
    batch_size = check_batch_size(batch_size, device)
    check_precision(precision)
    queue: list[_Waiting] = []
    for key, pixels in photographs:
        seen = seen_size(model, pixels.shape[0], pixels.shape[1], max(how.scales))
        queue.append(_Waiting(key, pixels, seen))
        alone = how.window is not None and max(seen) > how.window
        if alone or batch_size == 1:
            chosen = [queue.pop()]
        elif len(queue) >= 4 * batch_size:
            chosen = _alike(queue, batch_size)
        else:
            continue
        yield from _segment_batch(model, chosen, how, batch_size, precision, scores, on_band)
    while queue:
        chosen = _alike(queue, batch_size)
        yield from _segment_batch(model, chosen, how, batch_size, precision, scores, on_band)


def check_batch_size(batch_size: int | None, device: torch.device) -> int:
    """Take a batch size, or what is usual on a device."""
    if batch_size is None:
        return 1 if device.type == "cpu" else 8
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}; give a whole number >= 1")
    return batch_size


def check_precision(precision: str) -> None:
    """Refuse a precision that does not exist."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; give one of {', '.join(PRECISIONS)}")


class _Waiting(NamedTuple):
    """A photograph that waits for others of its size; `seen`, as the network will see it."""

    key: Any
    pixels: NDArray[np.uint8]
    seen: tuple[int, int]


def _alike(queue: list[_Waiting], batch_size: int) -> list[_Waiting]:
    """Take the photograph that has waited longest and what goes well with it out of the queue."""
    chosen = [queue.pop(0)]
    height, width = chosen[0].seen
    area = height * width
    near = sorted(queue, key=lambda other: abs(other.seen[0] - height) + abs(other.seen[1] - width))
    for other in near:
        if len(chosen) == batch_size:
            break
        high, wide = max(height, other.seen[0]), max(width, other.seen[1])
        padded = (len(chosen) + 1) * high * wide
        real = area + other.seen[0] * other.seen[1]
        if padded > BATCH_PIXELS or real < (1 - PADDING) * padded:
            continue
        chosen.append(other)
        height, width, area = high, wide, real
    taken = {id(other) for other in chosen}
    queue[:] = [other for other in queue if id(other) not in taken]
    return chosen


def _segment_batch(
    model: Segmenter,
    chosen: list[_Waiting],
    how: TestTimeAugmentation,
    batch_size: int,
    precision: Precision,
    keep_scores: bool,
    on_band: OnBand | None,
) -> list[tuple[Any, Segmentation]]:
    device = next(model.parameters()).device
    images = [as_tensor(waiting.pixels, device) for waiting in chosen]
    with evaluating(model), _computing(device, precision):
        if len(images) == 1:
            seen = [look(model, images[0], how, batch_size=batch_size)]
        else:
            seen = _look_together(model, images, how)
        return [
            (waiting.key, _segmentation(model, waiting, looks, keep_scores, on_band))
            for waiting, looks in zip(chosen, seen, strict=True)
        ]


def _look_together(
    model: Segmenter, images: Sequence[Tensor], how: TestTimeAugmentation
) -> list[list[Enlarged]]:
    """Look at photographs in padded batches; each gets what it would get alone."""
    looks: list[list[Enlarged]] = [[] for _ in images]
    for scale, mirrored in how.looks():
        views = [View(model, image, scale, mirrored=mirrored) for image in images]
        height, width = (max(view.size[axis] for view in views) for axis in (0, 1))
        batch = images[0].new_zeros(
            len(images), images[0].shape[0], height, width, dtype=torch.float32
        )
        for place, view in enumerate(views):
            batch[place, :, : view.size[0], : view.size[1]] = view.whole()[0]
        if all(view.size == (height, width) for view in views):
            scores, real = model.coarse(batch)
        else:
            sizes = torch.tensor([view.size for view in views])
            scores, real = model.coarse(batch, sizes.to(batch.device))
        own_cells = [scores.shape[-2:]] * len(images)
        if real is not None:  # one look at all numbers: each would make a GPU wait
            own_cells = torch.stack([real.any(2).sum(1), real.any(1).sum(1)], 1).tolist()
        for place, (view, image) in enumerate(zip(views, images, strict=True)):
            rows, columns = own_cells[place]
            own = scores[place, :, :rows, :columns]
            own = own.flip(-1) if mirrored else own
            size = (image.shape[-2], image.shape[-1])
            looks[place].append(Enlarged(WholeMap(own), view.size, size))
    return looks


def _segmentation(
    model: Segmenter,
    waiting: _Waiting,
    looks: list[Enlarged],
    keep_scores: bool,
    on_band: OnBand | None,
) -> Segmentation:
    classes = model.config.classes
    height, width = waiting.pixels.shape[:2]
    labels = np.empty((height, width), np.uint8 if len(classes) <= 256 else np.uint16)
    kept = np.empty((len(classes), height, width), np.float32) if keep_scores else None
    for rows, found in bands(looks, height, band=band_rows(len(classes), width)):
        # not argmax, which takes seven times as long on a CPU
        labels[rows] = found.max(0).indices.to(torch.int32).cpu().numpy()
        if kept is not None:
            kept[:, rows] = found.cpu().numpy()
        if on_band is not None:
            on_band(waiting.key, (height, width), found)
    palette = palette_of(classes, model.config.palette)
    return Segmentation(labels, classes, palette, kept, waiting.pixels)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Put a model into eval mode for a while; each of its modules gets its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _computing(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    dtype = PRECISIONS[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
