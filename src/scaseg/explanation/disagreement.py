"""Where one model is wrong and another right: the places that are worth looking at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scaseg.data.sample import IGNORE, Sample
from scaseg.explanation.features import context_of
from scaseg.explanation.maps import DependencyMaps, dependency_maps
from scaseg.explanation.regions import inmost_pixel, largest_region
from scaseg.inference.predict import predict
from scaseg.models.segmenter import Segmenter

Labels = NDArray[np.integer]


@dataclass(frozen=True)
class Comparison:
    """A photograph, its truth, what two models say, and the largest region that only B got right.

    first and second (H, W) are the labels by A and B; `region` (H, W) is where A is wrong and B
    right, `centre` (x, y) its inmost pixel, `share` its part of the labelled pixels; `maps` is B's
    dependency map at the centre.
    """

    name: str
    image: NDArray[np.uint8]
    truth: Labels
    first: Labels
    second: Labels
    region: NDArray[np.bool_]
    center: tuple[int, int]
    share: float
    maps: DependencyMaps | None = None

    def accuracies(self) -> tuple[float, float]:
        """The share of labelled pixels that each of the models got right."""
        labelled = self.truth != IGNORE
        right = [(said == self.truth)[labelled].mean() for said in (self.first, self.second)]
        return float(right[0]), float(right[1])


def check_pair(first: Segmenter, second: Segmenter) -> None:
    """Refuse two models that cannot be compared; ValueError says why."""
    if first.config.classes != second.config.classes:
        raise ValueError(
            f"models: {len(first.config.classes)} and {len(second.config.classes)} classes, or "
            "others in another order; give two that were trained on the same classes"
        )
    context_of(second)


def compare_models(first: Segmenter, second: Segmenter, sample: Sample) -> Comparison | None:
    """Find the largest region of a photograph that the first gets wrong and the second right.

    None where there is no such pixel. The comparison has the second's dependency map.
    """
    found = _compare(first, second, sample)
    return None if found is None else _with_maps(second, found)


def most_telling(
    first: Segmenter,
    second: Segmenter,
    samples: Iterable[Sample],
    *,
    top: int = 5,
    progress: Callable[[int], None] | None = None,
) -> list[Comparison]:
    """Look through a data set for the images with the largest such regions, largest first.

    Chosen because the second does better there: it says how, and nothing about how often.
    """
    best: list[Comparison] = []
    for done, sample in enumerate(samples, start=1):
        found = _compare(first, second, sample)
        if found is not None:
            best = sorted([*best, found], key=lambda one: -one.share)[:top]
        if progress is not None:
            progress(done)
    return [_with_maps(second, found) for found in best]


def _compare(first: Segmenter, second: Segmenter, sample: Sample) -> Comparison | None:
    truth = sample.labels
    _check_labels(sample, len(first.config.classes))
    labels = [predict(model, sample.image).labels for model in (first, second)]
    labelled = truth != IGNORE
    region = largest_region(labelled & (labels[0] != truth) & (labels[1] == truth))
    if not region.any():
        return None
    return Comparison(
        name=sample.name,
        image=sample.image,
        truth=truth,
        first=labels[0],
        second=labels[1],
        region=region,
        center=inmost_pixel(region),
        share=float(region.sum() / labelled.sum()),
    )


def _with_maps(model: Segmenter, found: Comparison) -> Comparison:
    return replace(found, maps=dependency_maps(model, found.image, [found.center]))


def _check_labels(sample: Sample, classes: int) -> None:
    if sample.labels.shape != sample.image.shape[:2]:
        raise ValueError(
            f"{sample.name}: labels of {sample.labels.shape[0]} x {sample.labels.shape[1]} but the "
            f"photograph is {sample.image.shape[0]} x {sample.image.shape[1]}; they must have one "
            "size"
        )
    wrong = (sample.labels != IGNORE) & ((sample.labels < 0) | (sample.labels >= classes))
    if wrong.any():
        raise ValueError(
            f"{sample.name}: holds {sample.labels[wrong][0]}, but the models have {classes} "
            f"classes (0 to {classes - 1}, {IGNORE} unlabelled); give labels with their classes"
        )
