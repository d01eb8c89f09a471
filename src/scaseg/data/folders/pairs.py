"""Files of photographs and label maps, found by name and paired."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from unicodedata import normalize

from scaseg.data.decode.bands import BAND_SUFFIXES
from scaseg.data.decode.files import SAVE
from scaseg.data.decode.image import JPEG, OTHER_SUFFIXES
from scaseg.errors import UserError
from scaseg.io.paths import read_lines


class FilePair(NamedTuple):
    """A photograph, its label map, and the name that they share within the dataset."""

    image: Path
    labels: Path
    name: str


Listing = tuple[list[FilePair], list[UserError]]  # the pairs of a split, and `problems`


def require_split(place: str | Path, split: str, splits: Collection[str]) -> None:
    """Raise a UserError that names the splits if this is none of them."""
    if split not in splits:
        there = f"there are {', '.join(splits) or 'none'}"
        raise UserError(place, f"has no split {split!r}", there)


def find_each(
    place: Path, split: str | None, splits: Sequence[str], find: Callable[[str], Listing]
) -> Listing:
    """Find the pairs of a split, None: of all of them; place: which has not this split."""
    if split is not None or not splits:
        require_split(place, split or "train", splits)
    return joined([find(part) for part in (splits if split is None else (split,))])


def joined(parts: Sequence[Listing]) -> Listing:
    """Make one listing of several."""
    return list(chain(*(pairs for pairs, _ in parts))), list(chain(*(more for _, more in parts)))


def with_split(split: str, pairs: Iterable[FilePair], problems: list[UserError]) -> Listing:
    """Let names begin with the split: another one may use the same."""
    return [pair._replace(name=f"{split}/{pair.name}") for pair in pairs], problems


def read_list(path: Path, *, folders: bool = False) -> list[str]:
    r"""Read the names of a list, one a line, without suffix; lines that start with # are comments.

    Of `folder\name.jpg`, as lists made on Windows have it, `name` is left, or `folder/name` if
    `folders` belong to the names.
    """
    names = []
    for line in read_lines(path):
        name = PurePosixPath(line.replace("\\", "/"))
        if name.suffix.lower() in BAND_SUFFIXES:
            name = name.with_suffix("")
        if not line.startswith("#"):
            names.append(normalize("NFC", str(name) if folders else name.name))
    if not names:
        raise UserError(path, "names no photograph", "give one name a line")
    return names


def find_files(folder: Path, *suffixes: str) -> dict[str, list[Path]]:
    """Find the files below a folder by name, their path below it without suffix.

    A suffix may be more than an extension: of `a_mask.png` by "_mask.png" the name is `a`.
    Names are composed (NFC): a Mac writes an umlaut as two signs, and most others as one.
    """
    found: dict[str, list[Path]] = {}
    for place, folders, files in os.walk(folder):
        folders.sort()
        below = Path(place).relative_to(folder).as_posix()
        prefix = "" if below == "." else f"{below}/"
        for file in sorted([*files, *folders]):  # a folder called a.png will be refused
            end = next((end for end in suffixes if file.lower().endswith(end.lower())), None)
            # hidden files are a system's own, such as macOS's ._NAME.jpg
            if end is not None and not file.startswith("."):
                name = normalize("NFC", prefix + file[: -len(end)])
                found.setdefault(name, []).append(Path(place, file))
    return found


def pair_files(
    names: Iterable[str] | None,
    images: Path,
    labels: Path,
    label_suffixes: Sequence[str],
    image_suffixes: Sequence[str] = (".jpg",),
    listed_in: str = "the list",
) -> Listing:
    """Pair photographs and label maps of the same name, in the order of `names` (None: all)."""
    for folder, what in ((images, "photographs"), (labels, "label maps")):
        if not folder.is_dir():
            raise UserError(folder, "no such folder", f"it should hold the {what}")
    maps = find_files(labels, *label_suffixes)
    photographs = find_files(images, *image_suffixes)
    if images == labels:  # x_mask.png is no photograph
        known = set(chain(*maps.values()))
        rest = (
            (name, [path for path in paths if path not in known])
            for name, paths in photographs.items()
        )
        photographs = {name: paths for name, paths in rest if paths}
    if not photographs and names is None:
        raise UserError(images, "has no photograph", detail=", ".join(image_suffixes))
    pairs: list[FilePair] = []
    problems: list[UserError] = []
    for first, *others in (*photographs.values(), *maps.values()):
        what = f"{first.name} has the same name"
        problems += [UserError(other, what, "keep one of them") for other in others]
    if names is None:
        for unread, (other, *_) in find_files(images, *OTHER_SUFFIXES).items():
            if unread in maps and unread not in photographs:
                problems.append(UserError(other, "a photograph that cannot be read", SAVE))
    remedy = "add what is missing, or take the name out"
    folded = [_by_folded_case(found) for found in (photographs, maps)]

    def match(name: str, number: int, found: Mapping[str, list[Path]]) -> str | None:
        """Find a name, in another case if that is unambiguous."""
        alike = [names.get(name.casefold(), []) for names in folded]
        is_plain = len(alike[number]) == 1 and all(len(names) <= 1 for names in alike)
        return name if name in found else alike[number][0] if is_plain else None

    def blurred(name: str) -> list[Path]:
        maps = (labels / f"{name}{case}" for end in JPEG for case in (end, end.upper()))
        return [path for path in maps if path.is_file() and path not in photographs[name]]

    for listed in sorted(photographs) if names is None else names:
        name = match(listed, 0, photographs)
        own = None if name is None else match(name, 1, maps)
        if name is None:
            what = f"has no photograph that {listed_in} names"
            problems.append(UserError(images, what, remedy, repr(listed)))
        elif own is not None:
            pairs.append(FilePair(photographs[name][0], maps[own][0], name))
        elif lossy := blurred(name):
            png = "its values are blurred, use PNG"
            problems.append(UserError(lossy[0], "a JPEG label map", png))
        else:
            what = "has no label map for a photograph"
            way = "label it, or `scaseg data fix` copies all but it" if names is None else remedy
            problems.append(UserError(labels, what, way, repr(name)))
    return pairs, problems


def _by_folded_case(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.casefold(), []).append(name)
    return found
