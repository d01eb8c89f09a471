"""The scores of one photograph, at its own size: one pass, or the mean of several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from scaseg.data.transforms import SMALLEST
from scaseg.inference.image_context import gather
from scaseg.inference.preprocessing import View
from scaseg.inference.preprocessing import as_seen as as_seen
from scaseg.inference.sliding_window import SlidingWindow
from scaseg.inference.upsampling import Enlarged, ScoreMap, WholeMap
from scaseg.inference.window_grid import Grid
from scaseg.models.segmenter import Segmenter

SCOPES = ("window", "image")
MOST_SCALES = 64  # a photograph is looked at so often, and more says nothing new
# Probabilities held at once: 64 MiB
BAND = 1 << 24


@dataclass(frozen=True)
class TestTimeAugmentation:
    """How a photograph is looked at: at which scales, mirrored too, in windows of which size.

    window and overlap are in pixels that the network sees, brought to multiples of its stride.
    context_scope: what a neuron's context is taken from where there are windows, its "window" or
    the whole "image" (which takes two passes over it).
    """

    __test__ = False  # pytest would take it for a test

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False
    window: int | None = None
    overlap: int = 64
    context_scope: str = "window"

    def __post_init__(self) -> None:
        if not self.scales or not all(0 < scale <= 8 for scale in self.scales):
            raise ValueError(f"scales are {self.scales}; give numbers above 0, up to 8")
        if len(self.scales) > MOST_SCALES:
            raise ValueError(f"scales are {len(self.scales)}; give at most {MOST_SCALES}")
        if self.window is not None and self.window < 2 * SMALLEST:
            raise ValueError(f"window is {self.window}; give at least {2 * SMALLEST} pixels")
        if self.window is not None and not 0 <= self.overlap < self.window:
            raise ValueError(
                f"overlap is {self.overlap} of a window of {self.window}; give 0 to window - 1"
            )
        if self.context_scope not in SCOPES:
            raise ValueError(
                f"context_scope is {self.context_scope!r}; give one of {', '.join(SCOPES)}"
            )

    def looks(self) -> Iterator[tuple[float, bool]]:
        """Every (scale, mirrored)."""
        for scale in self.scales:
            yield from (
                (scale, mirrored) for mirrored in ((False, True) if self.flip else (False,))
            )


@torch.no_grad()
def score(model: Segmenter, image: Tensor, how: TestTimeAugmentation | None = None) -> Tensor:
    """Give the probability of each class for each pixel: uint8 (C, H, W) -> (classes, H, W).

    The photograph is normalised and, where the model was trained so (`model.config.fit`), resized
    as in training. The model should be in eval mode, and the image on its device.
    """
    height = image.shape[-2] if image.dim() == 3 else 1
    (_, found), *_ = bands(look(model, image, how), height, band=height)
    return found


def look(
    model: Segmenter, image: Tensor, how: TestTimeAugmentation | None = None, *, batch_size: int = 1
) -> list[Enlarged]:
    """Look at a photograph, uint8 (C, H, W), in every way that is asked for.

    Windows, batch_size at once, are computed when their rows are asked for.
    """
    how = how or TestTimeAugmentation()
    found = []
    for scale, mirrored in how.looks():
        view = View(model, image, scale, mirrored=mirrored)
        scores: ScoreMap
        if how.window is None or max(view.size) <= how.window:
            scores = _one_pass(model, view)
        else:
            scores = _in_windows(model, view, how, batch_size)
        found.append(Enlarged(scores, view.size, (image.shape[-2], image.shape[-1])))
    return found


def bands(looks: list[Enlarged], height: int, *, band: int) -> Iterator[tuple[slice, Tensor]]:
    """Average what was seen: bands of rows and their probabilities (classes, rows, W)."""
    for start in range(0, height, band):
        rows = slice(start, min(start + band, height))
        total = looks[0].rows(rows.start, rows.stop)
        for other in looks[1:]:
            total = total + other.rows(rows.start, rows.stop)
        yield rows, total if len(looks) == 1 else total.div_(len(looks))


def band_rows(classes: int, width: int) -> int:
    """How many rows of a photograph to hold at once."""
    return max(1, BAND // (classes * width))


def _one_pass(model: Segmenter, view: View) -> WholeMap:
    scores, _ = model.coarse(view.whole())
    return WholeMap(scores[0].flip(-1) if view.mirrored else scores[0])


def _in_windows(
    model: Segmenter, view: View, how: TestTimeAugmentation, batch_size: int
) -> SlidingWindow:
    assert how.window is not None
    grid = Grid(model, view.size, how.window, how.overlap)
    context = None
    if how.context_scope == "image":
        context = gather(model, view, grid, batch_size)
    return SlidingWindow(model, view, grid, context=context, batch_size=batch_size)
