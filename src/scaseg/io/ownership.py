"""Whose files are: results of ours may be replaced; photographs, label maps and models never."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG, RECIPE, WEIGHTS
from scaseg.io.paths import open_regular

MARK = "made by scaseg"  # in the metadata of every result that a command may replace
CONFUSION = "truth \\ prediction"  # how confusion.csv begins: a table has no metadata
SEARCHED = 1 << 16  # bytes at either end of a file: PNG and JPEG say it first, PDF and zip last
RECORD = ".scaseg.json"  # of `predict`, in the folder of its results
RUN_PARTS = ("environment.json", "checkpoints", "runs")  # beside a recipe: of a run, a comparison

# what the folders of a dataset are called, in lower case: those of photographs, of label maps
PHOTOGRAPHS = {"images", "image", "imgs", "img", "img_dir", "jpegimages", "leftimg8bit", "rgb"}
PHOTOGRAPHS |= {"train", "val", "test"}
LABEL_MAPS = {"labels", "label", "masks", "mask", "ann_dir", "annotations", "annotation", "gt"}
LABEL_MAPS |= {"gtfine", "gtcoarse", "segmentationobject", "semanticlabels", "geolabels"}


def is_ours(path: Path) -> bool:
    """Whether a file is a result of ours: it says so itself, at its beginning or its end."""
    with open_regular(path) as file:
        ends = file.read(SEARCHED)
        file.seek(max(0, os.fstat(file.fileno()).st_size - SEARCHED))
        ends += file.read()
    return any(mark.encode() in ends for mark in (MARK, CONFUSION))


def check_replaceable(path: Path) -> None:
    """Refuse to replace a file that no command of ours made."""
    if os.path.lexists(path) and not (os.path.isfile(path) and is_ours(path)):
        remedy = "only results are replaced: give another place"
        raise UserError(path, "was not made by scaseg", remedy)


def check_destination(option: str, folder: str | Path) -> None:
    """Refuse to write results into a model, a run, or the folders of a dataset."""
    folder = Path(folder)
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    with located(option):
        if {CONFIG, WEIGHTS} <= names:
            raise UserError(folder, "holds a model", "give a folder of its own")
        if is_run(names):
            raise UserError(folder, "holds a run", f"give a folder of its own: {folder}/results")
        if all(name.startswith(".") for name in names) or RECORD in names:
            return  # empty, or results of ours, each of which is marked
        place = Path(os.path.abspath(folder))
        for root in (place, place.parent, place.parent.parent):
            photographs, labels = dataset_folders(subfolders(root))
            within = place.relative_to(root).parts
            if photographs and (not within or within[0] in photographs | labels):
                raise UserError(folder, f"belongs to the dataset {root}", "give another folder")


def is_run(names: Iterable[str]) -> bool:
    """Whether the names in a folder are those of a run or a comparison, begun at least.

    A recipe alone is not: users keep theirs where they like.
    """
    there = set(names)
    return RECIPE in there and not there.isdisjoint(RUN_PARTS)


def dataset_folders(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Which of the sub-folders of a folder hold photographs, and which their label maps.

    Both are empty where one kind is missing: then it is not known to be a dataset.

    >>> photographs, labels = dataset_folders(["JPEGImages", "SegmentationClass", "ImageSets"])
    >>> photographs, labels
    ({'JPEGImages'}, {'SegmentationClass'})
    """
    photographs, labels = set(), set()
    for name in names:
        lower = name.lower()
        if lower in PHOTOGRAPHS:
            photographs.add(name)
        elif (
            lower in LABEL_MAPS
            or lower.startswith("segmentationclass")  # VOC's, Aug, Context
            or lower.endswith(("_labels", "_masks", "annot"))  # train_labels, trainannot
        ):
            labels.add(name)
    return (photographs, labels) if photographs and labels else (set(), set())


def subfolders(folder: str | Path) -> list[str]:
    """The names of the folders in a folder; none where it cannot be looked into."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []
