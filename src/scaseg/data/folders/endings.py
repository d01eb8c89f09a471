"""How the names of photographs and of label maps in one folder, or in two, end.

By names alone, and without torch: `predict` asks before it has a reason to import it.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from scaseg.data.decode.image import IMAGE_SUFFIXES, JPEG

LABEL_SUFFIXES = (".png", ".tif", ".tiff", ".bmp", ".npy")
MOST_FILES = 20_000  # whose names are compared to find endings
WORDS = 4  # of a name, from its end, that may belong to the ending
SHARE = 0.5  # of the photographs that an ending must explain
LABEL_WORD = re.compile(
    r"mask|label|seg|truth|target|(?<![a-z])(?:gt|ann|[lp](?![a-z]))", re.IGNORECASE
)


class Endings(NamedTuple):
    """How the names of photographs and of label maps end; "": in any extension."""

    image: str
    label: str

    def __str__(self) -> str:
        return f"NAME{self.image or '.jpg'} with NAME{self.label or '.png'}"


def find_endings(
    images: Sequence[str],
    labels: Sequence[str] | None = None,
    extensions: tuple[str, ...] = LABEL_SUFFIXES,
) -> list[Endings]:
    """Return the endings that pair most files, by name; several only if they fit equally well.

    labels: None where both kinds are in one folder. extensions: those of label maps.

    >>> find_endings(["a.jpg", "a_mask.png", "b.jpg", "b_mask.png"])
    [Endings(image='', label='_mask.png')]
    """
    together = labels is None
    one, other = _by_ending(images), _by_ending(images if labels is None else labels)
    photographs = len(images) / 2 if together else len(images)
    best: dict[Endings, tuple[int, int]] = {}
    for image, names in one.items():
        for label, maps in other.items():
            shared = len(names & maps)
            if shared < SHARE * photographs or not label.lower().endswith(extensions):
                continue
            if together and (image == label or not _is_label(image, label)):
                continue
            ends = [image, label]
            if not together or not is_extension(label):  # then any extension will do
                ends = ["" if is_extension(end) else end for end in ends]
            best[Endings(*ends)] = (-shared, len(image) + len(label))
    shortest = min(best.values(), default=None)
    return [endings for endings, rank in best.items() if rank == shortest]


def label_maps_beside(names: Sequence[str]) -> tuple[Endings, set[str]] | None:
    """Return which files of one folder are label maps of others, where their ending says so.

    x.png beside x.jpg may be a photograph, too: that is left to who asks.

    >>> label_maps_beside(["a.jpg", "a_mask.png", "b.jpg"])
    (Endings(image='', label='_mask.png'), {'a_mask.png'})
    """
    files = [name for name in names if is_extension(os.path.splitext(name)[1])]
    found = find_endings(files[:MOST_FILES])
    if len(found) != 1 or not LABEL_WORD.search(found[0].label):
        return None
    image, label = found[0]
    is_map = [name.endswith(label) for name in files]
    photographs = {
        os.path.splitext(name)[0] if not image else name.removesuffix(image)
        for name, labels in zip(files, is_map, strict=True)
        if not labels and name.endswith(image)
    }
    maps = (name for name, labels in zip(files, is_map, strict=True) if labels)
    return found[0], {name for name in maps if name.removesuffix(label) in photographs}


def is_extension(ending: str) -> bool:
    """Return whether an ending is the extension of photographs or label maps alone."""
    return ending.lower() in (*IMAGE_SUFFIXES, *LABEL_SUFFIXES)


def _is_label(image: str, label: str) -> bool:
    """Return whether of two endings in one folder the second is that of label maps."""
    if image.lower().endswith(JPEG) and not label.lower().endswith(JPEG):
        return True
    return bool(LABEL_WORD.search(label)) > bool(LABEL_WORD.search(image))


def _by_ending(files: Sequence[str]) -> dict[str, set[str]]:
    """Return the names before each ending that many files have: .png, _mask.png, ..."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in files:
        stem, _ = os.path.splitext(file)
        first = stem.rfind("/") + 1
        marks = [match.start() for match in re.finditer(r"[_.\- ]", stem) if match.start() > first]
        for at in [*marks[-WORDS:], len(stem)]:
            found[file[at:]].add(file[:at])
    least = SHARE / 2 * len(files) / 2
    return {ending: names for ending, names in found.items() if len(names) >= least}
