"""Checking a data set before it is trained on: all of it (check_data), or what costs a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from scaseg.data.datasets.paired import FilePair, PairedDataset
from scaseg.data.decode.image import IMAGE_SUFFIXES, image_size
from scaseg.data.sample import IGNORE
from scaseg.data.validation.problems import (
    class_problems,
    list_problems,
    size_problems,
    stray_problems,
    value_problems,
)
from scaseg.data.validation.report import Problem, Report, Sizes
from scaseg.data.validation.require import refuse
from scaseg.data.validation.sample import SMALLEST, Look, look_at, problem_of, too_small
from scaseg.data.validation.scan import (
    LabelFacts,
    Progress,
    attempt,
    count_pixels,
    in_parallel,
    read_label_facts,
)
from scaseg.io.paths import shown
from scaseg.losses import paper_class_weights

HEADERS, DECODED = 2000, 16  # pairs that quick_check looks at: their sizes, their contents


def check_data(
    dataset_class: type[PairedDataset],
    root: str | Path,
    *,
    classes: Sequence[str] | None = None,
    label_map: Mapping[int, int] | None = None,
    reduce_zero_label: bool = False,
    ignore_index: int = IGNORE,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read every photograph and label map of all splits once, and report all that is wrong.

    The options are those of the data set. workers: threads; None: by the number of cores. progress
    hears (done, total) after each pair. ValueError where the folder is no such data set at all.
    """
    root = Path(root)

    def build(split: str | None) -> PairedDataset:
        return dataset_class(
            root,
            split,
            classes=classes,
            label_map=label_map,
            reduce_zero_label=reduce_zero_label,
            ignore_index=ignore_index,
            max_pixels=max_pixels,
            strict=False,
        )

    everything = build(None)
    splits, problems = _splits(build, dataset_class.splits(root), everything)
    files = list(dict.fromkeys((pair.image, pair.labels) for pair in chain(*splits.values())))
    looks = in_parallel(
        lambda pair: look_at(everything, *pair), files, workers=workers, progress=progress
    )
    digests = {image: look.digest for (image, _), look in zip(files, looks, strict=True)}
    facts = {
        labels: look.labels
        for (_, labels), look in zip(files, looks, strict=True)
        if look.labels is not None
    }
    trained_on = splits.get("train") or list(chain(*splits.values()))
    in_train = [facts[pair.labels] for pair in trained_on if pair.labels in facts]
    known = None if everything.classes is None else len(everything.classes)
    pixels = count_pixels(facts.values(), known)
    train_pixels = count_pixels(in_train, len(pixels))
    names = everything.classes or tuple(f"class {index}" for index in range(len(pixels)))
    problems += chain(
        *(look.problems for look in looks),
        value_problems(everything, facts),
        list_problems(splits, digests),
        stray_problems(everything, splits),
        class_problems(everything, names, pixels, train_pixels),
    )
    weights = paper_class_weights(train_pixels) if any(train_pixels) else None
    return Report(
        root=str(root),
        splits={split: len(pairs) for split, pairs in splits.items()},
        sizes=_sizes([look.size for look in looks if look.size is not None]),
        classes=names,
        counted="train" if splits.get("train") else "all images",
        pixels=train_pixels,
        unlabelled=sum(one.unlabelled for one in in_train),
        eta=None if weights is None else weights.eta,
        weights=None if weights is None else weights.weights,
        problems=tuple(
            one._replace(place=one.place.removeprefix(f"{shown(root)}{os.sep}")) for one in problems
        ),
    )


def quick_check(dataset: PairedDataset, *, masks: bool = True) -> None:
    """Look at what costs no time; ValueError with one line where training would go wrong.

    Sizes from the headers of up to 2000 pairs, contents of up to 16 label maps, evenly spaced.
    masks=False: that all hold only 0 and 255 is no fault; a few photographs may show one class.
    """
    compared = in_parallel(
        lambda pair: _compare_headers(pair, dataset), _spaced(dataset.pairs, HEADERS)
    )
    problems = list(chain(*compared))
    looks = in_parallel(
        lambda pair: _look_at_labels(dataset, pair), _spaced(dataset.pairs, DECODED)
    )
    facts: dict[Path, LabelFacts] = {}
    for pair, look in zip(_spaced(dataset.pairs, DECODED), looks, strict=True):
        problems += look.problems
        if look.labels is not None:
            facts[pair.labels] = look.labels
    problems += value_problems(dataset, facts, masks=masks)
    refuse(problems)


def _splits(
    build: Callable[[str | None], PairedDataset], names: Sequence[str], everything: PairedDataset
) -> tuple[dict[str, list[FilePair]], list[Problem]]:
    """Look for the pairs of each split, and for what is missing there."""
    splits: dict[str, list[FilePair]] = {}
    messages = []
    for name in names:
        try:
            part = build(name)
        except ValueError as fault:  # an empty list, a folder that is not there: the others go on
            splits[name] = []
            messages.append(str(fault))
            continue
        splits[name] = part.pairs
        messages += map(str, part.problems)
        if not part.pairs and not part.problems:
            messages.append(f"{shown(everything.root)}: the split '{name}' is empty; give it pairs")
    if not names:
        splits["all images"] = everything.pairs
        messages += map(str, everything.problems)
    remedy = "add what is missing, or take the name out"
    # a problem of the folders is one of every split
    unique = dict.fromkeys(messages)
    return splits, [problem_of(message, everything.root, remedy) for message in unique]


def _look_at_labels(dataset: PairedDataset, pair: FilePair) -> Look:
    """Read a label map whole; where it is no image, this is the time to compare sizes."""
    facts = attempt(lambda: read_label_facts(dataset, pair.labels), pair.labels)
    if isinstance(facts, str):
        return Look(None, None, None, [problem_of(facts, dataset.root)])
    problems: list[Problem] = []
    if not _is_image(pair.labels):
        limit = dataset.max_pixels
        size = attempt(lambda: image_size(pair.image, upright=True, max_pixels=limit), pair.image)
        if not isinstance(size, str):
            problems += size_problems(pair.image, pair.labels, size, facts.size)
    return Look(None, None, facts, problems)


def _compare_headers(pair: FilePair, dataset: PairedDataset) -> list[Problem]:
    if not _is_image(pair.labels):
        return []

    def compare() -> list[Problem]:
        limit = dataset.max_pixels
        labels = image_size(pair.labels, upright=False, max_pixels=limit)
        if min(labels) < SMALLEST:
            return [too_small(pair.image, labels)]
        size = image_size(pair.image, upright=True, max_pixels=limit)
        return list(size_problems(pair.image, pair.labels, size, labels))

    found = attempt(compare, pair.image)
    return [problem_of(found, dataset.root)] if isinstance(found, str) else found


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _spaced(pairs: list[FilePair], most: int) -> list[FilePair]:
    return (
        [pairs[index * len(pairs) // most] for index in range(most)] if len(pairs) > most else pairs
    )


def _sizes(sizes: list[tuple[int, int]]) -> Sizes | None:
    by_area = sorted(sizes, key=lambda size: (size[0] * size[1], size))
    return Sizes(by_area[0], by_area[len(by_area) // 2], by_area[-1]) if by_area else None
