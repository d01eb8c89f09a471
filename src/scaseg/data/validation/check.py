"""Validation of a dataset: `check_data` reports all findings; `require_valid` and the much faster
`quick_check` raise the first error before training.

What `require_valid` found valid is remembered in the user's cache, so that a run that is continued
or repeated does not read the data twice; a file that was touched since is read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import PIL

from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.decode.bands import band_header
from scaseg.data.folders.pairs import FilePair
from scaseg.data.validation import findings
from scaseg.data.validation.report import PAPER, Report, Weighting
from scaseg.data.validation.samples import (
    Finding,
    LabelStatistics,
    SampleCheck,
    check_pairs,
    in_parallel,
    sum_pixels,
)
from scaseg.data.validation.values import band_findings, value_findings, zero_in_words
from scaseg.errors import UserError, plural
from scaseg.io.atomic import write_text
from scaseg.io.paths import on_disk, shown, user_cache
from scaseg.losses import class_weights, paper_class_weights
from scaseg.progress import Progress

HEADERS, DECODED = 2000, 16  # pairs that quick_check reads: their headers, their label maps
VERSION = 7  # raise it when the check learns something: what older ones found valid may not be

Pixels = tuple[tuple[int, ...], ...]  # of each class, in each part
Notify = Callable[[str], None]


class Part(NamedTuple):
    """Some of the data, and the split they are from: splits must not share a photograph."""

    split: str
    data: PairedDataset


class Reading(NamedTuple):
    """All files of a dataset, read once: the pairs of each split, and each pair's check."""

    dataset: PairedDataset
    splits: dict[str, list[FilePair]]
    problems: list[UserError]  # files that are missing
    checks: list[SampleCheck]


def read_data(
    dataset_class: type[PairedDataset],
    root: str | Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Reading:
    """Read every photograph and label map of all splits once.

    workers: threads; None: by the number of cores. progress: called with (done, total) after each
    pair. options: of `PairedDataset`. UserError if the folder is no such dataset at all.
    """
    root = Path(root)
    everything = dataset_class(root, None, strict=False, **options)
    splits: dict[str, list[FilePair]] = {}
    missing: list[UserError] = []
    for name in dataset_class.splits(root):
        try:
            splits[name], problems = dataset_class.find(root, name)
        except UserError as error:  # an empty list, a folder that is not there: the others go on
            splits[name], problems = [], [error]
        if not splits[name] and not problems:
            problems = [UserError(root, f"the split '{name}' is empty", "give it pairs")]
        missing += problems
    if not splits:
        splits["all images"] = everything.pairs
        missing += everything.problems
    pairs = list(chain(*splits.values()))
    if everything.bands is not None and pairs:  # one type for all, as in training
        with suppress(UserError, OSError):  # it cannot be read: said of it below
            first = everything.photograph((splits.get("train") or pairs)[0].image)
            everything.dtype = band_header(first, max_pixels=everything.max_pixels).dtype
    checks = check_pairs(everything, pairs, workers=workers, progress=progress)
    return Reading(everything, splits, missing, checks)


def check_data(
    dataset_class: type[PairedDataset],
    root: str | Path,
    *,
    weighting: Weighting = PAPER,
    **options: Any,
) -> Report:
    """Read every photograph and label map once (`read_data`), and report all that is wrong."""
    return report_on(read_data(dataset_class, root, **options), weighting)


def report_on(reading: Reading, weighting: Weighting = PAPER) -> Report:
    """Report all that is wrong with data that were read; weighting: of the weights shown."""
    everything, splits, missing, checks = reading
    root, pairs = everything.root, list(chain(*splits.values()))
    in_train = _statistics_of(splits.get("train") or pairs, checks)
    pixels = sum_pixels(_statistics_of(pairs, checks), everything.classes)
    names = everything.classes or tuple(f"class {index}" for index in range(len(pixels)))
    train_pixels = sum_pixels(in_train, names)
    remedy = "add what is missing, or take the name out"
    found = chain(
        # each once: a problem of the folders is one of every split
        dict.fromkeys(Finding.from_error(error, remedy) for error in missing),
        (Finding(shown(root), note, "", severity="warning") for note in everything.notes),
        *(check.findings for check in checks),
        value_findings(everything, checks),
        findings.palette_findings(everything, checks),
        band_findings(everything, checks),
        findings.duplicate_findings(root, splits, checks),
        findings.overlap_findings(splits, checks),
        findings.stray_findings(everything, splits),
        findings.class_findings(everything, names, pixels, train_pixels, in_train),
    )
    eta, weights = None, None
    if any(train_pixels):
        eta = paper_class_weights(train_pixels).eta
        same = tuple(float(count > 0) for count in train_pixels)
        weights = class_weights(weighting.kind, train_pixels, weighting.clamp) or same
    sizes = [check.size for check in checks if check.size is not None]
    sizes.sort(key=lambda size: (size[0] * size[1], size))
    three = [sizes[0], sizes[len(sizes) // 2], sizes[-1]] if sizes else []
    inside = f"{shown(root)}{os.sep}"
    return Report(
        root=str(root),
        splits={split: len(pairs) for split, pairs in splits.items()},
        sizes=dict(zip(("smallest", "median", "largest"), three, strict=False)),
        classes=names,
        counted="train" if splits.get("train") else "all images",
        pixels=train_pixels,
        unlabelled=sum(one.unlabelled for one in in_train),
        eta=eta,
        weights=weights,
        weighting=str(weighting),
        findings=tuple(one._replace(place=one.place.removeprefix(inside)) for one in found),
        reading=zero_in_words(everything, checks),
    )


def quick_check(
    dataset: PairedDataset, *, training: bool = True, notify: Notify = lambda note: None
) -> None:
    """Read what takes about a second; UserError if training would go wrong.

    Sizes from the headers of up to 2000 pairs, contents of up to 16 label maps, evenly spaced.
    training=False: values 0 and 255 alone are fine; a few photographs may show one class. notify:
    called with what is worth knowing and no error.
    """

    def spaced(most: int) -> list[FilePair]:
        count = min(most, len(dataset.pairs))
        return [dataset.pairs[index * len(dataset.pairs) // count] for index in range(count)]

    decoded = set(spaced(DECODED))

    def read(pair: FilePair) -> SampleCheck:
        check = SampleCheck(pair.image, pair.labels)
        check.read_headers(dataset)
        if pair in decoded:
            check.read_labels(dataset)
        return check

    checks = in_parallel(read, spaced(HEADERS))
    values = list(value_findings(dataset, checks, training=training, sampled=True))
    values += findings.palette_findings(dataset, checks)
    _raise_first(checks, values)
    for note in _notes(values):
        notify(note)


def count_pixels(dataset: SegmentationDataset, *, training: bool = False) -> tuple[int, ...]:
    """Count the labelled pixels of each class; UserError names the first bad label map.

    training: these images are all that training will see.
    """
    if not isinstance(dataset, PairedDataset):  # generated: no files, no findings
        numbers = range(len(dataset))
        drawn = in_parallel(
            lambda at: LabelStatistics.of(dataset[at].labels), numbers, workers=dataset.threads
        )
        return sum_pixels(drawn, dataset.classes)
    checks = check_pairs(dataset, dataset.pairs, labels_only=True)
    _raise_first(checks, value_findings(dataset, checks, training=training))
    return sum_pixels(_statistics_of(dataset.pairs, checks), dataset.classes)


def require_labelled(dataset: PairedDataset, what: str) -> None:
    """Raise a UserError where no pixel is labelled; all are read only if a few show none."""
    few = dataset.subset(range(0, len(dataset), max(1, len(dataset) // DECODED)))
    if not any(count_pixels(few)) and not any(count_pixels(dataset)):
        raise _unlabelled(dataset, what)


def _unlabelled(dataset: PairedDataset, what: str) -> UserError:
    remedy = "label some, or take others: a score would say nothing"
    return UserError(dataset.root, f"no pixel of the {what} images is labelled", remedy)


def require_valid(
    parts: Sequence[Part],
    *,
    test: PairedDataset | None = None,
    training: bool = True,
    progress: Progress | None = None,
    notify: Notify = lambda note: None,
) -> Pixels:
    """Raise the first error that check_data would find; return the pixels of each class.

    All parts are of one dataset. test: the test images of a training, none of which may be in a
    part; they are not checked otherwise. training: unexplained masks of 0 and 255 are an error; a
    few images to evaluate may show one class. notify: called with what is worth knowing and no
    error.
    """
    file = _cache_file(parts, test, training)
    with suppress(OSError, ValueError, TypeError):  # not there; or torn, and then it is read again
        if file is not None:
            counted, notes = json.loads(file.read_text(encoding="utf-8"))
            pixels = tuple(tuple(int(count) for count in part) for part in counted)
            if len(pixels) == len(parts):
                for note in notes:
                    notify(str(note))
                return pixels
    data, test_pairs = parts[0].data, [] if test is None else list(dict.fromkeys(test.pairs))
    splits: dict[str, list[FilePair]] = {}
    for part in parts:
        named = splits.setdefault(part.split, [])
        before = set(named)  # two parts of one split may share: each is checked by itself
        named += [pair for pair in part.data.pairs if pair not in before]
    pairs = list(chain(*splits.values()))
    checks = check_pairs(data, pairs, (pair.image for pair in test_pairs), progress=progress)
    if test_pairs:
        splits["test"] = test_pairs
    pixels = tuple(
        sum_pixels(_statistics_of(part.data.pairs, checks), data.classes) for part in parts
    )
    names = data.classes or tuple(map(str, range(len(pixels[0]))))
    values = list(value_findings(data, checks, training=training))
    values += findings.palette_findings(data, checks)
    values += band_findings(data, checks)
    overlap = list(findings.overlap_findings(splits, checks))
    more = [*values, *findings.duplicate_findings(data.root, splits, checks)]
    if training:
        in_train = _statistics_of(parts[0].data.pairs, checks)
        more += findings.class_findings(data, names, pixels[0], pixels[0], in_train)
    for part, counts in zip(parts, pixels, strict=True):
        if not any(counts) and not (training and part is parts[0]):  # said by class_findings
            error = _unlabelled(part.data, "validation" if training else "evaluation")
            more.append(Finding.from_error(error))
    _raise_first(checks, more)
    notes = _notes([*values, *overlap])
    for note in notes:
        notify(note)
    if file is not None:
        with suppress(OSError):  # a full disk, another user's folder: read again next time
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps([pixels, notes]), durable=False)
    return pixels


def _raise_first(checks: Iterable[SampleCheck], more: Iterable[Finding]) -> None:
    """Raise the first error that there is, with the number of other files that have some.

    What is wrong with photographs that were read for comparison alone (no label map) is left out.
    """
    own = chain(*(check.findings for check in checks if check.labels is not None))
    errors = [one for one in chain(own, more) if one.severity == "error"]
    if errors:
        first, rest = errors[0], len({error.place for error in errors}) - 1
        count = plural(rest, "more file")
        others = f" (and {count}; `scaseg data check` lists all)" if rest else ""
        raise UserError(first.place, first.problem, first.remedy + others, first.detail)


def _notes(found: Iterable[Finding]) -> list[str]:
    return [f"note: {one}" for one in found if one.severity == "warning"]


def _statistics_of(
    pairs: Iterable[FilePair], checks: Iterable[SampleCheck]
) -> list[LabelStatistics]:
    found = {check.labels: check.statistics for check in checks}
    return [one for pair in pairs if (one := found.get(pair.labels)) is not None]


def _cache_file(parts: Sequence[Part], test: PairedDataset | None, training: bool) -> Path | None:
    """Return the file that says that these very files are valid; None: there is no cache."""
    root = user_cache()
    if root is None:
        return None

    def stamp(path: Path) -> bytes:  # changes with every write: also inode and its time
        at = os.stat(on_disk(path))
        name = os.path.abspath(path)
        return repr((name, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)).encode()

    digest = hashlib.sha256(repr((VERSION, PIL.__version__, training)).encode())
    try:
        for split, data in parts:
            options = sorted(data.label_map.items()), data.reduce_zero_label, data.ignore_index
            kind = type(data).__name__, data.max_pixels, data.bands, data.dtype
            said = split, *kind, data.classes, options
            digest.update(repr(said).encode())
            for pair in data.pairs:
                digest.update(stamp(pair.image) + stamp(pair.labels))
        for pair in [] if test is None else test.pairs:
            digest.update(b"test" + stamp(pair.image))
    except OSError:  # a file that went away
        return None
    return root / "sound" / f"{digest.hexdigest()}.json"
