"""What is wrong with a photograph and its label map, by themselves.

A file that cannot be read is a finding, whatever the way it fails; the others are still read.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scaseg.config.run import LARGEST_LABEL, SMALLEST_SIDE
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.image import IMAGE_SUFFIXES, image_size, is_veiled, png_palette
from scaseg.data.folders.pairs import FilePair
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, one_line
from scaseg.io.paths import shown
from scaseg.progress import Progress
from scaseg.system import usable_cores

SHAPE_TOLERANCE = 0.03  # in the ratio of the sides: labels of another shape belong to another photo
MOST_UNNAMED = 1000  # classes without names: larger labels are ids of something else

Labels = NDArray[np.int32]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Finding(NamedTuple):
    """A problem of a dataset. Findings with the same problem and remedy are of one kind.

    An error makes training fail or its result wrong; a warning is worth checking.
    """

    place: str  # a file, as a rule
    problem: str
    remedy: str
    detail: str = ""  # what differs between findings of one kind
    severity: Literal["error", "warning"] = "error"

    @classmethod
    def from_error(cls, error: UserError, remedy: str = "repair or remove it") -> Finding:
        """Take over the fields of an error; remedy: where it names none."""
        return cls(error.place, error.problem, error.remedy or remedy, error.detail)

    def __str__(self) -> str:
        return str(UserError(*self[:4]))


warning = partial(Finding, severity="warning")


class LabelStatistics(NamedTuple):
    """The contents of one label map."""

    values: frozenset[int]  # as stored
    pixels: Mapping[int, int]  # by class
    unlabelled: int

    @classmethod
    def of(cls, values: Labels, to_classes: Callable[[Labels], Labels] = lambda one: one) -> Self:
        """Count the values (H, W) of a label map; to_classes turns values into classes."""
        flat = values.ravel()
        if flat.min() < 0 or flat.max() > LARGEST_LABEL:  # damage: counting must not fill memory
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
        return cls(frozenset(distinct.tolist()), pixels, unlabelled)


def sum_pixels(
    statistics: Iterable[LabelStatistics], classes: Sequence[str] | None
) -> tuple[int, ...]:
    """Add up the pixels of each class; classes=None: as many as the largest label needs."""
    total: Counter[int] = Counter()
    for one in statistics:
        total.update(one.pixels)
    largest = max((label for label in total if label < MOST_UNNAMED), default=-1)
    return tuple(total[index] for index in range(largest + 1 if classes is None else len(classes)))


@dataclass
class SampleCheck:
    """A photograph and its label map (None: the photograph alone), and what reading them showed."""

    image: Path
    labels: Path | None = None
    size: tuple[int, int] | None = None  # height and width, as EXIF turns the photograph
    label_size: tuple[int, ...] | None = None
    is_unturned: bool = False  # the label map has the sides of the photograph before EXIF rotation
    may_be_unturned: bool = False  # so it may be, where that rotation changes no side
    is_scaled: bool = False  # the label map has another size, but the photograph's shape
    digest: bytes | None = None  # of the photograph's pixels
    brightest: int | None = None  # of their values, 0 to 255
    is_veiled: bool = False  # most of them are partly transparent
    statistics: LabelStatistics | None = None
    palette: Sequence[tuple[int, ...]] = ()  # of the label map, where its indices are the classes
    findings: list[Finding] = field(default_factory=list)

    def read_image(self, dataset: PairedDataset) -> None:
        """Decode the photograph."""
        with self._reading(self.image):
            pixels = dataset.read_image(self.image)
            height, width, _ = pixels.shape
            self._set_size((height, width))
            person = b"%dx%d" % (height, width)
            if dataset.bands is None:
                self.brightest = int(pixels.max())
                found = dataset.photograph(self.image)
                self.is_veiled = is_veiled(found, max_pixels=dataset.max_pixels)
            self.digest = hashlib.blake2b(pixels.data, person=person, digest_size=16).digest()

    def read_headers(self, dataset: PairedDataset) -> None:
        """Compare the sizes of both files without decoding them."""
        limit = dataset.max_pixels
        with self._reading(self.image):
            self._set_size(dataset.image_size(self.image, upright=True))
            labels = self.labels  # or a part of another file, which has no header
            if labels and labels.suffix.lower() in IMAGE_SUFFIXES and labels.is_file():
                self._compare(image_size(labels, upright=False, max_pixels=limit), dataset)

    def read_labels(self, dataset: PairedDataset) -> None:
        """Decode the label map."""
        path = self.labels
        assert path is not None
        with self._reading(path):
            values = dataset.read_values(path)
            self.statistics = LabelStatistics.of(values, lambda one: dataset.to_classes(one, path))
            if type(dataset).read_values is PairedDataset.read_values and path.is_file():
                self.palette = png_palette(path, max_pixels=dataset.max_pixels)
            if not self.statistics.pixels:
                remedy = "label it, or leave it out"
                self.findings.append(warning(shown(path), "is all unlabelled", remedy))
            self.label_size = values.shape
            self._compare(values.shape, dataset)
            if self.size == values.shape and self._turns_unseen(dataset):
                self.may_be_unturned = True
                problem = "belongs to a photograph with an EXIF rotation that shows in no size"
                look, fix = (command(verb, dataset.root) for verb in ("look", "fix"))
                remedy = f"see whether it is turned too: `{look}`; if no such label map is, "
                remedy += f"`{fix} DST --turn-all-labels` turns them"
                self.findings.append(warning(shown(path), problem, remedy))

    def _turns_unseen(self, dataset: PairedDataset) -> bool:
        """Whether EXIF turns or mirrors the photograph and leaves its sides as they are."""
        if dataset.image_orientation(self.image) == 1:
            return False
        return dataset.image_size(self.image, upright=False) == self.size

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

    def _compare(self, size: tuple[int, ...], dataset: PairedDataset) -> None:
        """Compare the size of the label map with that of the photograph, if it is known."""
        if self.size is None or self.size == size or self.labels is None:
            return
        problem = "has another size than its photograph"
        remedy = "bring both to one size, labels by nearest neighbour"
        ratio = (self.size[0] * size[1]) / (self.size[1] * size[0])
        mends = f": `{command('fix', dataset.root)} DST` does so"
        if dataset.image_size(self.image, upright=False) == size:
            self.is_unturned = True
            problem = "has the orientation of its photograph before EXIF rotation"
            remedy = f"turn the label map too{mends}"
        elif abs(ratio - 1) <= SHAPE_TOLERANCE:
            self.is_scaled = True
            remedy += mends
        self._add(self.labels, problem, remedy, "{} x {}, not {} x {}".format(*size, *self.size))


def command(verb: str, root: Path) -> str:
    """Return a command of `scaseg data` for a dataset, ready to paste."""
    return f"scaseg data {verb} {shlex.quote(shown(root))}"


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
