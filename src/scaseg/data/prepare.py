"""Turning a data set, once, into our folder form: images/, labels/, classes.txt and lists."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.context_scenes import VERSION, ContextScenes
from scaseg.data.datasets.paired import PairedDataset
from scaseg.io.atomic import take_place

MARKER = ".scaseg-prepare.json"  # whose folder this is: the data set, its source, its classes
OURS = ("images", "labels", "classes.txt", "train.txt", "val.txt", "test.txt")
SHOWN = 20  # problems in one message
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82"


class Prepared(NamedTuple):
    """How many photographs each split has; how many pairs were written, and were there already."""

    splits: dict[str, int]
    copied: int
    skipped: int


@dataclass(frozen=True)
class _Task:
    data: SegmentationDataset
    index: int
    source: Path | None  # the photograph; None: it is generated
    image: Path  # where the photograph goes
    labels: Path  # where the label map goes


def prepare(
    dataset: type[PairedDataset] | type[ContextScenes],
    source: str | Path | None,
    destination: str | Path,
    *,
    workers: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Prepared:
    """Copy photographs and write label maps as 8-bit PNGs, 255 unlabelled; FolderDataset reads it.

    What an interrupted run left is kept: each file appears whole or not at all, and classes.txt
    and the lists come last, so that a folder with lists is complete. Faults of single files are
    gathered; all others are prepared, and one ValueError lists the faults. progress is called
    with the pairs done and all pairs. Generated scenes have no source: None.
    """
    destination = Path(destination)
    if workers < 1:
        raise ValueError(f"workers: {workers}; one or more threads are needed")
    parts = _parts(dataset, source, destination)
    splits = [split for split in parts if split is not None]
    classes = next(iter(parts.values())).classes
    _claim(destination, dataset, source, classes)

    tasks = list(_tasks(parts.values(), destination))
    missing = [task for task in tasks if not _is_whole(task)]
    problems = [
        str(problem)
        for data in parts.values()
        if isinstance(data, PairedDataset)
        for problem in data.problems
    ]
    problems += [f"{source}: {split} has no pair" for split in parts if not len(parts[split])]
    lists = [destination / "classes.txt", *(destination / f"{split}.txt" for split in splits)]
    if missing or problems:
        for path in lists:
            path.unlink(missing_ok=True)  # the folder is not complete, whatever it was before
    problems += _write_all(missing, len(tasks), workers, progress)
    if problems:
        rest = len(problems) - SHOWN
        more = [f"and {rest} more"] if rest > 0 else []
        raise ValueError(
            "\n".join(
                [
                    f"{source}: {len(problems)} problems; mend them and prepare again, what is "
                    f"done in {destination} is kept",
                    *problems[:SHOWN],
                    *more,
                ]
            )
        )
    if classes is not None:
        _write_text(lists[0], "".join(f"{name}\n" for name in classes))
    for split, path in zip(splits, lists[1:], strict=True):
        _write_text(path, "".join(f"{name}\n" for name in parts[split].names))
    counts = {split or "all": len(data) for split, data in parts.items()}
    return Prepared(counts, copied=len(missing), skipped=len(tasks) - len(missing))


def _parts(
    dataset: type[PairedDataset] | type[ContextScenes],
    source: str | Path | None,
    destination: Path,
) -> dict[str | None, SegmentationDataset]:
    """Open every split, or all pairs where there is none."""
    if issubclass(dataset, ContextScenes):
        return {split: dataset(split) for split in dataset.splits()}
    assert source is not None
    source = Path(source)
    if destination.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{destination}: lies inside the data set {source}; give another folder")
    if not source.is_dir():
        raise ValueError(f"{source}: no such folder")
    splits = dataset.splits(source) or (None,)
    return {split: dataset(source, split, strict=False) for split in splits}


def _claim(
    destination: Path,
    dataset: type[SegmentationDataset],
    source: str | Path | None,
    classes: tuple[str, ...] | None,
) -> None:
    """Mark the destination as this data set's; ValueError where it is another's."""
    marker = destination / MARKER
    mine = {
        "dataset": dataset.__name__,
        "source": f"generated, version {VERSION}"
        if source is None
        else str(Path(source).resolve()),
        "classes": None if classes is None else list(classes),
    }
    if destination.exists() and not destination.is_dir():
        raise ValueError(f"{destination}: is a file; give a folder")
    if marker.is_file():
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except (OSError, ValueError) as fault:
            raise ValueError(f"{marker}: cannot be read ({fault}); give a new folder") from fault
        if found != mine:
            named = found if isinstance(found, dict) else {}
            raise ValueError(
                f"{destination}: holds {named.get('dataset')} prepared from "
                f"{named.get('source')}, or by another version; give a new folder"
            )
        return
    taken = [name for name in OURS if (destination / name).exists()]
    if taken:
        raise ValueError(
            f"{destination}: has {', '.join(taken)} that were not prepared here; give a new folder"
        )
    destination.mkdir(parents=True, exist_ok=True)
    _write_text(marker, json.dumps(mine, indent=1))


def _tasks(parts: Iterable[SegmentationDataset], destination: Path) -> Iterator[_Task]:
    seen = set()
    for data in parts:
        for index, name in enumerate(data.names):
            if name not in seen:  # a list may repeat a name; two threads must not write one file
                seen.add(name)
                source = data.pairs[index].image if isinstance(data, PairedDataset) else None
                yield _Task(
                    data,
                    index,
                    source,
                    destination / "images" / f"{name}{'.png' if source is None else source.suffix}",
                    destination / "labels" / f"{name}.png",
                )


def _is_whole(task: _Task) -> bool:
    """Whether both files are there, to their last byte."""
    try:
        if task.source is None:
            return _is_png(task.image) and _is_png(task.labels)
        return task.image.stat().st_size == task.source.stat().st_size and _is_png(task.labels)
    except OSError:
        return False


def _is_png(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(len(PNG_START))
        file.seek(-len(PNG_END), os.SEEK_END)
        return start == PNG_START and file.read() == PNG_END


def _write_all(
    tasks: list[_Task], total: int, workers: int, progress: Callable[[int, int], None] | None
) -> list[str]:
    """Write the pairs of all tasks; return what is wrong with single ones, in their order."""
    done = total - len(tasks)
    if progress:
        progress(done, total)
    pool = ThreadPoolExecutor(workers)
    try:
        futures: list[Future[str | None]] = [pool.submit(_write_pair, task) for task in tasks]
        for future in as_completed(futures):
            future.result()  # a disk that is full ends it all
            done += 1
            if progress:
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)  # on Ctrl-C: what has begun is finished, no more
    return [problem for future in futures if (problem := future.result())]


def _write_pair(task: _Task) -> str | None:
    """Write a pair; return what is wrong with it in the source, if anything is."""
    try:
        sample = task.data[task.index]  # with all checks: sizes, classes, torn files
        photograph = None if task.source is None else task.source.read_bytes()
    except (ValueError, OSError) as fault:
        return str(fault)
    low, high = sample.labels.min(), sample.labels.max()
    if low < 0 or high > 255:
        data = task.data
        place = data.pairs[task.index].labels if isinstance(data, PairedDataset) else sample.name
        return f"{place}: holds {low} to {high}; 8 bits hold 0 to 255"
    with _in_place_of(task.image) as partial:
        if photograph is None:
            Image.fromarray(sample.image).save(partial, format="PNG")
        else:
            partial.write_bytes(photograph)
    with _in_place_of(task.labels) as partial:
        Image.fromarray(sample.labels.astype("uint8")).save(partial, format="PNG")
    return None


def _write_text(path: Path, text: str) -> None:
    with _in_place_of(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """Give a temporary name beside a file, and put it in the file's place once it is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # always the same name: the next run writes over what a killed one left. Data sets pass over
    # names with a dot
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        take_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)
