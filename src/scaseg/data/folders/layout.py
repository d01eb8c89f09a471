"""Which folders of a dataset hold photographs and label maps, and of which split.

Recognized by name, in any case: images/ + labels/ (or masks/, annotations/, ...), with or without
a folder for each split inside; train/images/ + train/labels/; train/ + train_labels/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Literal, NamedTuple

from scaseg.errors import UserError
from scaseg.io.paths import shown

SPLITS = ("train", "val", "test")
PREFERRED = ("img_dir", "ann_dir", "images", "labels")  # where other folders may hold the same
MMSEG = PREFERRED[:2]  # every folder in them is a split, whatever its name
SHOWN = 6  # names of what a folder holds, in a message

Role = Literal["images", "labels"]
_SPLIT = r"(?P<split>train|val|test)(?:ing|id|idation)?(?:(?:19|20)\d\d)?"
_ROLE = (
    r"(?:(?P<images>images?|imgs?|img_dir|photos?|photographs?|pictures?)"
    r"|(?P<labels>labels?|label_?maps?|masks?|ann(?:ot(?:ation)?)?s?|ann_dir|gts?"
    r"|ground_?truths?|targets?))"
)
_NAMES = [re.compile(rf"(?:{_SPLIT})?[ _.-]?{_ROLE}?", re.IGNORECASE)]  # train, train_masks, masks
_NAMES += [re.compile(rf"{_ROLE}[ _.-]{_SPLIT}", re.IGNORECASE)]  # masks_train
_MARKED = re.compile(rf"{_ROLE}(?P<mark>(?:[ _.-].+)?)", re.IGNORECASE)  # images_png

# folders of published datasets, whose own classes read them
PUBLISHED: dict[str, Role] = {"jpegimages": "images", "leftimg8bit": "images"}
PUBLISHED |= dict.fromkeys(("gtfine", "gtcoarse", "semanticlabels", "geolabels"), "labels")
PUBLISHED |= dict.fromkeys(("v1.2", "v2.0"), "labels")  # of Mapillary Vistas
VOC = "segmentation"  # SegmentationClass, SegmentationObject, SegmentationClassAug, ...


class Place(NamedTuple):
    """The folders of some photographs and of their label maps; None where there are none."""

    images: Path
    labels: Path | None


class Layout(NamedTuple):
    """The folders of a dataset: of all of it where one pair of folders holds it; of each split."""

    whole: Place | None
    splits: dict[str, Place]

    @property
    def all(self) -> list[Place]:
        """Every pair of folders."""
        return [*self.splits.values(), *([] if self.whole is None else [self.whole])]


def split_of(name: str) -> str | None:
    """Return the split that a file or folder is named after.

    >>> split_of("Validation"), split_of("train2017"), split_of("seq01")
    ('val', 'train', None)
    """
    split, role = _parse(name)
    return split if role is None else None


def split_in(name: str) -> str | None:
    """Return the split that a word of a name says, if the others say no other.

    >>> split_in("instances_val2017"), split_in("valid"), split_in("result")
    ('val', 'val', None)
    """
    found = {split_of(word) for word in re.findall("[A-Za-z0-9]+", name)} - {None}
    return found.pop() if len(found) == 1 else None


def marked_role(name: str) -> tuple[Role, str] | None:
    """Return the role that a folder's name begins with, and the mark after it.

    >>> marked_role("Images"), marked_role("masks_png"), marked_role("maskset")
    (('images', ''), ('labels', '_png'), None)
    """
    match = _MARKED.fullmatch(name)
    return match and ("images" if match["images"] else "labels", match["mark"].lower())


def in_order(found: Iterable[str | None]) -> tuple[str, ...]:
    """Return splits in their usual order, others after them; None is none.

    >>> in_order(["test", "extra", "val", "train", None])
    ('train', 'val', 'test', 'extra')
    """
    rest = {split for split in found if split is not None}
    return (*(split for split in SPLITS if split in rest), *sorted(rest.difference(SPLITS)))


def find_layout(root: Path) -> Layout:
    """Look which folders of `root` hold what; UserError if two may hold the same."""
    folders = folders_in(root)
    images = only_one([one for one in folders if _parse(one.name) == (None, "images")])
    labels = only_one([one for one in folders if _parse(one.name) == (None, "labels")])
    if images is not None and labels is not None:
        inner = _alone(images), _with_splits(labels)
        if all(map(_inside, inner)):
            images, labels = inner
        return Layout(Place(images, labels), _match(_inside(images), _inside(labels), labels))
    found: dict[Role, list[tuple[str, Path]]] = {"images": [], "labels": []}
    for folder in folders:
        split, role = _parse(folder.name)
        if split is None:
            continue
        parts: list[tuple[Role, Path]] = [] if role is None else [(role, folder)]
        if role is None:
            inside = [(_parse(one.name), one) for one in folders_in(folder)]
            parts = [(kind, one) for (other, kind), one in inside if not other and kind]
            parts = parts or [("images", folder)]
        for role, one in parts:
            found[role].append((split, one))
    splits = _match(found["images"], found["labels"])
    if any(place.labels for place in splits.values()):
        return Layout(None, splits)
    return Layout(None if images is None else Place(images, None), {})


def contents(folder: Path) -> str:
    """Name what a folder holds, in a few words; empty if that is nothing."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: (not _is_folder(entry), entry.name))
    except OSError:
        return ""
    names = [one.name + "/" * _is_folder(one) for one in entries if not one.name.startswith(".")]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(shown, names[:SHOWN])) + more


def nearest_file(photograph: Path, labels: Path) -> str | None:
    """Return the file that seems to be a photograph's label map under another name: x_mask.png.

    Its name holds the photograph's, or alone shares the most words at its beginning.
    """
    stem = photograph.stem.casefold()
    whole = re.compile(rf"(?<![^\W_]){re.escape(stem)}(?![^\W_])")
    words = re.split(r"[\W_]+", stem)
    best: list[str] = []
    most = 0
    for place, folders, files in os.walk(labels):
        folders.sort()
        for file in sorted(files):
            other = file.rpartition(".")[0].casefold()
            path = Path(place, file).relative_to(labels).as_posix()
            if file.startswith("."):
                continue
            if whole.search(other):
                return path
            pairs = zip(words, re.split(r"[\W_]+", other), strict=False)
            shared = len(list(takewhile(lambda both: both[0] == both[1], pairs)))
            if shared > most:
                best, most = [], shared
            if shared and shared == most:
                best.append(path)
    return best[0] if len(best) == 1 else None


def dataset_folders(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Which of the folders in a folder hold photographs, and which their label maps.

    Both are empty where one kind is missing: then it is not known to be a dataset.

    >>> dataset_folders(["JPEGImages", "SegmentationClass", "ImageSets"])
    ({'JPEGImages'}, {'SegmentationClass'})
    >>> dataset_folders(["images_png", "masks_png", "masks_old"])
    ({'images_png'}, {'masks_png'})
    """
    names = list(names)
    found: dict[Role | None, set[str]] = {"images": set(), "labels": set(), None: set()}
    for name in names:
        split, role = _parse(name)
        role = role or ("images" if split else PUBLISHED.get(name.lower()))
        found["labels" if name.lower().startswith(VOC) else role].add(name)
    marked = {name: one for name in names if (one := marked_role(name))}
    for name, (role, mark) in marked.items():
        if len({other for other, its in marked.values() if its == mark}) > 1:
            found[role].add(name)
    is_dataset = found["images"] and found["labels"]
    return (found["images"], found["labels"]) if is_dataset else (set(), set())


def subfolders(folder: str | Path) -> list[str]:
    """The names of the folders in a folder; none where it cannot be looked into."""
    with suppress(OSError):
        return [one.name for one in folders_in(Path(folder))]
    return []


def _parse(name: str) -> tuple[str | None, Role | None]:
    """Return the split and the role that a folder's name says."""
    for pattern in _NAMES:
        if match := pattern.fullmatch(name):
            split, images = match["split"], match["images"]
            role: Role | None = "images" if images else "labels" if match["labels"] else None
            return split and split.lower(), role
    return None, None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder, in the order of their names."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if _is_folder(entry))


def _inside(folder: Path) -> list[tuple[str, Path]]:
    """Return the folders of splits in a folder of photographs or of label maps."""
    is_mmseg = folder.name.lower() in MMSEG
    named = [
        (split_of(one.name) or (one.name if is_mmseg else ""), one) for one in folders_in(folder)
    ]
    return [(split, one) for split, one in named if split]


def _alone(folder: Path) -> Path:
    """Return the folder of splits that all of a folder is in, or itself: images/10k."""
    inner = folder
    while not _inside(inner):
        entries = [one for one in inner.iterdir() if one.name[0] != "."]
        if len(entries) != 1 or not entries[0].is_dir():
            return folder
        inner = entries[0]
    return inner


def _with_splits(folder: Path) -> Path:
    """Return the only folder further in that has folders of splits: labels/sem_seg/masks.

    Of several, the one of label maps; the folder itself where that is not clear.
    """
    if _inside(folder):
        return folder
    below = [one for inner in folders_in(folder) for one in (inner, *folders_in(inner))]
    found = [one for one in below if _inside(one)]
    named = [one for one in found if _parse(one.name)[1]]
    return next((few[0] for few in (found, named) if len(few) == 1), folder)


def only_one(folders: Sequence[Path]) -> Path | None:
    """Return the one folder, or the preferred one of several; UserError if none is."""
    for name in PREFERRED:
        if match := [one for one in folders if one.name.lower() == name]:
            folders = match[:1] if len(match) == 1 else match
            break
    if len(folders) > 1:
        names = " and ".join(f"{shown(one.name)}/" for one in folders)
        remedy = "keep one, or rename the right ones to images/ and labels/"
        raise UserError(folders[0].parent, f"{names} may hold the same", remedy)
    return folders[0] if folders else None


def _match(
    images: Sequence[tuple[str, Path]],
    labels: Sequence[tuple[str, Path]],
    all_labels: Path | None = None,
) -> dict[str, Place]:
    """Bring together the folders of each split; all_labels: where only photographs have any."""

    def place(split: str) -> Place:
        own, maps = ([path for name, path in every if name == split] for every in (images, labels))
        photographs = only_one(own)
        assert photographs is not None
        return Place(photographs, only_one(maps) if labels else all_labels)

    return {split: place(split) for split in in_order(split for split, _ in images)}
