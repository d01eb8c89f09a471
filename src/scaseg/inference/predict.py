"""Predict images: in batches where sizes allow, probabilities only some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg.errors import UserError
from scaseg.inference.preprocessing import (
    IMAGE_TYPES,
    ImageLike,
    Preprocessed,
    as_array,
    as_tensor,
    input_size,
)
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.tta import (
    MOST_HELD,
    TestTimeAugmentation,
    Upsampled,
    WholeMap,
    mean_rows,
    score_maps,
)
from scaseg.models.segmenter import Segmenter
from scaseg.plots.palette import default_palette
from scaseg.system import Precision

DTYPES = {"32": None, "bf16": torch.bfloat16, "16": torch.float16}
# Pixels of a batch, padding counted: beyond it more images at once gain nothing and cost memory
BATCH_PIXELS = 4_000_000
# How much of a batch may be padding, which is computed for nothing
PADDING = 0.15

Key = TypeVar("Key")
OnRows = Callable[[Any, tuple[int, int], Tensor], None]


class Options(TypedDict, total=False):
    """The keyword arguments of `predict`."""

    scores: bool
    tta: TestTimeAugmentation | None
    batch_size: int | None
    precision: Precision


@overload
def predict(  # type: ignore[overload-overlap]  # a path is a sequence too
    model: Segmenter, images: ImageLike, **options: Unpack[Options]
) -> Segmentation: ...
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
) -> Segmentation | list[Segmentation]:
    """Segment an image, or a list of them, on the device where the model is.

    images: paths, PIL images, arrays (H, W, 3) or tensors (3, H, W) of uint8. scores: keep the
    probabilities of all classes too. tta: scales, flips, sliding window. batch_size: images of a
    similar size, or windows, computed at once (1 on a CPU, 8 elsewhere). The model's mode is left
    as it was.

    >>> import numpy as np, scaseg
    >>> model = scaseg.create_model("mobilenet_v2", head="compact", classes=["sky", "road"])
    >>> predict(model, np.zeros((30, 40, 3), np.uint8)).labels.shape
    (30, 40)
    """
    single = isinstance(images, IMAGE_TYPES) or not isinstance(images, Iterable)
    several: Iterable[Any] = [images] if single else images  # type: ignore[assignment]
    found = predict_stream(
        model,
        ((index, as_array(model, image)) for index, image in enumerate(several)),
        scores=scores,
        tta=tta,
        batch_size=batch_size,
        precision=precision,
    )
    in_order = [segmentation for _, segmentation in sorted(found, key=lambda pair: pair[0])]
    return in_order[0] if single else in_order


@torch.no_grad()
def predict_stream(
    model: Segmenter,
    images: Iterable[tuple[Key, NDArray[np.uint8]]],
    *,
    scores: bool = False,
    tta: TestTimeAugmentation | None = None,
    batch_size: int | None = None,
    precision: Precision = "32",
    on_rows: OnRows | None = None,
) -> Iterator[tuple[Key, Segmentation]]:
    """Segment images (H, W, C) as they come; each result has the key that came with its image.

    Images of a similar size wait for each other, a few at most: the order may change. on_rows gets
    the probabilities of each image from the top, some rows at a time: its key, its (H, W), and
    (classes, rows, W); so that they need never be held all at once.
    """
    tta = tta or TestTimeAugmentation()
    device = next(model.parameters()).device
    batch_size = usual_batch_size(batch_size, device)
    queue: list[_Queued] = []

    def compute(batch: list[_Queued]) -> list[tuple[Any, Segmentation]]:
        tensors = [as_tensor(one.pixels, device) for one in batch]
        with evaluating(model), autocast(device.type, precision):
            if len(batch) == 1:
                maps = [score_maps(model, tensors[0], tta, batch_size=batch_size)]
            else:
                maps = _score_batch(model, tensors, tta)
            return [
                (one.key, _segmentation(model, one, own, scores, on_rows))
                for one, own in zip(batch, maps, strict=True)
            ]

    for key, pixels in images:
        size = input_size(model, pixels.shape[0], pixels.shape[1], max(tta.scales))
        queue.append(_Queued(key, pixels, size))
        if batch_size == 1 or tta.needs_windows(size):
            yield from compute([queue.pop()])
        elif len(queue) >= 4 * batch_size:
            yield from compute(_take_batch(queue, batch_size))
    while queue:
        yield from compute(_take_batch(queue, batch_size))


def usual_batch_size(batch_size: int | None, device: torch.device) -> int:
    """Return a batch size that was given, or the usual one of a device."""
    if batch_size is None:
        return 1 if device.type == "cpu" else 8
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError("batch_size", f"{batch_size!r}", "give a whole number >= 1")
    return batch_size


class _Queued(NamedTuple):
    """An image that waits for others of its size, which is the one given to the network."""

    key: Any
    pixels: NDArray[np.uint8]
    size: tuple[int, int]


def _take_batch(queue: list[_Queued], batch_size: int) -> list[_Queued]:
    """Take the image that has waited longest, and others near its size, out of the queue."""
    batch = [queue.pop(0)]
    height, width = batch[0].size
    area = height * width
    near = sorted(queue, key=lambda other: abs(other.size[0] - height) + abs(other.size[1] - width))
    for other in near:
        if len(batch) == batch_size:
            break
        high, wide = max(height, other.size[0]), max(width, other.size[1])
        padded = (len(batch) + 1) * high * wide
        real = area + other.size[0] * other.size[1]
        if padded <= BATCH_PIXELS and real >= (1 - PADDING) * padded:
            batch.append(other)
            height, width, area = high, wide, real
    taken = {id(other) for other in batch}
    queue[:] = [other for other in queue if id(other) not in taken]
    return batch


def _score_batch(
    model: Segmenter, images: list[Tensor], tta: TestTimeAugmentation
) -> list[list[Upsampled]]:
    """Score images in padded batches; each gets what it would get alone."""
    maps: list[list[Upsampled]] = [[] for _ in images]
    for scale, flipped in tta.augmentations():
        resized = [Preprocessed(model, image, scale, flipped=flipped) for image in images]
        sizes = [one.size for one in resized]
        height, width = (max(lengths) for lengths in zip(*sizes, strict=True))
        shape = (len(images), images[0].shape[0], height, width)
        batch = images[0].new_zeros(shape, dtype=torch.float32)
        for place, one in enumerate(resized):
            batch[place, :, : one.size[0], : one.size[1]] = one.whole()[0]
        padded = any(size != (height, width) for size in sizes)
        lengths = torch.tensor(sizes, device=batch.device)
        scores, real = model.coarse(batch, lengths if padded else None)
        cells = [scores.shape[-2:]] * len(images)
        if real is not None:  # all numbers at once: each would make a GPU wait
            cells = torch.stack([real.any(2).sum(1), real.any(1).sum(1)], 1).tolist()
        for own, image, one, found, (rows, columns) in zip(
            maps, images, resized, scores, cells, strict=True
        ):
            found = found[:, :rows, :columns]
            found = WholeMap(found.flip(-1) if flipped else found)
            own.append(Upsampled(found, one.size, (image.shape[-2], image.shape[-1])))
    return maps


def _segmentation(
    model: Segmenter,
    image: _Queued,
    maps: list[Upsampled],
    keep_scores: bool,
    on_rows: OnRows | None,
) -> Segmentation:
    classes = model.config.classes
    height, width = image.pixels.shape[:2]
    labels = np.empty((height, width), np.uint8 if len(classes) <= 256 else np.uint16)
    kept = np.empty((len(classes), height, width), np.float32) if keep_scores else None
    for rows, found in mean_rows(maps, height, max(1, MOST_HELD // (len(classes) * width))):
        # not argmax, which takes seven times as long on a CPU
        labels[rows] = found.max(0).indices.to(torch.int32).cpu().numpy()
        if kept is not None:
            kept[:, rows] = found.cpu().numpy()
        if on_rows is not None:
            on_rows(image.key, (height, width), found)
    palette = model.config.palette or default_palette(len(classes))
    return Segmentation(labels, classes, palette, kept, image.pixels)


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


def autocast(device: str, precision: Precision) -> AbstractContextManager[Any]:
    """Compute in a precision; weights stay float32."""
    if precision not in DTYPES:
        raise UserError.choice("precision", precision, DTYPES)
    dtype = DTYPES[precision]
    return nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)
