"""What the official data sets share: lists of names, pairs by name, ids that become classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.paired import Listing, Pair
from scaseg.data.sample import IGNORE
from scaseg.io.paths import read_lines, shown

WRONG = -1  # in a table: an id that no label map may hold


def read_list(path: Path) -> list[str]:
    r"""Read the bare names of a list: `folder\name.jpg`, `name.jpg` and `name` are all name."""
    names = [_bare(line) for line in read_lines(path)]
    if not names:
        raise ValueError(f"{shown(path)}: names no photograph; give one name a line")
    return names


def _bare(line: str) -> str:
    name = PurePosixPath(line.replace("\\", "/")).name  # lists made on Windows
    return name[: -len(".jpg")] if name.lower().endswith(".jpg") else name


def stems(folder: Path, suffix: str) -> set[str]:
    """Name the files of a folder that have an ending, without it; none where it is missing."""
    if not folder.is_dir():
        return set()
    return {
        path.name[: -len(suffix)]
        for path in folder.iterdir()
        # a dot: a system's own files, such as macOS's ._NAME.jpg
        if path.name.endswith(suffix) and not path.name.startswith(".")
    }


def pair_up(names: Iterable[str], images: Path, labels: Path, label_suffix: str) -> Listing:
    """Pair images/NAME.jpg with labels/NAME.suffix, in the order of the names."""
    for folder, suffix in ((images, ".jpg"), (labels, label_suffix)):
        if not folder.is_dir():
            raise ValueError(f"{shown(folder)}: no such folder; it should hold the {suffix} files")
    photographs, maps = stems(images, ".jpg"), stems(labels, label_suffix)
    pairs, problems = [], []
    for name in names:
        if name not in photographs:
            problems.append(
                f"{shown(images / (name + '.jpg'))}: no such photograph, but it is listed"
            )
        elif name not in maps:
            problems.append(
                f"{shown(labels / (name + label_suffix))}: no such label map; fetch it again"
            )
        else:
            pairs.append(Pair(images / f"{name}.jpg", labels / f"{name}{label_suffix}", name))
    return Listing(pairs, problems)


def no_such_split(root: Path, split: str, splits: tuple[str, ...]) -> ValueError:
    """Say which splits there are instead."""
    return ValueError(
        f"{shown(root)}: has no split {split!r}; there are {', '.join(splits) or 'none'}"
    )


def renumber(
    values: NDArray[np.int32], table: NDArray[np.int32], path: Path, *, fits: str, unlabelled: int
) -> NDArray[np.int32]:
    """Look ids up in a table of classes, IGNORE and WRONG; fits: what the error says fits."""
    inside = (values >= 0) & (values < len(table))
    classes = table[np.where(inside, values, 0)]
    wrong = ~inside | (classes == WRONG)
    if wrong.any():
        raise ValueError(f"{shown(path)}: holds {values[wrong][0]}; {fits}")
    classes[classes == IGNORE] = unlabelled
    return classes
