"""Cross-validation: every image is tested once, by a network that never saw it or a copy of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.paired import PairedDataset
from scaseg.errors import UserError
from scaseg.io.paths import open_regular

Images = TypeVar("Images", bound=SegmentationDataset)


class Fold(NamedTuple):
    """Indices of the images that train, validate and test in one fold."""

    train: list[int]
    val: list[int]
    test: list[int]


def merge_splits(parts: Sequence[Images]) -> Images:
    """Return all images of several splits, each once, in the order of their names."""
    whole = parts[0].subset(range(len(parts[0])))
    if isinstance(whole, PairedDataset):
        pairs = {pair.image: pair for part in parts for pair in part.pairs}  # type: ignore[attr-defined]
        whole.pairs = sorted(pairs.values(), key=lambda pair: (pair.name, pair.image))
    return whole


def duplicate_groups(dataset: SegmentationDataset) -> list[str]:
    """Return a key for each image, equal for files that are the same byte for byte."""
    if not isinstance(dataset, PairedDataset):
        return [dataset.fingerprint(index) for index in range(len(dataset))]
    keys = [str(pair.image) for pair in dataset.pairs]
    sizes = [pair.image.stat().st_size for pair in dataset.pairs]
    shared = Counter(sizes)
    for index, pair in enumerate(dataset.pairs):
        if shared[sizes[index]] > 1:  # a file that is alone in its size has no copy: not read
            with open_regular(pair.image) as file:
                keys[index] = hashlib.sha256(file.read()).hexdigest()
    return keys


def assign_folds(names: Sequence[str], groups: Sequence[str], folds: int) -> list[int]:
    """Return the fold of each image, 1, 2, ...: the same on every machine, sizes nearly equal.

    Images are taken in the order of their names' SHA-256, as good as random, and each goes to the
    smallest fold. Those of one group (copies of one photograph) stay together, and come first.

    >>> assign_folds(["a", "b", "c", "d"], ["x", "y", "x", "z"], 2)
    [1, 2, 1, 2]
    """
    members: dict[str, list[int]] = {}
    for index, key in enumerate(groups):
        members.setdefault(key, []).append(index)
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    order = sorted(
        members.values(), key=lambda group: (-len(group), min(digests[index] for index in group))
    )
    if len(order) < folds:
        problem = f"{folds} folds of {len(order)} different photographs"
        raise UserError("data.folds", problem, "give fewer folds")
    sizes = [0] * folds
    found = [0] * len(names)
    for group in order:
        smallest = sizes.index(min(sizes))
        sizes[smallest] += len(group)
        for index in group:
            found[index] = smallest + 1
    return found


def split_fold(dataset: SegmentationDataset, folds: int, fold: int, hold_out: float) -> Fold:
    """Test on fold number `fold` and train on the rest, less a share held out for validation."""
    groups = duplicate_groups(dataset)
    numbers = assign_folds(dataset.names, groups, folds)
    test = [index for index, number in enumerate(numbers) if number == fold]
    rest = [index for index, number in enumerate(numbers) if number != fold]
    kept = {groups[rest[place]] for place in held_out(len(rest), hold_out)}
    val = [index for index in rest if groups[index] in kept]
    train = [index for index in rest if groups[index] not in kept]
    return Fold(train, val, test)


def held_out(count: int, share: float) -> list[int]:
    """Choose images for validation, evenly spread; at least one stays on either side.

    >>> held_out(20, 0.1)
    [5, 15]
    """
    wanted = min(count - 1, max(1, round(count * share))) if share and count > 1 else 0
    return [int((index + 0.5) * count / wanted) for index in range(wanted)]
