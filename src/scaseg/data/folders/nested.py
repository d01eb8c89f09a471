"""Pairs of folders further in, one for each scene: seq1/Images + seq1/Labels."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from scaseg.data.folders.layout import (
    Place,
    folders_in,
    marked_role,
    only_one,
    split_in,
    split_of,
)
from scaseg.errors import UserError
from scaseg.io.paths import shown

DEPTH = 4  # folders in one another that are searched


def find_scenes(root: Path) -> dict[str, Place]:
    """Return each pair of folders below `root` by the path of the folder that it is in.

    seq1/Images + seq1/Labels, Train/Urban/images_png + Train/Urban/masks_png: what comes after
    the role has to be the same. Labels are None beside photographs that have none.
    """
    found: dict[str, Place] = {}

    def look(folder: Path, depth: int) -> None:
        marks: dict[Path, str] = {}
        labels: dict[str, list[Path]] = {}
        for one in folders_in(folder):
            if role := marked_role(one.name):
                kind, mark = role
                if kind == "images":
                    marks[one] = mark
                else:
                    labels.setdefault(mark, []).append(one)
            elif depth and one.name[0] != ".":
                look(one, depth - 1)
        images = only_one([one for one, mark in marks.items() if mark in labels] or list(marks))
        if images is not None:
            place = Place(images, only_one(labels.get(marks[images], [])))
            found[folder.relative_to(root).as_posix()] = place

    look(root, DEPTH)
    return found


def by_split(root: Path) -> tuple[dict[str, Place], list[str]]:
    """Return the scenes by split and name (train/Urban, or /seq1), and notes of those left out."""
    found: dict[str, Place] = {}
    notes = []
    scenes = sorted(find_scenes(root).items())
    keys = {path: _key(PurePosixPath(path)) for path, place in scenes if place.labels}
    splits = {key.partition("/")[0] for key in keys.values()}
    for path, place in scenes:
        key = keys.get(path)
        if key is None:
            what = f"{shown(place.images.relative_to(root))}/ has no label maps beside it: not used"
        elif any(splits) and not key.partition("/")[0]:
            what = f"{shown(path)}/ is not used: its name says no split"
        else:
            if (first := found.setdefault(key, place)) != place:
                other = shown(first.images.parent.relative_to(root))
                raise UserError(root / path, f"{other}/ may hold the same", "keep one")
            continue
        notes.append(what)
    return found, notes


def _key(path: PurePosixPath) -> str:
    """Return the split that a folder of the path says, or none, and the rest of the path."""
    parts = path.parts
    for say in (split_of, split_in):
        for part in parts:
            if split := say(part):
                return "/".join([split, *(other for other in parts if other != part)])
    return "/".join(["", *parts])
