"""What the values of all label maps together say: labels that are no class, classes that are none.

A label map is fine by itself where 0 means unlabelled, where values are 0, 40, 80, ... or ids of
objects; what a network would learn from it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from scaseg.data.class_names import means_unlabelled
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.sample import IGNORE
from scaseg.data.validation.findings import (
    MOST_UNNAMED,
    Finding,
    LabelStatistics,
    SampleCheck,
    is_sparse,
    warning,
)
from scaseg.io.paths import shown

Statistics = Mapping[Path, LabelStatistics]


def value_findings(
    dataset: PairedDataset,
    checks: Iterable[SampleCheck],
    *,
    training: bool = True,
    sampled: bool = False,
) -> Iterator[Finding]:
    """Find label maps with values that are no class, and guess what the values mean.

    training=False: the classes are a model's, and a few photographs need not show all of them.
    sampled: others were not read, so that nothing follows from values that do not occur.
    """
    statistics = {one.labels: one.statistics for one in checks if one.labels and one.statistics}
    values = set(chain(*(one.values for one in statistics.values())))
    labels = set(chain(*(one.pixels for one in statistics.values())))
    known = None if dataset.classes is None else len(dataset.classes)
    unlabelled_255 = dataset.ignore_index == IGNORE and IGNORE not in dataset.label_map
    if training and values == {0, IGNORE} and unlabelled_255:
        yield Finding(
            shown(next(path for path, one in statistics.items() if IGNORE in one.values)),
            "holds only 0 and 255, like all label maps here: probably binary masks",
            "give --data.label_map '{255: 1}', or '{255: 255}' where 255 is unlabelled",
        )
    from_one = bool(labels) and min(labels) == 1 and not dataset.reduce_zero_label
    if from_one and (known is None or max(labels) == known):
        yield Finding(
            shown(next(iter(statistics))),
            f"labels run from 1 to {max(labels)}, but class indices start at 0",
            "give --data.reduce_zero_label true",
            severity="warning" if known is None else "error",
        )
        return
    if not labels:
        return
    if training and not sampled:
        yield from _unlikely_classes(dataset, values, labels)
    yield from _taken_for_classes(dataset, values, labels, statistics, training=training)
    yield from _no_classes(dataset, values, labels, statistics)


def _no_classes(
    dataset: PairedDataset, values: set[int], labels: set[int], statistics: Statistics
) -> Iterator[Finding]:
    """Find labels beyond the classes, file by file."""
    known = MOST_UNNAMED if dataset.classes is None else len(dataset.classes)
    remedy = "rename them with --data.label_map, or name more classes"
    if dataset.classes is None:
        remedy = "are they colours, or ids of objects? Give class indices, or name the classes"
    elif len(labels) == known and min(labels) >= 0:
        remedy = f"in the order of the names: {_renumbering(dataset, values, labels)}"
    elif dataset.first_name is not None and max(labels) == known:
        name = repr(dataset.first_name)
        remedy = (
            f"the name {name} was taken for 0; where it is a class, name 'unlabelled' before it"
        )
    elif min(labels) == 0 and max(labels) == known:
        remedy = "where 0 is unlabelled, give --data.reduce_zero_label true"
    for path, one in statistics.items():
        if wrong := sorted(label for label in one.pixels if not 0 <= label < known):
            some = ", ".join(map(str, wrong[:3])) + (", ..." if len(wrong) > 3 else "")
            problem = f"holds labels that are no class, 0 to {known - 1}"
            yield Finding(shown(path), problem, remedy, some)


def _unlikely_classes(
    dataset: PairedDataset, values: set[int], labels: set[int]
) -> Iterator[Finding]:
    """Find names that are off by one, and numbers of classes of which most never occur."""
    root, names = shown(dataset.root), dataset.classes
    is_named = names is not None or min(labels) < 0 or max(labels) >= MOST_UNNAMED
    if not is_named and is_sparse(len(labels), max(labels)):
        problem = f"of the labels 0 to {max(labels)} only {len(labels)} occur"
        remedy = f"give {_renumbering(dataset, values, labels)}, or name all classes"
        some = ", ".join(map(str, sorted(labels)[:4])) + (", ..." if len(labels) > 4 else "")
        yield Finding(root, problem, remedy, some)
    # a map of the user's own says what the values are
    is_plain = dataset.reduce_zero_label and dataset.first_name is None and not dataset.label_map
    if names is not None and is_plain and 0 < max(labels) == len(names) - 2:
        first, second, last = names[0], names[1], names[-1]
        yield Finding(
            root,
            f"{len(names)} classes are named and with reduce_zero_label the values are 1 to "
            f"{max(labels) + 1}: is 1 {first!r} or {second!r}?",
            f"take {first!r} out of the names if it stands for 0, or put 'unlabelled' before it if "
            f"{last!r} never occurs",
        )


def _taken_for_classes(
    dataset: PairedDataset,
    values: set[int],
    labels: set[int],
    statistics: Statistics,
    *,
    training: bool,
) -> Iterator[Finding]:
    """Find classes that may mean unlabelled: by their name, or as 0 where nothing has names."""
    names = dataset.classes or ()
    classes = _classes_of(dataset, values)
    first = dataset.first_name
    if first is not None and names and not means_unlabelled(first):
        problem = f"{first!r} is the name of 0, which is unlabelled, and {names[0]!r} that of 1"
        remedy = f"where {first!r} is a class, name 'unlabelled' before it"
        yield warning("data.reduce_zero_label", problem, remedy)
    for index, name in enumerate(names):
        if index in labels and means_unlabelled(name):
            taken = {value: IGNORE for value, label in classes.items() if label == index}
            option = f"--data.label_map '{dataset.label_map | taken}'"
            if index == 0 and training and not dataset.reduce_zero_label:
                option = "--data.reduce_zero_label true"
            problem = "its name says unlabelled, and it is a class like the others"
            yield warning(f"class {index} {name!r}", problem, f"{option} leaves it out")
            return
    unnamed = all(name == f"class {index}" for index, name in enumerate(names))
    none_unlabelled = not any(one.unlabelled for one in statistics.values())
    if unnamed and none_unlabelled and classes.get(0) == 0 and max(labels) >= 2:
        option = "--data.reduce_zero_label true" if training else "--data.label_map '{0: 255}'"
        problem = "0 is a class like the others, and no pixel is unlabelled"
        yield warning(shown(dataset.root), problem, f"where 0 means unlabelled, give {option}")


def _classes_of(dataset: PairedDataset, values: Iterable[int]) -> dict[int, int]:
    """Return the class, or IGNORE, of each value on disk."""
    stored = np.array(sorted(values), np.int32)
    return dict(zip(stored.tolist(), dataset.to_classes(stored, Path()).tolist(), strict=True))


def _renumbering(dataset: PairedDataset, values: set[int], labels: set[int]) -> str:
    """Return the options that number some labels 0, 1, ... in their order, ready to paste."""
    places = {label: place for place, label in enumerate(sorted(labels))}
    first = int(dataset.reduce_zero_label)  # taken off again after the map
    renamed = {}
    for value, label in _classes_of(dataset, values).items():
        unlabelled = 0 if first else IGNORE
        after = places[label] + first if label in places else unlabelled
        if after != value:
            renamed[value] = after
    other = "" if dataset.ignore_index == IGNORE else f" --data.ignore_index {IGNORE}"
    return f"--data.label_map '{renamed}'{other}"
