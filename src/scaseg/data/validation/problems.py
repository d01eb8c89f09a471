"""What can be wrong with a data set, told from what reading it has shown."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scaseg.data.datasets.paired import FilePair, PairedDataset
from scaseg.data.decode.image import image_size
from scaseg.data.sample import IGNORE
from scaseg.data.validation.report import Problem
from scaseg.data.validation.scan import LabelFacts
from scaseg.io.paths import shown

Splits = Mapping[str, Sequence[FilePair]]


def size_problems(
    image: Path, labels: Path, image_shape: tuple[int, int], labels_shape: tuple[int, int]
) -> Iterator[Problem]:
    """Compare a label map with its photograph, as EXIF turns it: (height, width) each."""
    if image_shape == labels_shape:
        return
    shapes = "{} x {}, not {} x {}".format(*labels_shape, *image_shape)
    # no limit: it was opened before, within its reader's own
    if image_size(image, upright=False, max_pixels=sys.maxsize) == labels_shape:
        what = "lies as its photograph did before the camera's EXIF rotation"
        remedy = "turn the label map too, or remove the photograph's EXIF orientation"
    else:
        what = "has another size than its photograph"
        remedy = "bring both to one size, labels by nearest neighbour"
    yield Problem(shown(labels), what, remedy, shapes)


def value_problems(
    dataset: PairedDataset, facts: Mapping[Path, LabelFacts], *, masks: bool = True
) -> Iterator[Problem]:
    """Say which label maps hold what is no class, and what their values seem to mean."""
    values = frozenset[int]().union(*(one.values for one in facts.values()))
    labels = frozenset[int]().union(*(one.pixels for one in facts.values()))
    known = None if dataset.classes is None else len(dataset.classes)
    unlabelled_255 = dataset.ignore_index == IGNORE and IGNORE not in dataset.label_map
    if masks and values == {0, IGNORE} and unlabelled_255:
        yield Problem(
            shown(next(path for path, one in facts.items() if IGNORE in one.values)),
            "holds only 0 and 255, as all label maps here: binary masks, it seems",
            "give --data.label_map '{255: 1}', or '{255: 255}' where 255 is unlabelled",
        )
    from_one = bool(labels) and min(labels) == 1 and not dataset.reduce_zero_label
    if from_one and (known is None or max(labels) == known):
        yield Problem(
            shown(next(iter(facts))),
            f"labels run from 1 to {max(labels)}, but classes are counted from 0",
            "give --data.reduce_zero_label true",
            is_error=known is not None,
        )
        return
    fits = "0 to 65535" if known is None else f"0 to {known - 1}"
    remedy = "rename them with --data.label_map, or name more classes"
    if labels and known is not None and min(labels) == 0 and max(labels) == known:
        remedy = "where 0 is unlabelled, give --data.reduce_zero_label true"
    for path, one in facts.items():
        if wrong := one.outside(known):
            some = ", ".join(map(str, wrong[:3])) + (", ..." if len(wrong) > 3 else "")
            yield Problem(shown(path), f"holds labels that are no class, {fits}", remedy, some)


def list_problems(splits: Splits, digests: Mapping[Path, bytes | None]) -> Iterator[Problem]:
    """Find photographs that are there twice, in one split or (a leak) in two."""
    home: dict[Path, str] = {}
    for split, pairs in splits.items():
        for image, times in Counter(pair.image for pair in pairs).items():
            if times > 1:
                what = f"stands more than once in {split}"
                yield Problem(shown(image), what, "name it once")
            if split == "trainval":  # both of them, on purpose
                continue
            if image in home:
                what = f"stands in {home[image]} and in {split}"
                yield Problem(
                    shown(image), what, "testing on it proves nothing; keep it in one of them"
                )
            home.setdefault(image, split)
    twins: dict[bytes, list[Path]] = defaultdict(list)
    for image in home:
        if digest := digests.get(image):
            twins[digest].append(image)
    for first, *others in twins.values():
        for other in others:
            leak = home[first] != home[other]
            what = f"the same photograph as another of {home[first]}"
            remedy = "keep one of them"
            if leak:
                what = f"a photograph of {home[other]}, the same as one of {home[first]}"
                remedy = f"testing on it proves nothing; {remedy}"
            yield Problem(shown(other), what, remedy, shown(first.name), is_error=leak)


def stray_problems(everything: PairedDataset, splits: Splits) -> Iterator[Problem]:
    """Find label maps without a photograph, and pairs that no list names."""
    known = {pair.labels for pair in everything.pairs}
    suffixes = {path.suffix for path in known}
    # a data set may leave out a pair on purpose: what has a photograph is not alone
    folders = {pair.image.parent for pair in everything.pairs}
    photographs = {path.stem for folder in folders for path in folder.iterdir()}
    for folder in sorted({path.parent for path in known}):
        for path in sorted(folder.iterdir()):
            hidden = path.name.startswith(".") or path.suffix not in suffixes
            words = path.stem.split("_")  # NAME_labelTrainIds.png belongs to NAME
            names = ("_".join(words[:end]) for end in range(1, len(words) + 1))
            if not hidden and path not in known and photographs.isdisjoint(names):
                remedy = "check its name, or remove it"
                yield Problem(shown(path), "has no photograph", remedy, is_error=False)
    listed = {pair.image for pairs in splits.values() for pair in pairs}
    for pair in everything.pairs:
        if pair.image not in listed:
            remedy = "it is not used; add it to one"
            yield Problem(shown(pair.image), "stands in no list", remedy, is_error=False)


def class_problems(
    everything: PairedDataset,
    names: Sequence[str],
    pixels: Sequence[int],
    in_train: Sequence[int],
) -> Iterator[Problem]:
    """Look at the classes: their names, and whether each of them occurs."""
    if everything.classes is None:
        what = "class names are missing, so they are class 0, class 1, ..."
        remedy = "write classes.txt, one name a line"
        yield Problem(shown(everything.root), what, remedy, is_error=False)
    for name, times in Counter(names).items():
        if times > 1:
            yield Problem("classes", "a name is there twice", "each class needs its own", name)
    if not any(in_train):
        what = "no pixel of what is trained on has a class"
        yield Problem(shown(everything.root), what, "there is nothing to learn; label some")
        return
    for name, count, train_count in zip(names, pixels, in_train, strict=True):
        short = name.removeprefix("class ")  # of those without names of their own
        if not count:
            remedy = "it weighs 0 in training; leave it out, or label some"
            yield Problem(f"class {short}", "never occurs", remedy, is_error=False)
        elif not train_count:
            remedy = "it weighs 0 in training and cannot be learnt"
            yield Problem(f"class {short}", "never occurs in train", remedy, is_error=False)
