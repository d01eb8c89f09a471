"""One look at every label map: how many pixels each class has, and which files are at fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.sample import IGNORE
from scaseg.io.paths import shown
from scaseg.system import usable_cores

Progress = Callable[[int, int], None]  # how many are done, of how many
MOST_CLASSES = 1 << 16  # a label beyond is damage, not a class: counting must not fill the memory

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LabelFacts(NamedTuple):
    """What one label map holds: pixels by class, whatever the number of classes."""

    size: tuple[int, int]
    values: frozenset[int]  # as they lie on disk
    pixels: Mapping[int, int]
    unlabelled: int

    def outside(self, classes: int | None) -> list[int]:
        """Return the labels that are no class, where there are so many classes (None: unknown)."""
        end = MOST_CLASSES if classes is None else classes
        return sorted(label for label in self.pixels if not 0 <= label < end)


@dataclass(frozen=True)
class LabelScan:
    """Pixels of each class, by its index; unlabelled ones; a line for each file at fault.

    Files that cannot be read count nowhere; of a file with labels out of range the others count.
    """

    pixels: tuple[int, ...]
    unlabelled: int
    problems: tuple[str, ...]


def scan_labels(
    dataset: SegmentationDataset, *, workers: int | None = None, progress: Progress | None = None
) -> LabelScan:
    """Count the pixels of each class over all label maps, a bad file among them or not.

    workers: threads; None: by the number of cores. progress hears (done, total) after each file.
    """
    known = None if dataset.classes is None else len(dataset.classes)

    if not isinstance(dataset, PairedDataset):  # no files, so no faults
        own = in_parallel(
            lambda index: _facts_of(dataset[index].labels),
            range(len(dataset)),
            workers=workers,
            progress=progress,
        )
        return LabelScan(count_pixels(own, known), sum(facts.unlabelled for facts in own), ())

    def look(path: Path) -> LabelFacts | str:
        return attempt(lambda: read_label_facts(dataset, path), path)

    paths = [pair.labels for pair in dataset.pairs]
    found = in_parallel(look, paths, workers=workers, progress=progress)
    problems = []
    for path, facts in zip(paths, found, strict=True):
        if isinstance(facts, str):
            problems.append(facts)
        elif wrong := facts.outside(known):
            problems.append(f"{shown(path)}: holds {wrong[0]}, which is no class; use label_map")
    read = [facts for facts in found if not isinstance(facts, str)]
    pixels = count_pixels(read, known)
    return LabelScan(pixels, sum(facts.unlabelled for facts in read), tuple(problems))


def read_label_facts(dataset: PairedDataset, path: Path) -> LabelFacts:
    """Read one label map; ValueError where that is impossible."""
    values = dataset.read_values(path)
    distinct, counts = _histogram(values)
    # every value becomes a class once, not at each of its pixels
    labels = dataset.to_classes(distinct, path)
    pixels: Counter[int] = Counter()
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        pixels[label] += count
    unlabelled = pixels.pop(IGNORE, 0)
    height, width = values.shape
    return LabelFacts((height, width), frozenset(distinct.tolist()), pixels, unlabelled)


def _facts_of(labels: NDArray[np.int32]) -> LabelFacts:
    """What a label map that is made of classes already holds."""
    distinct, counts = _histogram(labels)
    pixels = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
    unlabelled = pixels.pop(IGNORE, 0)
    height, width = labels.shape
    return LabelFacts((height, width), frozenset(distinct.tolist()), pixels, unlabelled)


def count_pixels(facts: Iterable[LabelFacts], classes: int | None) -> tuple[int, ...]:
    """Add up the pixels of each class; classes=None: as many as the largest label asks for."""
    total: Counter[int] = Counter()
    for one in facts:
        total.update(one.pixels)
    if classes is None:
        classes = max((label for label in total if label < MOST_CLASSES), default=-1) + 1
    return tuple(total[index] for index in range(classes))


def attempt(work: Callable[[], _Result], path: Path) -> _Result | str:
    """Do the work, or say in one line why this file does not let itself be read."""
    name = shown(path)
    try:
        return work()
    except ValueError as fault:
        line = " ".join(str(fault).split()) if "\n" in str(fault) else str(fault)
        return line if line.startswith(f"{name}: ") else f"{name}: cannot be read ({line}); mend it"
    except Exception as fault:  # damaged files find every way to fail, and the others must be read
        said = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
        return f"{name}: cannot be read ({said}); repair or remove it"


def in_parallel(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[_Result]:
    """Work on all items in threads: Pillow lets others run while it decodes."""
    # more threads hold more decoded photographs, and 8 keep a disk busy
    pool = ThreadPoolExecutor(workers or min(8, usable_cores()))
    results = []
    try:
        for result in pool.map(work, items):
            results.append(result)
            if progress is not None:
                progress(len(results), len(items))
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits for files in work, not for all of them
    return results


def _histogram(values: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the distinct values and how often each occurs."""
    flat = values.ravel()
    if flat.min() < 0 or flat.max() >= MOST_CLASSES:
        distinct, counts = np.unique(flat, return_counts=True)
        return distinct, counts.astype(np.int64)
    counts = np.bincount(flat)  # several times faster: it does not sort
    present = np.flatnonzero(counts)
    return present.astype(np.int32), counts[present].astype(np.int64)
