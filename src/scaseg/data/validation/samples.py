"""Reading the files of a dataset: the class pixels of its label maps, and what is wrong with each.

A file that cannot be read is a finding, whatever the way it fails; the others are still read.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scaseg.config.run import LARGEST_LABEL, SMALLEST_SIDE
from scaseg.data.datasets.base import FilePair, PairedDataset
from scaseg.data.decode.image import IMAGE_SUFFIXES, image_size, read_image
from scaseg.data.sample import IGNORE
from scaseg.data.validation.report import Finding
from scaseg.errors import UserError, one_line
from scaseg.io.paths import shown
from scaseg.progress import Progress
from scaseg.system import usable_cores

MAX_CLASSES = LARGEST_LABEL + 1  # beyond is damage, not a class: counting must not fill the memory

Labels = NDArray[np.int32]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LabelStatistics(NamedTuple):
    """The contents of one label map."""

    size: tuple[int, int]
    values: frozenset[int]  # as stored
    pixels: Mapping[int, int]  # by class
    unlabelled: int

    @classmethod
    def of(cls, values: Labels, to_classes: Callable[[Labels], Labels] = lambda one: one) -> Self:
        """Count the values (H, W) of a label map; to_classes turns values into classes."""
        flat = values.ravel()
        if flat.min() < 0 or flat.max() >= MAX_CLASSES:
            distinct, counts = np.unique(flat, return_counts=True)
        else:
            counts = np.bincount(flat)  # several times faster: it does not sort
            distinct = np.flatnonzero(counts).astype(np.int32)
            counts = counts[distinct]
        pixels: Counter[int] = Counter()
        # every value becomes a class once, not at each of its pixels
        for label, count in zip(to_classes(distinct).tolist(), counts.tolist(), strict=True):
            pixels[label] += count
        unlabelled = pixels.pop(IGNORE, 0)
        height, width = values.shape
        return cls((height, width), frozenset(distinct.tolist()), pixels, unlabelled)

    def invalid(self, classes: int | None) -> list[int]:
        """Return the labels that are none of so many classes (None: unknown)."""
        end = MAX_CLASSES if classes is None else classes
        return sorted(label for label in self.pixels if not 0 <= label < end)


@dataclass
class SampleCheck:
    """A photograph and its label map (None: the photograph alone), and what reading them showed."""

    image: Path
    labels: Path | None = None
    size: tuple[int, int] | None = None  # height and width, as EXIF turns the photograph
    digest: bytes | None = None  # of the photograph's pixels
    statistics: LabelStatistics | None = None
    findings: list[Finding] = field(default_factory=list)

    def read_image(self, dataset: PairedDataset) -> None:
        """Decode the photograph."""
        with self._reading(self.image):
            pixels = read_image(self.image, max_pixels=dataset.max_pixels)
            size = pixels.shape[0], pixels.shape[1]
            self._set_size(size)
            person = b"%dx%d" % size
            self.digest = hashlib.blake2b(pixels.data, person=person, digest_size=16).digest()

    def read_headers(self, dataset: PairedDataset) -> None:
        """Compare the sizes of both files without decoding them."""
        limit = dataset.max_pixels
        with self._reading(self.image):
            self._set_size(image_size(self.image, upright=True, max_pixels=limit))
            if self.labels is not None and self.labels.suffix.lower() in IMAGE_SUFFIXES:
                self._compare(image_size(self.labels, upright=False, max_pixels=limit))

    def read_labels(self, dataset: PairedDataset) -> None:
        """Decode the label map."""
        path = self.labels
        assert path is not None
        with self._reading(path):
            values = dataset.read_values(path)
            self.statistics = LabelStatistics.of(values, lambda one: dataset.to_classes(one, path))
            if not self.statistics.pixels:
                fields = "is all unlabelled", "label it, or leave it out"
                self.findings.append(Finding(shown(path), *fields, severity="warning"))
            self._compare(self.statistics.size)

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Turn any error raised inside into a finding."""
        try:
            yield
        except UserError as error:
            self.findings.append(Finding.from_error(error))
        except Exception as fault:  # damaged files find every way to fail
            detail = one_line(f"{type(fault).__name__}: {fault}")
            self._add(path, "cannot be read", "repair or remove it", detail)

    def _add(self, path: Path, problem: str, remedy: str, detail: str) -> None:
        self.findings.append(Finding(shown(path), problem, remedy, detail))

    def _set_size(self, size: tuple[int, int]) -> None:
        self.size = size
        if min(size) < SMALLEST_SIDE:
            problem = f"is smaller than {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels"
            self._add(self.image, problem, "enlarge it", "{} x {}".format(*size))

    def _compare(self, size: tuple[int, int]) -> None:
        """Compare the size of the label map with that of the photograph, if it is known."""
        if self.size is None or self.size == size or self.labels is None:
            return
        problem = "has another size than its photograph"
        remedy = "bring both to one size, labels by nearest neighbour"
        # no limit: it was opened before, within its reader's own
        if image_size(self.image, upright=False, max_pixels=sys.maxsize) == size:
            problem = "has the orientation of its photograph before EXIF rotation"
            remedy = "turn the label map too, or remove the photograph's EXIF orientation"
        self._add(self.labels, problem, remedy, "{} x {}, not {} x {}".format(*size, *self.size))


def check_pairs(
    dataset: PairedDataset,
    pairs: Iterable[FilePair],
    images: Iterable[Path] = (),
    *,
    labels_only: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[SampleCheck]:
    """Decode the files of all pairs, each pair once, and `images` that are in no pair."""
    checks = [SampleCheck(*files) for files in dict.fromkeys(pair[:2] for pair in pairs)]
    paired = {check.image for check in checks}
    checks += [SampleCheck(image) for image in dict.fromkeys(images) if image not in paired]

    def read(check: SampleCheck) -> SampleCheck:
        if not labels_only:
            check.read_image(dataset)
        if check.labels is not None:
            check.read_labels(dataset)
        return check

    return in_parallel(read, checks, workers=workers, progress=progress)


def sum_pixels(
    statistics: Iterable[LabelStatistics], classes: Sequence[str] | None
) -> tuple[int, ...]:
    """Add up the pixels of each class; classes=None: as many as the largest label needs."""
    total: Counter[int] = Counter()
    for one in statistics:
        total.update(one.pixels)
    largest = max((label for label in total if label < MAX_CLASSES), default=-1)
    return tuple(total[index] for index in range(largest + 1 if classes is None else len(classes)))


def in_parallel(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[_Result]:
    """Apply `work` to all items in threads (Pillow releases the lock while it decodes), in order.

    workers: None for the number of cores, at most 8. progress: called with (done, total).
    """
    # more threads hold more decoded photographs, and 8 keep a disk busy
    pool = ThreadPoolExecutor(workers or min(8, usable_cores()))
    results = []
    try:
        for result in pool.map(work, items):
            results.append(result)
            if progress is not None:
                progress(len(results), len(items))
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits for files being read, not for all
    return results
