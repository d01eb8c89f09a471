"""What is wrong with the files of a dataset together, where each may be right by itself."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.folders.pairs import FilePair
from scaseg.data.validation.samples import Finding, LabelStatistics, SampleCheck, command, warning
from scaseg.io.paths import shown

Splits = Mapping[str, Sequence[FilePair]]


def is_sparse(count: int, largest: int) -> bool:
    """Whether so few of the labels 0 to `largest` occur that they are no class indices."""
    return largest + 1 > 2 * count + 2


def palette_findings(dataset: PairedDataset, checks: Iterable[SampleCheck]) -> Iterator[Finding]:
    """Find label maps that number their colours each in its own way: their indices mean nothing.

    Pillow's `convert("P", palette=ADAPTIVE)` and `quantize` write such files from colours. One
    finding stands for all.
    """
    known: dict[tuple[int, ...], tuple[int, Path]] = {}
    for check in checks:
        if check.labels is None or check.statistics is None:
            continue
        palette = dict(enumerate(check.palette))
        for value in sorted(check.statistics.values & palette.keys() - {dataset.ignore_index}):
            color = palette[value]
            before, where = known.setdefault(color, (value, check.labels))
            # a palette may have a colour twice: then it has it at the other index too
            if palette.get(before) != color:
                problem = f"numbers its colours otherwise: {color} is {value} here"
                remedy = "an index must be one class; where the colours are, convert them: "
                remedy += f"`scaseg data prepare colors {shlex.quote(shown(dataset.root))} DST`"
                there = f"{before} in {shown(where.name)}"
                yield warning(shown(check.labels), f"{problem}, {there}", remedy)
                return


def duplicate_findings(
    root: Path, splits: Splits, checks: Iterable[SampleCheck]
) -> Iterator[Finding]:
    """Find photographs that occur twice, pixel for pixel, in one split or (a leak) in two.

    val and test may share: `overlap_findings` says what that means.
    """
    drop = f"`{command('fix', root)} DST --drop-duplicates` does so, "
    drop += "--data.check quick trains anyway"
    home: dict[Path, str] = {}
    for split, pairs in splits.items():
        for image, times in Counter(pair.image for pair in pairs).items():
            if times > 1:
                yield Finding(shown(image), f"is listed more than once in {split}", "name it once")
            # trainval is both of them, on purpose
            if split != "trainval" and home.setdefault(image, split) not in _alike(split):
                problem = f"is in {home[image]} and in {split}"
                remedy = f"a test on it proves nothing; keep it in one of them: {drop}"
                yield Finding(shown(image), problem, remedy)
    twins: dict[bytes, list[Path]] = defaultdict(list)
    digests = {check.image: check.digest for check in checks}
    for image in home:
        if digest := digests.get(image):
            twins[digest].append(image)
    for first, *others in twins.values():
        for other in others:
            if home[first] not in _alike(home[other]):
                problem = f"is in {home[other]}, and a copy of it in {home[first]}"
                remedy = f"a test on it proves nothing; keep one of them: {drop}"
                yield Finding(shown(other), problem, remedy, shown(first.name))
            elif home[first] == home[other]:
                problem = f"is a copy of another photograph of {home[first]}"
                yield warning(shown(other), problem, "keep one of them", shown(first.name))


def _alike(split: str) -> tuple[str, ...]:
    return ("val", "test") if split in ("val", "test") else (split,)


def overlap_findings(splits: Splits, checks: Iterable[SampleCheck]) -> Iterator[Finding]:
    """Find photographs that val and test share."""
    digests = {check.image: check.digest for check in checks}
    val, test = (
        [digests.get(pair.image) or pair.image for pair in splits.get(split, ())]
        for split in ("val", "test")
    )
    if shared := len(set(val) & set(test)):
        problem = (
            f"shares {shared} of {len(set(test))} photographs with val, which chooses the epoch"
        )
        remedy = "a score on test is then as optimistic as one on val; keep them apart to report it"
        yield warning("test", problem, remedy)


def stray_findings(everything: PairedDataset, splits: Splits) -> Iterator[Finding]:
    """Find label maps without a photograph, and pairs that no list names."""
    known = {pair.labels for pair in everything.pairs}
    suffixes = {path.suffix for path in known}
    # a dataset may leave out a pair on purpose: what has a photograph is not alone
    folders = {pair.image.parent for pair in everything.pairs}
    photographs = {path.stem for folder in folders if folder.is_dir() for path in folder.iterdir()}
    photographs |= {pair.name.rpartition("/")[2] for pair in everything.pairs}
    for folder in sorted({path.parent for path in known if path.parent.is_dir()}):
        for path in sorted(folder.iterdir()):
            hidden = path.name.startswith(".") or path.suffix not in suffixes
            words = path.stem.split("_")  # NAME_labelTrainIds.png belongs to NAME
            names = ("_".join(words[:end]) for end in range(1, len(words) + 1))
            if not hidden and path not in known and photographs.isdisjoint(names):
                yield warning(shown(path), "has no photograph", "check its name, or remove it")
    listed = {pair.image for pairs in splits.values() for pair in pairs}
    for pair in everything.pairs:
        if pair.image not in listed:
            yield warning(shown(pair.image), "is in no list", "it is not used; add it to one")


def class_findings(
    dataset: PairedDataset,
    names: Sequence[str],
    pixels: Sequence[int],
    train_pixels: Sequence[int],
    in_train: Sequence[LabelStatistics],
) -> Iterator[Finding]:
    """Check the classes: their names, and whether each of them occurs.

    in_train: of the training's label maps that could be read.
    """
    root = shown(dataset.root)
    if dataset.classes is None:
        problem = "class names are missing, so they are class 0, class 1, ..."
        yield warning(root, problem, "write classes.txt, one name a line")
    for name, times in Counter(names).items():
        if times > 1:
            yield Finding("classes", "a class name occurs twice", "each class needs its own", name)
    alike: dict[str, set[str]] = defaultdict(set)
    for name in names:
        alike[name.strip().casefold()].add(name)
    for same in (sorted(same) for same in alike.values() if len(same) > 1):
        problem = f"{' and '.join(map(repr, same))} are two classes"
        yield warning("classes", problem, "give both one name if they are the same")
    if not any(train_pixels):
        if not in_train or any(one.pixels for one in in_train):
            return  # all were refused: said of each
        yield Finding(root, "no pixel of the training images is labelled", "label some")
        return
    if dataset.classes is None and is_sparse(sum(map(bool, pixels)), len(pixels) - 1):
        return  # an error by itself, and its classes are none
    for name, count, train_count in zip(names, pixels, train_pixels, strict=True):
        place = f"class {name.removeprefix('class ')}"  # of those without names of their own
        if not count:
            remedy = "it weighs 0 in training; leave it out, or label some"
            yield warning(place, "never occurs", remedy)
        elif not train_count:
            remedy = "it weighs 0 in training and cannot be learned"
            yield warning(place, "never occurs in train", remedy)
