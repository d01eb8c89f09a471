"""Cross-validation: every photograph is tested once, by a network that never saw it or a copy."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from scaseg.data.datasets.base import LabelledImages
from scaseg.data.datasets.paired import PairedDataset
from scaseg.io.paths import open_regular

Images = TypeVar("Images", bound=LabelledImages)


class Fold(NamedTuple):
    """Which images of a data set train, validate and test in one fold."""

    train: list[int]
    val: list[int]
    test: list[int]


def join(parts: Sequence[Images]) -> Images:
    """All images of several splits, each once, in the order of their names."""
    whole = parts[0].subset(range(len(parts[0])))
    if isinstance(whole, PairedDataset):
        pairs = {pair.image: pair for part in parts for pair in part.pairs}  # type: ignore[attr-defined]
        whole.pairs = sorted(pairs.values(), key=lambda pair: (pair.name, pair.image))
    return whole


def originals(dataset: LabelledImages) -> list[str]:
    """What each image is a copy of: equal for files that are the same byte for byte."""
    if not isinstance(dataset, PairedDataset):
        return [dataset.fingerprint(index) for index in range(len(dataset))]
    paths = [pair.image for pair in dataset.pairs]
    sizes = [path.stat().st_size for path in paths]
    shared = Counter(sizes)  # a file that is alone in its size is nobody's copy: not read
    return [
        _digest(path) if shared[size] > 1 else str(path)
        for path, size in zip(paths, sizes, strict=True)
    ]


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def deal(names: Sequence[str], copies: Sequence[str], folds: int) -> list[int]:
    """The fold of each image, 1, 2, ...: the same on every machine, sizes as even as they can be.

    Images come in the order of their names' SHA-256, which is no order at all, and each goes to the
    smallest fold; copies of one photograph go together, and first.

    >>> deal(["a", "b", "c", "d"], ["x", "y", "x", "z"], 2)
    [1, 2, 1, 2]
    """
    groups: dict[str, list[int]] = {}
    for index, copy in enumerate(copies):
        groups.setdefault(copy, []).append(index)
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    order = sorted(
        groups.values(), key=lambda group: (-len(group), min(digests[index] for index in group))
    )
    if len(order) < folds:
        raise ValueError(f"{folds} folds of {len(order)} different photographs; give fewer folds")
    sizes = [0] * folds
    found = [0] * len(names)
    for group in order:
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(group)
        for index in group:
            found[index] = smallest + 1
    return found


def split_fold(dataset: LabelledImages, folds: int, fold: int, hold_out: float) -> Fold:
    """Test on fold number `fold`, train on the rest, of which a share is kept for validation."""
    copies = originals(dataset)
    places = deal(dataset.names, copies, folds)
    test = [index for index, place in enumerate(places) if place == fold]
    rest = [index for index, place in enumerate(places) if place != fold]
    kept = {copies[rest[place]] for place in held_out(len(rest), hold_out)}
    val = [index for index in rest if copies[index] in kept]
    train = [index for index in rest if copies[index] not in kept]
    return Fold(train, val, test)


def held_out(count: int, share: float) -> list[int]:
    """Choose images for validation, evenly spread; at least one stays on either side.

    >>> held_out(20, 0.1)
    [5, 15]
    """
    wanted = min(count - 1, max(1, round(count * share))) if share and count > 1 else 0
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]
