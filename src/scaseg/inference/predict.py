"""Predict images: in batches where sizes allow, probabilities only some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.data.decode.bands import picture
from scaseg.errors import UserError
from scaseg.inference.batching import SizeQueue
from scaseg.inference.preprocessing import (
    IMAGE_TYPES,
    MOST_PINNED,
    ImageLike,
    Uploads,
    as_array,
    input_size,
)
from scaseg.inference.processes import Arena
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.tta import TestTimeAugmentation, Upsampled, mean_rows, score_maps
from scaseg.metrics import soften
from scaseg.models.segmenter import Segmenter, evaluating, not_finite
from scaseg.plots.palette import default_palette
from scaseg.system import Precision, autocast

MOST_HELD, MOST_ON_GPU = 1 << 24, 1 << 27  # probabilities held at once: 64 and 512 MiB
MOST_ASIDE = 1 << 19  # pixels that one core computes by itself: some 0.3 GB (pipeline.PASS_BYTES)

Key = TypeVar("Key")
# opens the probabilities of one image, for its key and (H, W): a function that takes some rows
OpenScores = Callable[[Any, tuple[int, int]], AbstractContextManager[Callable[[Tensor], None]]]


class Options(TypedDict, total=False):
    """Keyword arguments of `predict`."""

    scores: bool
    tta: TestTimeAugmentation | None
    batch_size: int | None
    precision: Precision
    min_confidence: float | None


@overload
def predict(  # type: ignore[overload-overlap]  # a path is a sequence too
    model: Segmenter, images: str | Path | Image.Image, **options: Unpack[Options]
) -> Segmentation: ...
@overload
def predict(model: Segmenter, images: NDArray[Any] | Tensor, **options: Unpack[Options]) -> Any: ...
@overload
def predict(
    model: Segmenter, images: Iterable[ImageLike], **options: Unpack[Options]
) -> list[Segmentation]: ...
def predict(
    model: Segmenter,
    images: ImageLike | Iterable[ImageLike],
    *,
    scores: bool = False,
    tta: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "32",
    min_confidence: float | None = None,
) -> Any:
    """Segment an image, or several, on the device where the model is.

    images: a path, a PIL image, an array (H, W, 3) or a tensor (3, H, W) gives a Segmentation; a
    list of these, an array (B, H, W, 3) or a tensor (B, 3, H, W) a list of them. Pixels are uint8,
    or floats from 0 to 1 (rounded to 256 steps), not normalized. scores: keep the probabilities of
    all classes too. tta: scales, flips, sliding window. batch_size: images of a similar size, or
    windows, computed at once (1 on a CPU, 8 elsewhere). precision: "32", "bf16" or "16".
    min_confidence: pixels that are less sure get the label 255 (65535 where there are more than
    255 classes). Probabilities and confidence are those of the calibrated model (its temperature).
    The model's mode is left as it was.

    >>> import numpy as np, scaseg
    >>> model = scaseg.create_model("mobilenet_v2", head="compact", classes=["sky", "road"])
    >>> predict(model, np.zeros((30, 40, 3), np.uint8)).labels.shape
    (30, 40)
    >>> [one.size for one in predict(model, torch.rand(2, 3, 30, 40))]
    [(30, 40), (30, 40)]
    """
    is_batch = isinstance(images, (np.ndarray, Tensor)) and images.ndim == 4
    one_types = (*IMAGE_TYPES, bytes)  # bytes are no image, nor several numbers
    is_one = not is_batch and (isinstance(images, one_types) or not isinstance(images, Iterable))
    several: Iterable[Any] = [images] if is_one else images  # type: ignore[assignment]
    arrays = ((index, as_array(model, image)) for index, image in enumerate(several))
    options: Options = {"scores": scores, "tta": tta, "batch_size": batch_size}
    options |= {"precision": precision, "min_confidence": min_confidence}
    stream = predict_stream(model, arrays, confidence=True, **options)
    found = sorted(stream, key=lambda pair: pair[0])
    return found[0][1] if is_one else [segmentation for _, segmentation in found]


@torch.no_grad()
def predict_stream(
    model: Segmenter,
    images: Iterable[tuple[Key, NDArray[Any]]],
    *,
    scores: bool = False,
    tta: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "32",
    min_confidence: float | None = None,
    confidence: bool = False,
    open_scores: OpenScores | None = None,
    pictures: bool = True,
    arena: Arena | None = None,
    cores: int = 1,
) -> Iterator[tuple[Key, Segmentation]]:
    """Segment images (H, W, C) as they come; each result has the key that came with its image.

    Images of a similar size wait for each other, a few at most: the order may change. What
    open_scores(key, (H, W)) opens gets the probabilities of an image from the top, some rows at a
    time, (classes, rows, W); so that they need never be held all at once. confidence: keep it.
    pictures: keep the image itself. arena: where labels are wanted, if it has room. cores: more
    than 1 gives each core of a CPU a batch of its own, where that is small, instead of a share of
    each layer.
    """
    tta = tta or TestTimeAugmentation()
    check_confidence(min_confidence)
    if (dtype := next(model.parameters()).dtype) != torch.float32:
        remedy = 'call model.float(); precision="bf16" computes in 16 bits'
        raise UserError("model", f"its weights are {dtype}", remedy)
    device = model.device
    is_cuda = device.type == "cuda"
    batch_size = usual_batch_size(batch_size, device.type)
    queue: SizeQueue[_Queued] = SizeQueue(model, tta, batch_size)
    keep = _Keep(scores, confidence, min_confidence, open_scores, pictures, arena)
    uploads, under_way = Uploads(device), list[Callable[[], _UnderWay]]()
    stack = ExitStack()
    pool: ThreadPoolExecutor | None = None
    if cores > 1 and device.type == "cpu" and not (open_scores or tta.window or tta.crf):
        pool = stack.enter_context(one_core_each(model, cores))

    def segment(batch: list[_Queued]) -> _UnderWay:
        # what is kept, written or smoothed at once is looked at before
        at_once = not is_cuda or scores or open_scores or tta.crf
        finite: list[Tensor] | None = None if at_once else []
        with torch.no_grad(), evaluating(model), autocast(device.type, precision):
            # a GPU is fastest with all rows at once
            groups = _alike(batch, len(model.config.classes), MOST_ON_GPU if is_cuda else None)
            images = uploads([[one.pixels for one in alike] for alike in groups])
            maps = score_maps(model, images, tta, batch_size=batch_size, finite=finite)
            found = [
                labelled
                for alike, own in zip(groups, maps, strict=True)
                for labelled in _segmentations(model, alike, own, tta, keep)
            ]
        checks = _host_copy(torch.stack(finite)) if finite else None
        event = torch.cuda.current_stream(device).record_event() if is_cuda else None
        return _UnderWay(found, checks, event)

    def compute(batch: list[_Queued]) -> Iterator[tuple[Any, Segmentation]]:
        if pool is not None:
            if _input_pixels(model, batch, tta) <= MOST_ASIDE:
                under_way.append(pool.submit(segment, batch).result)
                yield from finished(cores)  # so many are computed while this waits for more
                return
            yield from finished(0)  # all cores are free for it
        done = segment(batch)
        under_way.append(lambda: done)
        # a GPU has its next batches before the host waits for the last one
        yield from finished(2 if is_cuda else 0)

    def finished(left: int) -> Iterator[tuple[Any, Segmentation]]:
        while len(under_way) > left:
            batch = under_way.pop(0)()
            if batch.done is not None:
                batch.done.synchronize()
            if batch.finite is not None and not bool(batch.finite.all()):
                raise not_finite(model, low_precision=precision != "32")
            for key, segmentation in batch.found:
                if is_cuda and arena is None:  # not in pinned memory, of which there is little
                    segmentation.labels = segmentation.labels.copy()
                    if segmentation.confidence is not None:
                        segmentation.confidence = segmentation.confidence.copy()
                yield key, segmentation

    with stack:
        try:
            for key, pixels in images:
                if batch := queue.add(_Queued(key, pixels), pixels.shape[0], pixels.shape[1]):
                    yield from compute(batch)
            while batch := queue.take():
                yield from compute(batch)
        except Exception:
            yield from finished(0)  # what is computed already
            raise
        yield from finished(0)


def usual_batch_size(batch_size: int | None, device: str) -> int:
    """Return a batch size that was given, or the usual one of a device."""
    if batch_size is None:
        return 1 if device == "cpu" else 8
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError("batch_size", f"{batch_size!r}", "give a whole number >= 1")
    return batch_size


def check_confidence(least: float | None) -> None:
    """Refuse a least confidence that no probability can be compared with."""
    if least is not None and not 0 <= least <= 1:
        raise UserError("min_confidence", f"{least!r}", "give a number from 0 to 1")


class _Queued(NamedTuple):
    """An image that waits for others of its size."""

    key: Any
    pixels: NDArray[Any]


class _Keep(NamedTuple):
    """What is wanted beside the labels."""

    scores: bool
    confidence: bool
    min_confidence: float | None
    open_scores: OpenScores | None
    pictures: bool
    arena: Arena | None

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> Tensor:
        """Memory for results."""
        if self.arena is not None:
            array = self.arena.array(shape, str(dtype).removeprefix("torch."))
            if array is not None:
                return torch.from_numpy(array)
        return torch.empty(shape, dtype=dtype, pin_memory=pinned)


class _UnderWay(NamedTuple):
    """A batch whose labels are on their way from the device, and whether its scores are finite."""

    found: list[tuple[Any, Segmentation]]
    finite: Tensor | None
    done: torch.Event | None


@contextmanager
def one_core_each(model: Segmenter, count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compute on one core each."""
    before = torch.get_num_threads()
    with evaluating(model):  # for all of them: each would switch it for itself
        pool = ThreadPoolExecutor(count, "segmenting", torch.set_num_threads, (1,))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)  # what later threads begin with is one for all


def _input_pixels(model: Segmenter, batch: list[_Queued], tta: TestTimeAugmentation) -> int:
    """Pixels of a batch as the network gets them."""
    scale, shapes = max(tta.scales), [one.pixels.shape for one in batch]
    return sum(math.prod(input_size(model, shape[0], shape[1], scale)) for shape in shapes)


def _alike(batch: list[_Queued], classes: int, most: int | None) -> list[list[_Queued]]:
    """Divide a batch into images of one size, of which all probabilities may be held at once.

    most: how many of these; None: some rows of them are held.
    """
    groups = []
    batch = sorted(batch, key=lambda one: one.pixels.shape)
    for (height, width, _), alike in groupby(batch, lambda one: one.pixels.shape):
        group = list(alike)
        step = len(group) if most is None else max(1, most // (classes * height * width))
        groups += [group[first : first + step] for first in range(0, len(group), step)]
    return groups


def _segmentations(
    model: Segmenter,
    images: list[_Queued],
    maps: list[Upsampled],
    tta: TestTimeAugmentation,
    keep: _Keep,
) -> list[tuple[Any, Segmentation]]:
    """The labels of images of one size; on a GPU, they are on their way when this returns."""
    classes, count, least = model.config.classes, len(images), keep.min_confidence
    height, width = images[0].pixels.shape[:2]
    is_cuda = model.device.type == "cuda"
    dtype = torch.uint8 if len(classes) <= (256 if least is None else 255) else torch.uint16
    pinned = is_cuda and count * height * width <= MOST_PINNED
    labels = keep.empty((count, height, width), dtype, pinned)
    shape = (count, len(classes), height, width)
    kept = np.empty(shape, np.float32) if keep.scores else None
    confidence = keep.empty(labels.shape, torch.float32, pinned) if keep.confidence else None
    is_plain = not (keep.scores or keep.confidence or keep.open_scores) and least is None
    with ExitStack() as stack:
        writers = [
            stack.enter_context(keep.open_scores(image.key, (height, width)))
            for image in images
            if keep.open_scores is not None
        ]
        most = MOST_ON_GPU if is_cuda else MOST_HELD
        step = max(1, most // (count * len(classes) * width))
        for rows, found in mean_rows(maps, height, step, crf=tta.crf):
            if not is_plain:  # it changes no label
                found = soften(found.transpose(0, 1), model.config.temperature).transpose(0, 1)
            # not argmax, which takes seven times as long on a CPU
            sure, largest = found.max(1)
            if least is not None:
                largest = largest.masked_fill(sure < least, torch.iinfo(dtype).max)
            labels[:, rows].copy_(largest.to(dtype), non_blocking=is_cuda)
            if confidence is not None:
                confidence[:, rows].copy_(sure, non_blocking=is_cuda)
            if kept is not None:
                kept[:, :, rows] = found.cpu().numpy()
            for write, own in zip(writers, found, strict=False):
                write(own)
    palette = model.config.palette or default_palette(len(classes))
    return [
        (
            image.key,
            Segmentation(
                labels[index].numpy(),
                classes,
                palette,
                None if kept is None else kept[index],
                picture(image.pixels) if keep.pictures else None,
                None if confidence is None else confidence[index].numpy(),
            ),
        )
        for index, image in enumerate(images)
    ]


def _host_copy(flags: Tensor) -> Tensor:
    """Copy from a device without waiting for it."""
    if flags.device.type != "cuda":
        return flags
    host = torch.empty(flags.shape, dtype=flags.dtype, pin_memory=True)
    return host.copy_(flags, non_blocking=True)
