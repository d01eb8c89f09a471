"""Where one model is wrong and another right: regions worth an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import FilePair, SegmentationDataset, require_same_size
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.decode.bands import picture
from scaseg.data.sample import IGNORE, Sample
from scaseg.errors import UserError
from scaseg.explanation.features import context_of
from scaseg.explanation.maps import DependencyMaps, explain
from scaseg.inference.predict import predict
from scaseg.models.segmenter import Segmenter
from scaseg.progress import Progress

Labels = NDArray[np.integer]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Disagreement:
    """A photograph, its truth, two predictions, and the largest region that only B got right.

    first and second (H, W) are the labels by A and B; `region` (H, W) is where A is wrong and B
    right, `center` (x, y) its inmost pixel, `share` its part of the labelled pixels; `maps` is B's
    dependency map at the center.
    """

    name: str
    image: NDArray[np.uint8]
    truth: Labels
    first: Labels
    second: Labels
    region: Mask
    center: tuple[int, int]
    share: float
    maps: DependencyMaps | None = None

    def accuracies(self) -> tuple[float, float]:
        """Return the share of labelled pixels that each of the models got right."""
        labelled = self.truth != IGNORE
        first, second = ((own == self.truth)[labelled] for own in (self.first, self.second))
        return float(first.mean()), float(second.mean())


def largest_disagreements(
    first: Segmenter,
    second: Segmenter,
    samples: Sequence[Sample] | SegmentationDataset,
    *,
    top: int = 5,
    progress: Progress | None = None,
) -> list[Disagreement]:
    """Find the images with the largest regions that the second alone gets right, largest first.

    Chosen because the second does better there: it says how, and nothing about how often.
    """
    if first.config.classes != second.config.classes:
        counts = f"{len(first.config.classes)} and {len(second.config.classes)} classes"
        remedy = "give two that were trained on the same classes"
        raise UserError("models", f"{counts}, or others in another order", remedy)
    context_of(second)
    best: list[Disagreement] = []  # without their maps
    for index in range(len(samples)):
        sample = samples[index]
        image, truth, labelled = sample.image, sample.labels, sample.labels != IGNORE
        require_same_size(sample.name, truth.shape, image.shape[:2])
        one, other = (predict(model, image).labels for model in (first, second))
        region = largest_region(labelled & (one != truth) & (other == truth))
        if region.any():
            place = (region, inmost_pixel(region), float(region.sum() / labelled.sum()))
            found = Disagreement(sample.name, image, truth, one, other, *place)
            best = sorted([*best, found], key=lambda one: -one.share)[:top]
        if progress is not None:
            progress(index + 1, len(samples))
    return [
        replace(
            one,
            maps=explain(second, one.image, points=[one.center]),
            image=picture(one.image),
        )
        for one in best
    ]


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
