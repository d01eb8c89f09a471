"""What the values of all files together say: labels that are no class, classes that are none.

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
from scaseg.data.validation.findings import is_sparse
from scaseg.data.validation.samples import (
    MOST_UNNAMED,
    Finding,
    LabelStatistics,
    SampleCheck,
    warning,
)
from scaseg.io.paths import shown

UNLABELLED_16 = 65535  # as label maps of 16 bits often have it
DARK = 32  # of 255: a photograph without a brighter value shows hardly anything
MOST_PASTED = 32  # values beyond 999 that may be classes: ids of objects are more

Statistics = Mapping[Path, LabelStatistics]


def band_findings(dataset: PairedDataset, checks: Iterable[SampleCheck]) -> Iterator[Finding]:
    """Find photographs that are more than red, green and blue of 8 bits.

    Of 12 or 16 bits that use few of them, they are nearly black. A fourth band, such as near
    infrared, is taken for transparency: white shines through.
    """
    checks = list(checks)
    found = [one.brightest for one in checks if one.brightest is not None]
    dark = [one for one in found if one < DARK]
    if 2 * len(dark) > len(found):
        problem = f"nearly black: {len(dark)} of {len(found)} photographs have no value above "
        problem += f"{max(dark)} of 255"
        remedy = "files of 12 or 16 bits are read whole with --data.bands 1 (or 3, ...)"
        yield warning(shown(dataset.root), problem, remedy)
    veiled = sum(one.is_veiled for one in checks)
    if 2 * veiled > len(found):
        problem = f"partly transparent: {veiled} of {len(found)} photographs, taken as over white"
        remedy = "where the fourth band is no transparency, read all four with --data.bands 4"
        yield warning(shown(dataset.root), problem, remedy)


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
    are_masks = values == {0, IGNORE} and unlabelled_255
    if training and are_masks:
        yield Finding(
            shown(next(path for path, one in statistics.items() if IGNORE in one.values)),
            "holds only 0 and 255, like all label maps here: probably binary masks",
            "give --data.label_map '{255: 1}', or '{255: 255}' where 255 is unlabelled",
        )
    elif training and values == {0, 1, IGNORE} and unlabelled_255:
        foreground = [one.values & {1, IGNORE} for one in statistics.values()]
        if {1, IGNORE} not in foreground:  # never in one map: two ways to say the same?
            yield warning(
                shown(next(path for path, one in statistics.items() if IGNORE in one.values)),
                "holds 255 where other label maps hold 1: masks of two kinds?",
                "where 255 is that class too, give --data.label_map '{255: 1}'",
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
        if labels == {0} and known in (None, 1) and not are_masks:
            problem = "all labelled pixels are of one class: there is nothing to tell apart"
            yield Finding(shown(dataset.root), problem, "label another one")
        yield from _unlikely_classes(dataset, values, labels)
    yield from _taken_for_classes(dataset, values, labels, statistics, training=training)
    if not sampled and _is_readable_twice(dataset):
        yield from _off_by_one(dataset, labels, statistics, training=training)
    yield from _no_classes(dataset, values, labels, statistics, sampled=sampled)


def _no_classes(
    dataset: PairedDataset,
    values: set[int],
    labels: set[int],
    statistics: Statistics,
    *,
    sampled: bool,
) -> Iterator[Finding]:
    """Find labels beyond the classes, file by file."""
    known = MOST_UNNAMED if dataset.classes is None else len(dataset.classes)
    remedy = "rename them with --data.label_map, or name more classes"
    no_class = [
        value
        for value, label in _classes_of(dataset, values).items()
        if label != IGNORE and not 0 <= label < known
    ]
    if no_class == [UNLABELLED_16]:
        option = f"--data.ignore_index {UNLABELLED_16}"
        if dataset.ignore_index in values:  # both are
            renamed = dataset.label_map | {UNLABELLED_16: dataset.ignore_index}
            option = f"--data.label_map '{renamed}'"
        remedy = f"where {UNLABELLED_16} means unlabelled, give {option}"
    elif dataset.classes is None:
        remedy = "are they colours, or ids of objects? Give class indices, or name the classes"
        if not sampled and len(labels) <= MOST_PASTED and min(labels) >= 0:
            paste = _renumbering(dataset, values, labels)
            remedy = f"where each value is a class, give {paste}; ids of objects are none"
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


def _is_readable_twice(dataset: PairedDataset) -> bool:
    """Whether 0 may be the first name, or unlabelled and 1 the first name: nothing says which."""
    names = dataset.classes or ()
    are_own = any(name != f"class {index}" for index, name in enumerate(names))
    as_stored = type(dataset).read_values is PairedDataset.read_values  # else by name
    is_said = any(means_unlabelled(name, perhaps=True) for name in names)
    if is_said or dataset.reduce_zero_label or dataset.label_map:
        return False
    return len(names) > 2 and are_own and as_stored


def _off_by_one(
    dataset: PairedDataset, labels: set[int], statistics: Statistics, *, training: bool
) -> Iterator[Finding]:
    """Find names that may belong to 1, 2, ...: the first or the last never occurs."""
    names = dataset.classes or ()
    if not training and len(labels) < len(names) - 1:
        return  # a few photographs need not show every class
    first, last = names[0], names[-1]
    none_unlabelled = not any(one.unlabelled for one in statistics.values())
    if min(labels) == 1 and max(labels) < len(names):
        problem = f"no label is 0, {first!r}, and 1 is {names[1]!r}: or is 1 {first!r}?"
    elif min(labels) == 0 and none_unlabelled and max(labels) < len(names) - 1:
        problem = f"0 is {first!r}, and {last!r} never occurs: or is 0 unlabelled, and 1 {first!r}?"
    else:
        return
    yield warning(shown(dataset.root), problem, f"then {_shift(training)}; else leave it")


def _shift(training: bool) -> str:
    """Say how the first name becomes that of 1; the names of an evaluation are a model's."""
    option = "give --data.reduce_zero_label true"
    return f"write 'unlabelled' before the names and {option}" if training else option


def zero_in_words(dataset: PairedDataset, checks: Iterable[SampleCheck]) -> str:
    """Say what 0 is taken for where all classes occur and no pixel is unlabelled, else nothing."""
    statistics = [one.statistics for one in checks if one.statistics]
    labels = set(chain(*(one.pixels for one in statistics)))
    names = dataset.classes or ()
    complete = labels == set(range(len(names))) and not any(one.unlabelled for one in statistics)
    if not complete or not _is_readable_twice(dataset):
        return ""
    return (
        f"No pixel is unlabelled: 0 is {names[0]!r}, 1 {names[1]!r}, {len(names) - 1} "
        f"{names[-1]!r}. Where 0 means unlabelled and 1 is {names[0]!r}, {_shift(True)}."
    )


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
