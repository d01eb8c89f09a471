"""Repairs of a dataset, written as a new folder with a manifest; the source is never touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.image import turn
from scaseg.data.folders.pairs import FilePair, Listing
from scaseg.data.prepare import Prepared, require_outside, write_folder
from scaseg.data.sample import IGNORE, Sample
from scaseg.data.validation.check import Reading, read_data
from scaseg.data.validation.samples import SampleCheck
from scaseg.data.validation.values import value_findings
from scaseg.errors import UserError
from scaseg.io.lock import folder_lock
from scaseg.io.paths import check_folder, shown
from scaseg.io.table import Row, write_rows
from scaseg.progress import Progress

MANIFEST = "manifest.csv"
KEPT_FIRST = ("test", "val")  # where a copy stays: the figures of a test remain comparable


@dataclass(frozen=True)
class Repairs:
    """What `fix` may do.

    resize_labels: a label map of its photograph's shape, but another size, by nearest neighbour.
    turn_labels: a label map that lacks the rotation of its photograph's EXIF, as its size shows.
    turn_all_labels: also where that rotation changes no size; only a person can see whether it is
        lacking there.
    drop_duplicates: of a photograph in two splits, pixel for pixel, keep one, in test, else val,
        else the first.
    drop_broken: leave out pairs that cannot be read or do not fit, and names without a file.
    merge: new class name -> the classes that become it. ignore: classes to be unlabelled.
    """

    resize_labels: bool = True
    turn_labels: bool = True
    drop_duplicates: bool = True
    drop_broken: bool = True
    turn_all_labels: bool = False
    merge: Mapping[str, Sequence[str]] | None = None
    ignore: Sequence[str] = ()


class Fixed(NamedTuple):
    """What was written, and the rows of the manifest: what was done to which file."""

    written: Prepared
    manifest: list[Row]


def fix(
    dataset_class: type[PairedDataset],
    source: str | Path,
    destination: str | Path,
    repairs: Repairs | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Fixed:
    """Write a repaired copy of a dataset as a plain folder, and DST/manifest.csv.

    Everything is read first; UserError, and nothing written, where a problem is none that the
    repairs mend. Photographs are copied byte for byte. options: of `PairedDataset`.
    """
    repairs = repairs or Repairs()
    folder = Path(destination)
    check_folder("DST", folder)
    require_outside(Path(source), folder)
    reading = read_data(dataset_class, source, workers=workers, progress=progress, **options)
    classes, table, merged = _merge_classes(reading, repairs)
    rows = _Manifest(shown(reading.dataset.root))
    for error in reading.problems:
        if not repairs.drop_broken:
            raise error
        rows.add("left out", error.place, f"{error.problem} {error.detail}".strip())
    # a copy has names: what is a mistake where there are none must be seen before
    unnamed = reading.dataset.classes is None
    for finding in value_findings(reading.dataset, reading.checks, training=unnamed):
        if finding.severity == "error":
            raise UserError(finding.place, finding.problem, finding.remedy, finding.detail)
    checks = {check.image: check for check in reading.checks}
    actions = {image: _action(check, repairs, rows) for image, check in checks.items()}
    splits = {
        split: [pair for pair in dict.fromkeys(pairs) if actions[pair.image] is not None]
        for split, pairs in reading.splits.items()
    }
    if repairs.drop_duplicates:
        splits = _without_duplicates(splits, checks, rows)
    for name, into in merged:
        rows.add("class", name, into)
    settings = {key: str(value) for key, value in vars(repairs).items()}
    marker = {"dataset": dataset_class.__name__, "source": str(Path(source).resolve())}
    parts: dict[str | None, Any] = {
        None if split == "all images" else split: _Repaired(
            reading.dataset, pairs, {k: v for k, v in actions.items() if v}, classes, table
        )
        for split, pairs in splits.items()
    }
    record = {**marker, "classes": list(classes), "repairs": settings}
    nothing = [{"action": "", "file": "", "detail": "nothing to mend"}]
    with folder_lock(folder, "DST"):
        written = write_folder(parts, folder, record, workers=workers or 4, progress=progress)
        write_rows(folder / MANIFEST, rows.rows or nothing)
    return Fixed(written, rows.rows)


class _Manifest:
    """Rows of what was done; files are named as they lie in the dataset."""

    def __init__(self, root: str) -> None:
        self.root, self.rows = f"{root}/", list[Row]()

    def add(self, action: str, place: str | Path, detail: str) -> None:
        name = shown(place).removeprefix(self.root)
        self.rows.append({"action": action, "file": name, "detail": detail})


def _action(check: SampleCheck, repairs: Repairs, rows: _Manifest) -> str | None:
    """Decide on one pair: "" to copy it, "turn", "resize", or None to leave it out."""
    assert check.labels is not None
    if check.size is not None and check.label_size is not None and check.statistics is not None:
        size, labels = check.size, check.label_size
        sides = "{} x {} to {} x {}".format(*labels, *size)
        if size == labels and not (check.may_be_unturned and repairs.turn_all_labels):
            return ""
        if size == labels:
            rows.add("turned", check.labels, "as EXIF turns its photograph")
            return "turn"
        if check.is_unturned:
            if repairs.turn_labels:
                rows.add("turned", check.labels, sides)
                return "turn"
        elif check.is_scaled and repairs.resize_labels:
            rows.add("resized", check.labels, sides)
            return "resize"
    finding = next(one for one in check.findings if one.severity == "error")
    if not repairs.drop_broken:
        raise UserError(finding.place, finding.problem, finding.remedy, finding.detail)
    rows.add("left out", finding.place, f"{finding.problem} {finding.detail}".strip())
    return None


def _without_duplicates(
    splits: Mapping[str, Sequence[FilePair]], checks: Mapping[Path, SampleCheck], rows: _Manifest
) -> dict[str, list[FilePair]]:
    """Leave out of each split the photographs that another one keeps, by their pixels."""
    order = sorted(splits, key=lambda split: (*KEPT_FIRST, split).index(split))
    home: dict[Any, tuple[str, Path]] = {}
    kept: dict[str, list[FilePair]] = {split: [] for split in splits}  # in the dataset's order
    for split in order:
        for pair in splits[split]:
            key = checks[pair.image].digest or pair.image
            where, image = home.setdefault(key, (split, pair.image))
            # trainval is train and val on purpose
            if where == split or (split == "trainval" and where != "test"):
                kept[split].append(pair)
            else:
                rows.add("left out", pair.image, f"of {split}: a copy of {image.name} in {where}")
    return kept


def _merge_classes(
    reading: Reading, repairs: Repairs
) -> tuple[tuple[str, ...], NDArray[np.int32], list[tuple[str, str]]]:
    """Return the new names, the new class of each old one, and what became of which class."""
    found = [label for one in reading.checks if one.statistics for label in one.statistics.pixels]
    names = reading.dataset.classes
    if names is None and not found:
        place = shown(reading.dataset.root)
        raise UserError(place, "no pixel is labelled", "label some, or repair the label maps")
    names = tuple(f"class {label}" for label in range(max(found) + 1)) if names is None else names
    target = {name: name for name in names}
    wanted = [(name, into) for into, group in (repairs.merge or {}).items() for name in group]
    changes: list[tuple[str, str]] = []
    for given, into in (*wanted, *((name, "") for name in repairs.ignore)):
        option = "--merge" if into else "--ignore"
        name = given if given in target else given.strip()
        if name not in target:
            raise UserError.choice(option, name, names)
        if target[name] not in (name, into):
            raise UserError(option, f"{name} is named twice", "give each class one target")
        target[name] = into
        changes.append((name, into))
    new = tuple(dict.fromkeys(into for into in target.values() if into))
    if not new:
        raise UserError("--ignore", "all classes are ignored", "keep at least one")
    table = np.full(IGNORE + 1 if len(names) <= IGNORE else len(names), IGNORE, np.int32)
    for label, into in enumerate(target.values()):
        table[label] = new.index(into) if into else IGNORE
    shown_changes = [(name, f"becomes {into}" if into else "unlabelled") for name, into in changes]
    return new, table, shown_changes


class _Repaired(PairedDataset):
    """Pairs of a dataset with their repairs applied on reading."""

    def __init__(
        self,
        dataset: PairedDataset,
        pairs: list[FilePair],
        actions: Mapping[Path, str],
        classes: tuple[str, ...],
        table: NDArray[np.int32],
    ) -> None:
        self.__dict__.update(vars(dataset))
        self._dataset, self._actions, self._table = dataset, actions, table
        self.pairs, self.classes, self.problems, self.palette = pairs, classes, [], None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return ()

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        return [], []

    def __getitem__(self, index: int) -> Sample:
        image_path, label_path, name = self.pairs[index]
        image = self.read_image(image_path)
        labels = self._table[self._dataset.read_labels(label_path)]
        action = self._actions.get(image_path)
        if action == "turn":
            labels = turn(labels, self._dataset.image_orientation(image_path))
        elif action == "resize":
            size = image.shape[1], image.shape[0]
            resized = Image.fromarray(labels).resize(size, Image.Resampling.NEAREST)
            labels = np.asarray(resized)
        return Sample(image, labels, name)
