"""Write any dataset once as a plain folder: images/, labels/, classes.txt and lists.

A format becomes readable, and so convertible, by a SegmentationDataset of its own in
data/datasets and a line in the registry; nothing here knows about formats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.datasets.context_scenes import VERSION
from scaseg.data.decode.bands import BAND_SUFFIXES
from scaseg.data.validation.samples import in_parallel
from scaseg.errors import UserError, WorkError, plural
from scaseg.io.atomic import remove_leftovers, whole_file, write_json, write_text
from scaseg.io.lock import folder_lock
from scaseg.io.paths import check_folder, on_disk, shown
from scaseg.progress import Progress
from scaseg.registry import DATASETS

MARKER = ".scaseg-prepare.json"  # what the folder holds: the dataset, its source, its classes
OURS = ("images", "labels", "classes.txt", "train.txt", "val.txt", "test.txt")
UNLABELLED_COLOR = (224, 224, 192)  # as in VOC's palette
PNG_END = b"\0\0\0\0IEND\xaeB`\x82"


class Prepared(NamedTuple):
    """The number of photographs of each split, of pairs written, and of those there before."""

    splits: dict[str, int]
    copied: int
    skipped: int
    notes: tuple[str, ...] = ()  # what the user should know: files left out, values replaced


class IncompleteError(WorkError):
    """Some samples could not be prepared, for the `problems`; all others were."""

    problems: list[UserError]


@dataclass(frozen=True)
class _Task:
    """A sample and the files to write; source: its photograph, None if it is generated."""

    data: SegmentationDataset
    index: int
    source: Path | None
    image: Path
    labels: Path


def prepare(
    dataset: type[SegmentationDataset],
    source: str | Path | None,
    destination: str | Path,
    *,
    workers: int = 4,
    progress: Progress | None = None,
    **settings: Any,
) -> Prepared:
    """Copy photographs and write label maps as 8-bit PNGs, 255 unlabelled, for FolderDataset.

    An interrupted run continues: each file appears whole or not at all, and classes.txt and the
    lists are written last, so a folder with lists is complete. Samples with errors are skipped,
    and an IncompleteError collects them at the end. progress: called with the number of pairs done
    and of all. source: None for generated scenes. settings: of the dataset, such as label_map.
    """
    destination = Path(destination)
    check_folder("DST", destination)
    if workers < 1:
        raise UserError("workers", str(workers), "one or more threads are needed")
    root = None if source is None else Path(source)
    parts = open_splits(dataset, root, destination, **settings)
    classes = next(iter(parts.values())).classes
    made_from = f"generated, version {VERSION}" if root is None else str(root.resolve())
    named = None if classes is None else list(classes)
    mine: dict[str, Any] = {"dataset": dataset.__name__, "source": made_from, "classes": named}
    if options := {name: one for name in dataset.options if (one := vars(dataset).get(name))}:
        mine["options"] = options
    if settings:
        mine["settings"] = {name: repr(value) for name, value in settings.items()}
    with folder_lock(destination, "DST"):
        return write_folder(parts, destination, mine, workers=workers, progress=progress)


def open_splits(
    dataset: type[SegmentationDataset], root: Path | None, destination: Path, **options: Any
) -> dict[str | None, SegmentationDataset]:
    """Open all splits of a dataset, None where it has none; options: of PairedDataset."""
    if root is not None:
        require_outside(root, destination)
    opened: Any = dataset  # generated ones need no folder
    return {
        split: opened(split) if root is None else opened(root, split, strict=False, **options)
        for split in dataset.splits(root) or (None,)
    }


def require_outside(source: Path, destination: Path) -> None:
    """Raise a UserError if a dataset would be written into its own source."""
    if destination.resolve().is_relative_to(source.resolve()):
        inside = destination.resolve() != source.resolve()
        problem = f"lies inside the dataset {source}" if inside else "is the dataset itself"
        raise UserError(destination, problem, "give another folder")


def write_folder(
    parts: Mapping[str | None, SegmentationDataset],
    destination: Path,
    record: dict[str, Any],
    *,
    workers: int = 4,
    progress: Progress | None = None,
) -> Prepared:
    """Write the samples of each split (None: no splits) as `prepare` says.

    record: what the folder will hold; one that holds something else is refused. The caller has
    locked the folder.
    """
    classes, source = next(iter(parts.values())).classes, record["source"]
    _claim(destination, record)
    tasks: dict[str, _Task] = {}
    problems = [problem for data in parts.values() for problem in data.problems]
    for data in parts.values():
        for index, name in enumerate(data.names):
            photo = data.pairs[index].image if isinstance(data, PairedDataset) else None
            image = destination / "images" / f"{name}{'.png' if photo is None else photo.suffix}"
            task = _Task(data, index, photo, image, destination / "labels" / f"{name}.png")
            first = tasks.setdefault(name, task)  # a list may repeat it: two threads, one file
            if photo != first.source:
                what = f"{shown(str(first.source))} has the same name"
                problems.append(UserError(str(photo), what, "rename one of them"))
    for folder in {path.parent for task in tasks.values() for path in (task.image, task.labels)}:
        remove_leftovers(folder)
    missing = [task for task in tasks.values() if not _is_whole(task)]
    skipped = len(tasks) - len(missing)
    empty = [split for split, data in parts.items() if not len(data)]
    problems += [
        UserError(source, f"{split} has no pair" if split else "has no pair") for split in empty
    ]
    lists: dict[str, Sequence[str]]
    # the end of x.jpg, from x.jpg.jpg, would be read as its suffix
    lines_of = {
        name: f"{name}{task.image.suffix}" if name.lower().endswith(BAND_SUFFIXES) else name
        for name, task in tasks.items()
    }
    lists = {
        f"{split}.txt": [lines_of[name] for name in part.names]
        for split, part in parts.items()
        if split is not None
    }
    if classes is not None:
        lists = {"classes.txt": classes, **lists}
    if missing or problems:  # the folder is not complete, whatever it was before
        for name in ("classes.txt", *lists):
            (destination / name).unlink(missing_ok=True)
    if progress:
        progress(skipped, len(tasks))
    written = in_parallel(
        _write_pair,
        missing,
        workers=workers,
        progress=progress and (lambda done, _: progress(skipped + done, len(tasks))),
    )
    problems += [problem for problem in written if problem is not None]
    if problems:
        remedy = f"prepare again when that is mended, what is done in {destination} is kept"
        error = IncompleteError(source, plural(len(problems), "problem"), remedy)
        error.problems = problems
        raise error
    for name, lines in lists.items():
        write_text(destination / name, "".join(f"{line}\n" for line in lines))
    counts = {split or "all": len(data) for split, data in parts.items()}
    notes = dict.fromkeys(note for data in parts.values() for note in data.notes)
    return Prepared(counts, len(missing), skipped, tuple(notes))


def _claim(destination: Path, mine: dict[str, Any]) -> None:
    """Mark the destination as this dataset's; UserError if it holds something else.

    One that was marked, but got no pair yet, is free: every label map was refused.
    """
    marker = destination / MARKER
    if marker.is_file():
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
            what = f"holds {_format(found['dataset'])} prepared from {found['source']}"
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError.cannot_be("read", marker, error, "give a new folder") from error
        if found == mine:
            return
        if any(_has_files(destination / name) for name in OURS):
            problem = f"{what}, with other options or by another version"
            raise UserError(destination, problem, "give a new folder")
        write_json(marker, mine)
        return
    if taken := [name for name in OURS if (destination / name).exists()]:
        what = f"has {', '.join(taken)} that were not prepared here"
        raise UserError(destination, what, "give a new folder")
    destination.mkdir(parents=True, exist_ok=True)
    write_json(marker, mine)


def _has_files(path: Path) -> bool:
    """Whether something is a file, or a folder with files at any depth."""
    return path.is_file() or any(files for _, _, files in os.walk(path))


def _format(dataset: str) -> str:
    """The name of a format by the name of its class, as markers have it."""
    return next((name for name, one in DATASETS.items() if one.__name__ == dataset), dataset)


def _is_whole(task: _Task) -> bool:
    """Return whether both files are there, to their last byte, and no older than their source."""

    def has_end(png: Path) -> bool:
        with png.open("rb") as file:
            file.seek(-len(PNG_END), os.SEEK_END)
            return file.read() == PNG_END

    try:
        if not isinstance(task.data, PairedDataset):
            return has_end(task.image) and has_end(task.labels)
        image, labels, _ = task.data.pairs[task.index]
        for ours, theirs in ((task.image, image), (task.labels, labels)):
            if ours.stat().st_mtime_ns < on_disk(theirs).stat().st_mtime_ns:
                return False
        # of a photograph in another file: what is there is whole
        is_copy = on_disk(image) != image or task.image.stat().st_size == image.stat().st_size
        return is_copy and has_end(task.labels)
    except OSError:
        return False


def _write_pair(task: _Task) -> UserError | None:
    """Write a pair, or return what is wrong with it in the source."""
    try:
        sample = task.data[task.index]  # with all checks: sizes, classes, torn files
        photograph = None
        if task.source is not None and isinstance(task.data, PairedDataset):
            photograph = task.data.read_photograph(task.source)
    except UserError as error:
        return error
    except OSError as error:
        return UserError.cannot_be("read", task.source or "", error, "check the disk")
    low, high = sample.labels.min(), sample.labels.max()
    if low < 0 or high > 255:
        what = f"has labels from {low} to {high}"
        return UserError(task.source or sample.name, what, "8 bits hold 0 to 255")
    for path in (task.image, task.labels):
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(task.image) as partial:
        if photograph is None:
            Image.fromarray(sample.image).save(partial, format="PNG")
        else:
            partial.write_bytes(photograph)
    labels = Image.fromarray(sample.labels.astype("uint8"))
    if task.data.palette is not None:
        # all 256: with fewer, Pillow saves fewer bits, and 255 would become a class
        colors = [*task.data.palette, *[UNLABELLED_COLOR] * (256 - len(task.data.palette))]
        labels.putpalette([level for color in colors for level in color])
    with whole_file(task.labels) as partial:
        labels.save(partial, format="PNG")
    return None
