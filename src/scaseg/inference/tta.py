"""Test-time augmentation: the probabilities of one image, the mean over scales and flips.

Scores are upsampled from neurons to pixels some rows at a time: the probabilities of a whole image,
classes x H x W numbers, need never be there at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.config.run import SMALLEST_SIDE
from scaseg.errors import UserError
from scaseg.inference.preprocessing import Preprocessed, resize
from scaseg.inference.sliding_window import RowStream, sliding_window_inference
from scaseg.models.segmenter import Segmenter
from scaseg.nn.streaming import StreamedContext

SCALES = (0.75, 1.0, 1.25)  # of --tta, with flips
SCOPES = ("window", "image")
MOST_SCALES = 64
OVERLAP = 64


@dataclass(frozen=True)
class TestTimeAugmentation:
    """How an image is predicted: at which scales, flipped too, in windows of which size.

    window, overlap: of the sliding window, in pixels of the resized image, rounded to the network's
    stride; the usual overlap is 64, or half a small window. context_scope: what a neuron's context
    is taken from where there are windows, its "window" or the whole "image" (in two passes).
    """

    __test__ = False  # pytest would take it for a test

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    window: int | None = None
    overlap: int | None = None
    context_scope: str = "window"

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

    def augmentations(self) -> Iterator[tuple[float, bool]]:
        """Every (scale, flipped)."""
        return product(self.scales, (False, True) if self.flip else (False,))


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
    (maps,) = score_maps(model, [image], tta or TestTimeAugmentation())
    (_, found), *_ = mean_rows(maps, image.shape[-2])
    return found


def score_maps(
    model: Segmenter, images: list[Tensor], tta: TestTimeAugmentation, *, batch_size: int = 1
) -> list[list[Upsampled]]:
    """Score images, uint8 (C, H, W), once for each augmentation.

    Several go into one padded batch, and each gets what it would get alone. One that is larger than
    a window must come alone; its windows, batch_size at once, are computed when their rows are
    asked for.
    """
    maps: list[list[Upsampled]] = [[] for _ in images]
    for scale, flipped in tta.augmentations():
        resized = [Preprocessed(model, image, scale, flipped=flipped) for image in images]
        if tta.needs_windows(resized[0].size):
            window, overlap = tta.window or 0, tta.overlap or 0
            options = (window, overlap, tta.context_scope, batch_size)
            scores = [sliding_window_inference(model, resized[0], *options)]
        else:
            scores = _one_pass(model, resized)
        for own, found, one in zip(maps, scores, resized, strict=True):
            own.append(Upsampled(found, one))
    return maps


def _one_pass(model: Segmenter, images: list[Preprocessed]) -> list[RowStream]:
    sizes = [image.size for image in images]
    height, width = (max(lengths) for lengths in zip(*sizes, strict=True))
    batch = torch.cat(
        [F.pad(one.whole(), (0, width - one.size[1], 0, height - one.size[0])) for one in images]
    )
    padded = any(size != sizes[0] for size in sizes)
    scores, real = model.coarse(batch, torch.tensor(sizes, device=batch.device) if padded else None)
    cells = [scores.shape[-2:]] * len(images)
    if real is not None:  # all numbers at once: each would make a GPU wait
        cells = torch.stack([real.any(2).sum(1), real.any(1).sum(1)], 1).tolist()
    flip = [-1] if images[0].flipped else []
    return [
        RowStream((rows, columns), found[:, :rows, :columns].flip(flip))
        for found, (rows, columns) in zip(scores, cells, strict=True)
    ]


def mean_rows(
    maps: list[Upsampled], height: int, step: int | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """Average over augmentations: `step` rows at a time, with probabilities (classes, rows, W)."""
    step = step or height
    for start in range(0, height, step):
        rows = slice(start, min(start + step, height))
        total = maps[0].rows(rows.start, rows.stop)
        for other in maps[1:]:
            total = total + other.rows(rows.start, rows.stop)
        yield rows, total if len(maps) == 1 else total.div_(len(maps))


class Upsampled:
    """Probabilities at an image's own size, by way of the size that the network was given.

    What `softmax(model(resized))`, resized to the image, gives: rows of it.
    """

    def __init__(self, scores: RowStream, image: Preprocessed) -> None:
        self.scores = scores
        self.resized = image.size
        self.size: tuple[int, int] = (image.image.shape[-2], image.image.shape[-1])

    def rows(self, start: int, stop: int) -> Tensor:
        """Probabilities of some rows of the image: (classes, stop - start, W)."""
        first, last = needed_rows(start, stop, self.resized[0], self.size[0])
        top, bottom = needed_rows(first, last, self.scores.size[0], self.resized[0])
        found = self.scores.rows(top, bottom).float()
        found = upsample_rows(found, top, self.scores.size[0], self.resized, first, last)
        return upsample_rows(found.softmax(0), first, self.resized[0], self.size, start, stop)


def needed_rows(start: int, stop: int, height: int, out_height: int) -> tuple[int, int]:
    """Which rows of a map of `height` the rows start to stop of the upsampled one depend on."""
    if height == out_height:
        return start, stop
    low, high = ((row + 0.5) * height / out_height - 0.5 for row in (start, stop - 1))
    return max(0, int(low)), min(height, int(high) + 2)


def upsample_rows(
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
