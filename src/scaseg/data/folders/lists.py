"""Lists of the files of a split: names, paths, or pairs of a photograph and a label map."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from scaseg.data.folders.layout import Place, split_of
from scaseg.data.folders.pairs import FilePair, Listing
from scaseg.errors import UserError
from scaseg.io.paths import read_lines

# a line of a list that names both files: images/a.jpg labels/a.png
_PAIR = re.compile(
    r"(.+?\.(?:jpe?g|png|bmp|tiff?|webp))\s*[\s,;]\s*(.+\.(?:png|tiff?|bmp|npy))", re.IGNORECASE
)


def text_files(root: Path) -> list[Path]:
    """Return the text files in a folder."""
    return sorted(
        path for path in root.glob("*") if path.suffix.lower() == ".txt" and path.is_file()
    )


def find_lists(root: Path) -> dict[str, Path]:
    """Return the lists of splits; where several have one split's name, the plainest."""
    texts = sorted(text_files(root), key=lambda path: (len(path.stem), path.stem), reverse=True)
    return {split: path for path in texts if (split := split_of(path.stem)) is not None}


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the photograph and the label map of each line; none if lines name photographs alone.

    UserError if some do and some do not.
    """
    lines = [line.replace("\\", "/") for line in read_lines(path) if not line.startswith("#")]
    matches = [_PAIR.fullmatch(line) for line in lines]
    if any(matches) and not all(matches):
        line = next(line for line, match in zip(lines, matches, strict=True) if not match)
        fits = "give a photograph a line, or a photograph and its label map"
        raise UserError(path, "not every line names a pair", fits, repr(line))
    return [(match[1], match[2]) for match in matches if match]


def find_pairs(
    root: Path, place: Place | None, listed_in: str, entries: Sequence[tuple[str, str]]
) -> Listing:
    """Find the files of pairs, from the dataset's folder on or in the folders of their kinds."""
    pairs, problems = [], []
    for entry in entries:
        folders = (None, None) if place is None else place
        files = [_locate(root, folder, one) for one, folder in zip(entry, folders, strict=True)]
        for one, file, what in zip(entry, files, ("photograph", "label map"), strict=True):
            if file is None:
                problem = f"has no {what} that {listed_in} names"
                remedy = "add what is missing, or take the line out"
                problems.append(UserError(root, problem, remedy, repr(one)))
        image, labels = files
        if image is not None and labels is not None:
            inside = place is not None and image.is_relative_to(place.images)
            name = image.relative_to(place.images if place is not None and inside else root)
            pairs.append(FilePair(image, labels, normalize("NFC", name.with_suffix("").as_posix())))
    return pairs, problems


def _locate(root: Path, folder: Path | None, entry: str) -> Path | None:
    """Find a file that a list names: from the dataset's folder on, or from the folder of its kind.

    Nothing outside the dataset is found.
    """
    name = PurePosixPath(entry)
    if ".." in name.parts:
        return None
    within = root.absolute()
    below = name.relative_to(within) if name.is_relative_to(within.as_posix()) else name
    places = [(root, str(below))]
    if folder is not None:
        places.append((folder, part_below(entry, folder.relative_to(root))))
    for place, rest in places:
        for form in ("NFC", "NFD"):
            if (path := place / normalize(form, rest.lstrip("/"))).is_file():
                return path
    return None


def part_below(name: str, folder: Path) -> str:
    """Return the part of a name that comes after a folder; all of it if the folder is not in it.

    >>> part_below("/data/photos/images/day/a", Path("images"))
    'day/a'
    """
    parts, inside = PurePosixPath(name).parts, [part.lower() for part in folder.parts]
    for start in range(len(parts) - len(inside) - 1, -1, -1):
        if [part.lower() for part in parts[start : start + len(inside)]] == inside:
            return PurePosixPath(*parts[start + len(inside) :]).as_posix()
    return name
