"""Test-time augmentation: the probabilities of one image, the mean over scales and flips.

Scores are upsampled from neurons to pixels some rows at a time: the probabilities of a whole image,
classes x H x W numbers, need never be there at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import torch
from torch import Tensor

from scaseg.config.run import SMALLEST_SIDE
from scaseg.errors import UserError
from scaseg.inference.preprocessing import Preprocessed, resize
from scaseg.inference.sliding_window import SlidingWindow, WindowGrid, stream_context
from scaseg.models.segmenter import Segmenter
from scaseg.nn.streaming import StreamedContext

SCALES = (0.75, 1.0, 1.25)  # of --tta, with flips
SCOPES = ("window", "image")
MOST_SCALES = 64
OVERLAP = 64
MOST_HELD = 1 << 24  # probabilities held at once: 64 MiB


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
    maps = score_maps(model, image, tta or TestTimeAugmentation())
    height = image.shape[-2]
    (_, found), *_ = mean_rows(maps, height, height)
    return found


def score_maps(
    model: Segmenter, image: Tensor, tta: TestTimeAugmentation, *, batch_size: int = 1
) -> list[Upsampled]:
    """Score an image, uint8 (C, H, W), once for each augmentation.

    Windows, batch_size at once, are computed when their rows are asked for.
    """
    maps = []
    for scale, flipped in tta.augmentations():
        resized = Preprocessed(model, image, scale, flipped=flipped)
        scores: ScoreMap
        if tta.needs_windows(resized.size):
            grid = WindowGrid(model, resized.size, tta.window or 0, tta.overlap or 0)
            context = None
            if tta.context_scope == "image":
                context = stream_context(model, resized, grid, batch_size)
            scores = SlidingWindow(model, resized, grid, context=context, batch_size=batch_size)
        else:
            found = model.coarse(resized.whole())[0][0]
            scores = WholeMap(found.flip(-1) if flipped else found)
        maps.append(Upsampled(scores, resized.size, (image.shape[-2], image.shape[-1])))
    return maps


def mean_rows(maps: list[Upsampled], height: int, step: int) -> Iterator[tuple[slice, Tensor]]:
    """Average over augmentations: `step` rows at a time, with probabilities (classes, rows, W)."""
    for start in range(0, height, step):
        rows = slice(start, min(start + step, height))
        total = maps[0].rows(rows.start, rows.stop)
        for other in maps[1:]:
            total = total + other.rows(rows.start, rows.stop)
        yield rows, total if len(maps) == 1 else total.div_(len(maps))


class ScoreMap(Protocol):
    """The scores of an image's neurons, in its own orientation; asked for from the top."""

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


class Upsampled:
    """Probabilities at the image's own size, by way of the size that the network was given.

    What `softmax(model(resized))`, resized to the image, gives: rows of it.
    """

    def __init__(self, scores: ScoreMap, resized: tuple[int, int], size: tuple[int, int]) -> None:
        self.scores = scores
        self.resized = resized
        self.size = size

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
