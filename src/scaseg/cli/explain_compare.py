"""scaseg explain --compare: where one model is wrong and another right."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scaseg.cli.loading import load
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.paired import require_same_size
from scaseg.data.decode.image import read_image, read_labels
from scaseg.data.sample import Sample
from scaseg.explanation.disagreement import Comparison, check_pair, compare_models, most_telling
from scaseg.explanation.page import draw_comparisons
from scaseg.inference.segmentation import palette_of
from scaseg.models.segmenter import Segmenter
from scaseg.progress import progress_bar

TOP = 5


def comparison_page(options: argparse.Namespace) -> Figure:
    """Draw the row of one image, or a page of a data set's most telling ones."""
    sample = None
    if options.image is not None:  # before the models: it is quick to refuse
        limit = options.max_pixels
        values = read_labels(options.label, max_pixels=limit)
        image = read_image(options.image, max_pixels=limit)
        require_same_size(str(options.label), values.shape, image.shape[:2])
        sample = Sample(image, values, Path(options.image).name)
    first, second = (load("--compare", folder, options.device) for folder in options.compare)
    try:
        check_pair(first, second)
    except ValueError as fault:
        raise ValueError(f"--compare: {options.compare[1]}: {fault}") from fault
    if sample is not None:
        sample.labels = _as_in_training(sample.labels, second, Path(options.label))
        one = compare_models(first, second, sample)
        found = [] if one is None else [one]
    else:
        found = _look_through(options, first, second)
    if not found:
        raise ValueError(
            f"--compare: {options.compare[0]} is nowhere wrong where {options.compare[1]} is "
            "right; give other photographs, or other models"
        )
    classes = second.config.classes
    palette = palette_of(classes, second.config.palette)
    return draw_comparisons(found, classes, palette, names=_names(options, first, second))


def _look_through(
    options: argparse.Namespace, first: Segmenter, second: Segmenter
) -> list[Comparison]:
    dataset = _dataset(options, second)
    samples = (dataset[index] for index in range(len(dataset)))
    with progress_bar("comparing", len(dataset), shown=not options.quiet) as progress:
        return most_telling(
            first,
            second,
            samples,
            top=options.top or TOP,
            progress=lambda done: progress(done, len(dataset)),
        )


def _dataset(options: argparse.Namespace, model: Segmenter) -> SegmentationDataset:
    """Open the split to look through, its labels read as in the model's training."""
    from scaseg.training.data import evaluation_split  # Lightning: seconds
    from scaseg.training.evaluation import data_config, trained_on

    config = data_config(model, options.data)
    if options.max_pixels is not None:
        config = replace(config, max_pixels=options.max_pixels)
    dataset, said = evaluation_split(config, options.split, trained_on=trained_on(model))
    if dataset.classes not in (None, model.config.classes):
        raise ValueError(
            f"--data: {options.data} has other classes than the models, or another order; give "
            "data with theirs"
        )
    if not options.quiet:
        print(f"{len(dataset)} photographs: {said}", file=sys.stderr)
    return dataset


def _as_in_training(values: NDArray[np.int32], model: Segmenter, path: Path) -> NDArray[np.int32]:
    """Turn the values of a label map into classes as the model's own data had them."""
    recorded = model.config.trained_on()
    reader = FolderDataset.__new__(FolderDataset)  # of one file, in no folder
    reader.label_map = recorded.label_map
    reader.reduce_zero_label = recorded.reduce_zero_label
    reader.ignore_index = recorded.ignore_index
    return reader.to_classes(values, path)


def _names(options: argparse.Namespace, first: Segmenter, second: Segmenter) -> tuple[str, str]:
    """What to call the models: their contexts, or their folders where those are the same."""
    if first.config.context != second.config.context:
        return first.config.context, second.config.context
    one, other = (Path(folder).resolve().name for folder in options.compare)
    return (one, other) if one != other else ("A", "B")
