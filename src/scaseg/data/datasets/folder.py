"""A folder of photographs and label maps, with lists or folders for its splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaseg.data.class_names import read_class_names
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.datasets.recognition import advice, is_ours
from scaseg.data.decode.image import IMAGE_SUFFIXES
from scaseg.data.folders.data_yaml import yaml_classes
from scaseg.data.folders.endings import LABEL_SUFFIXES
from scaseg.data.folders.layout import (
    PREFERRED,
    Layout,
    Place,
    contents,
    dataset_folders,
    find_layout,
    in_order,
    nearest_file,
    split_of,
    subfolders,
)
from scaseg.data.folders.lists import find_lists, find_pairs, part_below, read_pairs, text_files
from scaseg.data.folders.pairs import Listing, find_files, pair_files, read_list, with_split
from scaseg.errors import UserError
from scaseg.io.paths import shown

RENAME = "bring the names together: `scaseg data prepare suffix SRC DST`"
SAVE = "save label maps as PNG"
CONVERT = "draw it: `scaseg data prepare FORMAT SRC DST`, `scaseg data list` names the formats"


class FolderDataset(PairedDataset):
    """images/NAME.jpg + labels/NAME.png, with lists (train.txt, ...) or folders of splits.

    classes.txt (one name a line; else `names` of Ultralytics' data.yaml) and the lists are
    optional: a line is NAME, with or without folder and suffix, or a photograph and its label map.
    Where folders are called after splits, those are the splits: images/train/ + labels/train/,
    train/images/ + train/labels/, train/ + train_labels/, mmseg's img_dir/train/ + ann_dir/train/;
    see `layout` for other names.
    """

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        folders = find_layout(root).splits
        found = {*find_lists(root), *(split for split, place in folders.items() if place.labels)}
        return in_order(found)

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        path = next((one for one in text_files(root) if one.name.lower() == "classes.txt"), None)
        if path is None:
            return yaml_classes(root)
        names = tuple(read_class_names(path))
        if not names:
            raise UserError(path, "names no class", "give one name a line")
        return names

    @property
    def notes(self) -> Sequence[str]:
        whole, splits = find_layout(self.root)
        found = [
            f"{shown(place.images.relative_to(self.root))}/ has no label maps beside it: not used"
            for place in splits.values()
            if place.labels is None
        ]
        if find_lists(self.root):
            return found
        used = {place.images for place in splits.values()}
        if whole is None:
            others = set(subfolders(self.root)) - {path.parent.name for path in used}
            found += [
                f"{shown(name)}/ is not used: its name says no split"
                for name in sorted(others)
                if dataset_folders(subfolders(self.root / name))[0]
            ]
            return found
        loose = [path.name for path in whole.images.iterdir() if path not in used] if used else []
        if beside := sorted(name for name in loose if not name.startswith(".")):
            folders = ", ".join(f"{shown(path.name)}/" for path in sorted(used))
            what = shown(beside[0]) + (f" and {len(beside) - 1} more" if beside[1:] else "")
            found.append(f"{whole.images.name}/ has {what} beside {folders}: not used")
        found += [
            f"{shown(name)}/ is not used: the data are in {whole.images.name}/"
            for name in subfolders(self.root)
            if split_of(name) is not None
        ]
        return found

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        layout, lists = find_layout(root), find_lists(root)
        if split is not None and split not in layout.splits:
            lists.setdefault(split, root / f"{split}.txt")
        if split in lists:
            return _listed(root, layout, split, lists[split])
        if split is not None:
            return _of_split(root, split, layout.splits[split])
        if layout.whole is not None and (lists or not layout.splits):
            return _pair(root, None, *_complete(root, layout.whole))
        parts = [_listed(root, layout, name, path) for name, path in lists.items()]
        parts += [
            _of_split(root, name, place)
            for name, place in layout.splits.items()
            if place.labels is not None and name not in lists
        ]
        if not parts:
            _complete(root, layout.whole)
        pairs = {pair.image: pair for found, _ in parts for pair in found}
        return list(pairs.values()), [problem for _, problems in parts for problem in problems]


def _complete(root: Path, place: Place | None) -> tuple[Path, Path]:
    """Return both folders; a UserError says what is there instead."""
    images = root / "images" if place is None else place.images
    labels = root / "labels" if place is None or place.labels is None else place.labels
    for folder in (images, labels):
        if not folder.is_dir():
            forms = "give images/ and labels/, or another layout of `scaseg data list`"
            if is_ours(root.parent) and any(
                root in place for place in find_layout(root.parent).all
            ):
                forms = f"did you mean --data {shown(root.parent)}?"
            there = contents(root)
            found = there and f"{shown(root)} has {there}"
            raise UserError(folder, "no such folder", advice(root) or forms, found)
    return images, labels


def _pair(
    root: Path, names: Sequence[str] | None, images: Path, labels: Path, listed_in: str = ""
) -> Listing:
    """Pair files by name; where none pair, one problem says how those that are there are called."""
    tops = {folder.relative_to(root).parts[0].lower() for folder in (images, labels)}
    if not tops <= set(PREFERRED) and (known := advice(root)):  # with values of its own
        raise UserError(root, "is in another format than images/ and labels/", known)
    # arrays only where there is no other file: beside photographs they may be anything
    arrays = not find_files(images, *IMAGE_SUFFIXES) and find_files(images, ".npy")
    suffixes = (".npy",) if arrays else IMAGE_SUFFIXES
    pairs, problems = pair_files(names, images, labels, LABEL_SUFFIXES, suffixes, listed_in)
    photographs = {} if pairs else find_files(images, *suffixes)
    first = next((name for name in names or sorted(photographs) if name in photographs), None)
    there = None if first is None else nearest_file(photographs[first][0], labels)
    if first and there and Path(there).suffix.lower() not in (".jpg", ".jpeg"):  # said already
        photograph = photographs[first][0].relative_to(images).as_posix()
        what = f"has {shown(there)} for {shown(photograph)}, and no label map of its name"
        suffix = Path(there).suffix.lower()
        way = RENAME if suffix in LABEL_SUFFIXES else SAVE if suffix == ".gif" else CONVERT
        problems = [UserError(labels, what, advice(root) or way)]
    return pairs, problems


def _of_split(root: Path, split: str, place: Place) -> Listing:
    """Pair the files in the folders of a split."""
    if place.labels is None:
        raise UserError(place.images, "has no label maps beside it", "`predict` needs none")
    return with_split(split, *_pair(root, None, place.images, place.labels))


def _listed(root: Path, layout: Layout, split: str, path: Path) -> Listing:
    """Pair the files that a list names, one photograph or one pair a line."""
    place = layout.whole or layout.splits.get(split)
    if not path.is_file():
        raise _no_list(path)
    if entries := read_pairs(path):
        found = find_pairs(root, place, path.name, entries)
        return found if layout.whole or not place else with_split(split, *found)
    images, labels = _complete(root, place)
    names = [part_below(name, images.relative_to(root)) for name in read_list(path, folders=True)]
    if layout.whole is not None and split in layout.splits:  # x of train.txt may be train/x
        folder = layout.splits[split].images.name
        known = find_files(images, *IMAGE_SUFFIXES)
        names = [one if one in known else f"{folder}/{one}" for one in names]
    found = _pair(root, names, images, labels, path.name)
    return found if layout.whole else with_split(split, *found)


def _no_list(path: Path) -> UserError:
    root = path.parent
    there = FolderDataset.splits(root)
    others = sorted(other.stem for other in text_files(root) if other.stem.lower() != "classes")
    if there or others:
        known = ", ".join(dict.fromkeys([*there, *others]))
        return UserError(path, "no such file", f"the splits here are {known}")
    return UserError(
        path,
        "no such file, nor any other list",
        "write it, a name a line, or give no split to take all photographs (evaluate: --split all)",
    )
