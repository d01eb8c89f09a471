"""What can be wrong with a dataset as a whole, given what reading its files has shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from scaseg.config.run import LARGEST_LABEL
from scaseg.data.datasets.base import FilePair, PairedDataset
from scaseg.data.sample import IGNORE
from scaseg.data.validation.report import Finding
from scaseg.data.validation.samples import SampleCheck
from scaseg.io.paths import shown

Splits = Mapping[str, Sequence[FilePair]]


_warning = partial(Finding, severity="warning")


def value_findings(
    dataset: PairedDataset, checks: Iterable[SampleCheck], *, masks: bool = True
) -> Iterator[Finding]:
    """Find label maps with values that are no class, and guess what the values mean.

    masks=False: values 0 and 255 alone are fine.
    """
    statistics = {one.labels: one.statistics for one in checks if one.labels and one.statistics}
    values = frozenset[int]().union(*(one.values for one in statistics.values()))
    labels = frozenset[int]().union(*(one.pixels for one in statistics.values()))
    known = None if dataset.classes is None else len(dataset.classes)
    unlabelled_255 = dataset.ignore_index == IGNORE and IGNORE not in dataset.label_map
    if masks and values == {0, IGNORE} and unlabelled_255:
        yield Finding(
            shown(next(path for path, one in statistics.items() if IGNORE in one.values)),
            "holds only 0 and 255, like all label maps here: probably binary masks",
            "give --data.label_map '{255: 1}', or '{255: 255}' where 255 is unlabelled",
        )
    from_one = bool(labels) and min(labels) == 1 and not dataset.reduce_zero_label
    if from_one and (known is None or max(labels) == known):
        yield Finding(
            shown(next(iter(statistics))),
            f"labels run from 1 to {max(labels)}, but class indices start at 0",
            "give --data.reduce_zero_label true",
            severity="warning" if known is None else "error",
        )
        return
    problem = (
        f"holds labels that are no class, 0 to {LARGEST_LABEL if known is None else known - 1}"
    )
    remedy = "rename them with --data.label_map, or name more classes"
    if labels and known is not None and min(labels) == 0 and max(labels) == known:
        remedy = "where 0 is unlabelled, give --data.reduce_zero_label true"
    for path, one in statistics.items():
        if wrong := one.invalid(known):
            some = ", ".join(map(str, wrong[:3])) + (", ..." if len(wrong) > 3 else "")
            yield Finding(shown(path), problem, remedy, some)


def duplicate_findings(splits: Splits, checks: Iterable[SampleCheck]) -> Iterator[Finding]:
    """Find photographs that occur twice, in one split or (a leak) in two."""
    leak_remedy = "a test on it proves nothing; keep"
    home: dict[Path, str] = {}
    for split, pairs in splits.items():
        for image, times in Counter(pair.image for pair in pairs).items():
            if times > 1:
                yield Finding(shown(image), f"is listed more than once in {split}", "name it once")
            if split == "trainval":  # both of them, on purpose
                continue
            if image in home:
                problem = f"is in {home[image]} and in {split}"
                yield Finding(shown(image), problem, f"{leak_remedy} it in one of them")
            home.setdefault(image, split)
    twins: dict[bytes, list[Path]] = defaultdict(list)
    digests = {check.image: check.digest for check in checks}
    for image in home:
        if digest := digests.get(image):
            twins[digest].append(image)
    for first, *others in twins.values():
        for other in others:
            if home[first] != home[other]:
                problem = f"is in {home[other]}, and a copy of it in {home[first]}"
                remedy = f"{leak_remedy} one of them"
                yield Finding(shown(other), problem, remedy, shown(first.name))
            else:
                problem = f"is a copy of another photograph of {home[first]}"
                yield _warning(shown(other), problem, "keep one of them", shown(first.name))


def stray_findings(everything: PairedDataset, splits: Splits) -> Iterator[Finding]:
    """Find label maps without a photograph, and pairs that no list names."""
    known = {pair.labels for pair in everything.pairs}
    suffixes = {path.suffix for path in known}
    # a dataset may leave out a pair on purpose: what has a photograph is not alone
    folders = {pair.image.parent for pair in everything.pairs}
    photographs = {path.stem for folder in folders for path in folder.iterdir()}
    for folder in sorted({path.parent for path in known}):
        for path in sorted(folder.iterdir()):
            hidden = path.name.startswith(".") or path.suffix not in suffixes
            words = path.stem.split("_")  # NAME_labelTrainIds.png belongs to NAME
            names = ("_".join(words[:end]) for end in range(1, len(words) + 1))
            if not hidden and path not in known and photographs.isdisjoint(names):
                yield _warning(shown(path), "has no photograph", "check its name, or remove it")
    listed = {pair.image for pairs in splits.values() for pair in pairs}
    for pair in everything.pairs:
        if pair.image not in listed:
            place = shown(pair.image)
            yield _warning(place, "is in no list", "it is not used; add it to one")


def class_findings(
    dataset: PairedDataset,
    names: Sequence[str],
    pixels: Sequence[int],
    train_pixels: Sequence[int],
) -> Iterator[Finding]:
    """Check the classes: their names, and whether each of them occurs."""
    root = shown(dataset.root)
    if dataset.classes is None:
        problem = "class names are missing, so they are class 0, class 1, ..."
        yield _warning(root, problem, "write classes.txt, one name a line")
    for name, times in Counter(names).items():
        if times > 1:
            yield Finding("classes", "a class name occurs twice", "each class needs its own", name)
    if not any(train_pixels):
        yield Finding(root, "no pixel of the training images is labelled", "label some")
        return
    for name, count, train_count in zip(names, pixels, train_pixels, strict=True):
        place = f"class {name.removeprefix('class ')}"  # of those without names of their own
        if not count:
            remedy = "it weighs 0 in training; leave it out, or label some"
            yield _warning(place, "never occurs", remedy)
        elif not train_count:
            remedy = "it weighs 0 in training and cannot be learned"
            yield _warning(place, "never occurs in train", remedy)
