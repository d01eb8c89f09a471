"""Test-time augmentation: the probabilities of one image, the mean over scales and flips.

Scores are upsampled from neurons to pixels some rows at a time: the probabilities of a whole image,
classes x H x W numbers, need never be there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.config.run import SMALLEST_SIDE
from scaseg.errors import UserError
from scaseg.inference.crf import DenseCrf
from scaseg.inference.preprocessing import Preprocessed, resize
from scaseg.inference.sliding_window import RowStream, sliding_window_inference
from scaseg.models.segmenter import Segmenter, require_finite
from scaseg.nn.streaming import StreamedContext

SCALES = (0.75, 1.0, 1.25)  # of --tta, with flips
SCOPES = ("window", "image")
MOST_SCALES = 64
OVERLAP = 64
STEP = 32  # pixels: padded batches come in few sizes, since cuDNN plans each layer for each size


@dataclass(frozen=True)
class TestTimeAugmentation:
    """How an image is predicted: at which scales, flipped too, in windows, refined by a CRF.

    window, overlap: of the sliding window, in pixels of the resized image, rounded to the network's
    stride; the usual overlap is 64, or half a small window. context_scope: what a neuron's context
    is taken from where there are windows, its "window" or the whole "image" (in two passes).
    crf: refines the mean, at the image's own size; holds the probabilities of all classes.
    """

    __test__ = False  # pytest would take it for a test

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    window: int | None = None
    overlap: int | None = None
    context_scope: str = "window"
    crf: DenseCrf | None = None

    def __post_init__(self) -> None:
        window, overlap = self.window, self.overlap
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise UserError("scales", f"{self.scales}", "give numbers above 0, up to 8")
        if len(self.scales) > MOST_SCALES:
            raise UserError("scales", f"{len(self.scales)}", f"give at most {MOST_SCALES}")
        if self.context_scope not in SCOPES:
            raise UserError.choice("context_scope", self.context_scope, SCOPES)
        if window is None:
            for name, value in (("overlap", overlap), ("context_scope", self.context_scope)):
                if value not in (None, "window"):
                    raise UserError(name, f"{value}, but there are no windows", "add --window 512")
            return
        if window < 2 * SMALLEST_SIDE:
            raise UserError("window", f"{window}", f"give at least {2 * SMALLEST_SIDE} pixels")
        if overlap is None:
            object.__setattr__(self, "overlap", min(OVERLAP, window // 2))
        elif not 0 <= overlap < window:
            raise UserError("overlap", f"{overlap} of a window of {window}", "give 0 to window - 1")

    def needs_windows(self, size: tuple[int, int]) -> bool:
        """Whether an image resized to this size is larger than a window."""
        return self.window is not None and max(size) > self.window


def check_windows(model: Segmenter, tta: TestTimeAugmentation) -> list[str]:
    """Refuse a context that cannot be streamed; return a note where there will be no windows."""
    if tta.window is None:
        return []
    if tta.context_scope == "image":
        StreamedContext(model.context)
    fit = model.config.fit
    if fit is None or max(fit) * max(tta.scales) > tta.window:
        return []
    return [
        f"note: this model takes images fitted into {fit[0]} x {fit[1]}, as in its training: one "
        f"window of {tta.window} covers them"
    ]


@torch.no_grad()
def predict_scores(
    model: Segmenter, image: Tensor, tta: TestTimeAugmentation | None = None
) -> Tensor:
    """Compute the probability of each class for each pixel: uint8 (C, H, W) -> (classes, H, W).

    The image is normalized and, where the model was trained so (`model.config.fit`), resized as in
    training. The model should be in eval mode, and the image on its device.
    """
    tta = tta or TestTimeAugmentation()
    (maps,) = score_maps(model, [image.unsqueeze(0)], tta)
    (_, found), *_ = mean_rows(maps, image.shape[-2], crf=tta.crf)
    return found[0]


def score_maps(
    model: Segmenter,
    images: list[Tensor],
    tta: TestTimeAugmentation,
    *,
    batch_size: int = 1,
    finite: list[Tensor] | None = None,
) -> list[list[Upsampled]]:
    """Score images, uint8 (B, C, H, W) of one size each, once for each augmentation.

    Those of several sizes go into one padded batch, and each gets what it would get alone. An image
    larger than a window must come alone; its windows, batch_size at once, are computed when their
    rows are asked for. finite: gets whether scores are finite, for a caller who waits for the
    device later; None: UserError where they are not.
    """
    maps: list[list[Upsampled]] = [[] for _ in images]
    for scale, flipped in product(tta.scales, (False, True)[: 1 + tta.flip]):
        resized = [Preprocessed(model, image, scale, flipped=flipped) for image in images]
        if tta.needs_windows(resized[0].size):
            window, overlap = tta.window or 0, tta.overlap or 0
            options = (window, overlap, tta.context_scope, batch_size)
            scores = [sliding_window_inference(model, resized[0], *options)]
        else:
            scores = _one_pass(model, resized, finite)
        for own, found, one in zip(maps, scores, resized, strict=True):
            own.append(Upsampled(found, one))
    return maps


def _one_pass(
    model: Segmenter, images: list[Preprocessed], finite: list[Tensor] | None
) -> list[RowStream]:
    counts = [len(one.image) for one in images]
    height, width = (max(lengths) for lengths in zip(*(one.size for one in images), strict=True))
    if any(one.size != images[0].size for one in images):
        step = -(-STEP // model.backbone.multiple) * model.backbone.multiple
        height, width = (-(-side // step) * step for side in (height, width))
    edges = [(0, width - one.size[1], 0, height - one.size[0]) for one in images]
    wholes = [one.whole() for one in images]
    batch, sizes = wholes[0], None
    if len(images) > 1:
        padded = [F.pad(x, edge) for x, edge in zip(wholes, edges, strict=True)]
        batch = torch.cat(padded)
    if any(map(any, edges)):
        each = [one.size for one, count in zip(images, counts, strict=True) for _ in range(count)]
        sizes = torch.tensor(each, pin_memory=batch.is_cuda)
        sizes = sizes.to(batch.device, non_blocking=batch.is_cuda)
    scores, _ = model.coarse(batch, sizes)
    if finite is None:
        require_finite(model, scores)
    else:
        finite.append(torch.isfinite(scores).all())
    streams = []
    for one, found in zip(images, scores.split(counts), strict=True):
        if sizes is not None:  # to ask a GPU for its real neurons would make it wait
            rows, columns = model.score_size(*one.size)
            found = found[..., :rows, :columns]
        streams.append(RowStream((found.shape[-2], found.shape[-1]), [found]))
    return streams


def mean_rows(
    maps: list[Upsampled], height: int, step: int | None = None, *, crf: DenseCrf | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Average over augmentations: `step` rows at a time, with probabilities (B, classes, rows, W).

    crf refines them first, which takes all rows at once.
    """
    step = step or height
    if crf is not None:
        whole = torch.cat([found for _, found in mean_rows(maps, height, step)], -2)
        pairs = zip(whole, maps[0].image.image, strict=True)
        whole = torch.stack([crf.refine(found, image) for found, image in pairs])
        for start in range(0, height, step):
            rows = slice(start, min(start + step, height))
            yield rows, whole[..., rows, :]
        return
    for start in range(0, height, step):
        rows = slice(start, min(start + step, height))
        total = maps[0].rows(rows.start, rows.stop)
        for other in maps[1:]:
            total = total + other.rows(rows.start, rows.stop)
        yield rows, total if len(maps) == 1 else total.div_(len(maps))


class Upsampled(NamedTuple):
    """Probabilities at the images' own size, by way of the size that the network was given.

    What `softmax(model(resized))`, resized to the image, gives: rows of it.
    """

    scores: RowStream
    image: Preprocessed

    def rows(self, start: int, stop: int) -> Tensor:
        """Probabilities of some rows of the images: (B, classes, stop - start, W)."""
        image, scores = self.image, self.scores

        def neurons(first: int, last: int) -> Tensor:
            found = scores.rows(first, last).float()
            found = found if found.dim() == 4 else found.unsqueeze(0)  # of windows
            return found.flip(-1) if image.flipped else found

        def resized(first: int, last: int) -> Tensor:
            return upsample_rows(neurons, scores.size[0], image.size, first, last).softmax(1)

        size = (image.image.shape[-2], image.image.shape[-1])
        return upsample_rows(resized, image.size[0], size, start, stop)


def upsample_rows(
    rows: Callable[[int, int], Tensor],
    height: int,
    out_size: tuple[int, int],
    start: int,
    stop: int,
) -> Tensor:
    """Rows start to stop of F.interpolate(map, out_size), from the rows of the map they need.

    rows(first, last) gives those of the map, (B, classes, last - first, w), which has `height`.
    """
    out_height, out_width = out_size
    if height == out_height:
        return resize(rows(start, stop), stop - start, out_width)
    if (start, stop) == (0, out_height):
        return resize(rows(0, height), *out_size)
    place = torch.arange(start, stop, dtype=torch.float64, device="cpu") + 0.5
    place = (place * (height / out_height) - 0.5).clamp(0, height - 1)
    first, last = int(place[0]), min(height, int(place[-1]) + 2)
    x = resize(rows(first, last), last - first, out_width)
    above = place.long()
    below = (above + 1).clamp(max=height - 1)
    upper, lower = (x[:, :, (row - first).to(x.device)] for row in (above, below))
    return torch.lerp(upper, lower, (place - above).to(x).view(-1, 1))
