"""Where one of two models is wrong and the other right: regions worth an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import SegmentationDataset, require_same_size
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.decode.bands import picture
from scaseg.data.folders.pairs import FilePair
from scaseg.data.sample import IGNORE, Sample
from scaseg.errors import UserError
from scaseg.explanation.features import context_of
from scaseg.explanation.maps import DependencyMaps, explain
from scaseg.inference.predict import predict
from scaseg.metrics import percent
from scaseg.models.segmenter import Segmenter
from scaseg.progress import Progress

Labels = NDArray[np.integer]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Disagreement:
    """A photograph, its truth, two predictions, and the largest region that one alone got right.

    first and second (H, W) are the labels by A and B; `region` (H, W) is where A is wrong and B
    right (is_win) or B wrong and A right, `center` (x, y) its inmost pixel, `share` its part of the
    labelled pixels; `maps` is B's dependency map at the center.
    """

    name: str
    image: NDArray[np.uint8]
    truth: Labels
    first: Labels
    second: Labels
    region: Mask
    center: tuple[int, int]
    share: float
    is_win: bool = True
    maps: DependencyMaps | None = None

    def accuracies(self) -> tuple[float, float]:
        """Return the share of labelled pixels that each of the models got right."""
        labelled = self.truth != IGNORE
        first, second = ((own == self.truth)[labelled] for own in (self.first, self.second))
        return float(first.mean()), float(second.mean())


@dataclass(frozen=True)
class Disagreements:
    """The largest regions that one model alone gets right, and how much that is in all.

    wins: of the second model, losses: of the first, the largest first. only_second, only_first:
    the shares of all labelled pixels in all images that this one alone gets right.
    """

    wins: list[Disagreement]
    losses: list[Disagreement]
    only_first: float
    only_second: float
    images: int

    def summary(self, first: str, second: str) -> str:
        """Say in a line how often each of the models, by its name, is right alone."""
        one, other = percent(self.only_first, 2), percent(self.only_second, 2)
        images = "1 image" if self.images == 1 else f"{self.images} images"
        return (
            f"{images}: only {second} is right in {other} % of the pixels, only {first} in {one} %"
        )


def largest_disagreements(
    first: Segmenter,
    second: Segmenter,
    samples: Sequence[Sample] | SegmentationDataset,
    *,
    top: int = 3,
    progress: Progress | None = None,
) -> Disagreements:
    """Find the images with the largest regions that one of two models alone gets right.

    `top` of each kind: wins of the second, and its losses. They say how, and the shares how often.
    """
    if first.config.classes != second.config.classes:
        counts = f"{len(first.config.classes)} and {len(second.config.classes)} classes"
        remedy = "give two that were trained on the same classes"
        raise UserError("models", f"{counts}, or others in another order", remedy)
    context_of(second)
    best: dict[bool, list[Disagreement]] = {True: [], False: []}  # without their maps
    alone, total = {True: 0, False: 0}, 0
    for index in range(len(samples)):
        sample = samples[index]
        image, truth, labelled = sample.image, sample.labels, sample.labels != IGNORE
        require_same_size(sample.name, truth.shape, image.shape[:2])
        one, other = (predict(model, image).labels for model in (first, second))
        total += int(labelled.sum())
        for is_win, (wrong, right) in ((True, (one, other)), (False, (other, one))):
            mask = labelled & (wrong != truth) & (right == truth)
            if not mask.any():
                continue
            alone[is_win] += int(mask.sum())
            region = largest_region(mask)
            place = (region, inmost_pixel(region), float(region.sum() / labelled.sum()))
            found = Disagreement(sample.name, image, truth, one, other, *place, is_win)
            best[is_win] = sorted([*best[is_win], found], key=lambda one: -one.share)[:top]
        if progress is not None:
            progress(index + 1, len(samples))

    def explained(found: Disagreement) -> Disagreement:
        maps = explain(second, found.image, points=[found.center])
        return replace(found, image=picture(found.image), maps=maps)

    wins, losses = ([explained(one) for one in best[is_win]] for is_win in (True, False))
    shares = (alone[False] / max(1, total), alone[True] / max(1, total))
    return Disagreements(wins, losses, *shares, len(samples))


def largest_region(mask: Mask) -> Mask:
    """Keep the largest connected part of a mask (H, W); pixels touch by their sides."""
    from scipy.ndimage import label

    regions, count = label(mask)
    largest: Mask = regions == np.bincount(regions[mask]).argmax() if count else mask
    return largest


def inmost_pixel(region: Mask) -> tuple[int, int]:
    """Return the pixel (x, y) of a region that is farthest from all that is not in it.

    The picture's edge counts as outside. Of several, the one nearest to their middle.
    """
    from scipy.ndimage import distance_transform_edt

    inside = distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    places = np.argwhere(inside == inside.max())
    row, column = places[np.abs(places - places.mean(0)).sum(1).argmin()]
    return int(column), int(row)


def read_sample(
    image: str | Path, labels: str | Path, model: Segmenter, *, max_pixels: int | None = None
) -> Sample:
    """Read a photograph and its label map, whose values mean what they did in the training."""
    recorded = model.config.trained_on()
    dataset = FolderDataset(
        ".",
        pairs=[FilePair(Path(image), Path(labels), Path(image).name)],
        classes=model.config.classes,
        label_map=recorded.label_map,
        reduce_zero_label=recorded.reduce_zero_label,
        ignore_index=recorded.ignore_index,
        bands=model.config.bands,
        max_pixels=max_pixels,
    )
    dataset.dtype = model.config.dtype
    return dataset[0]
