"""YOLO's outlines: a text file for each photograph, as Ultralytics trains on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from scaseg.data.datasets.annotated import AnnotatedDataset, sample_name
from scaseg.data.decode import shapes
from scaseg.data.decode.image import IMAGE_SUFFIXES
from scaseg.data.decode.shapes import Canvas
from scaseg.data.folders.data_yaml import class_list, find_yaml, read_yaml
from scaseg.data.folders.layout import SPLITS, in_order, split_in
from scaseg.data.folders.pairs import FilePair, Listing, find_files, require_split
from scaseg.errors import UserError, located
from scaseg.io.paths import numbered_lines, read_lines, shown

SAMPLED = 20  # photographs whose text files are looked for, to recognize them
BEYOND = 0.01  # of the photograph's size, where outlines may lie outside it by rounding


class Yolo(AnnotatedDataset):
    """data.yaml + images/train/NAME.jpg + labels/train/NAME.txt: a class and an outline a line.

    https://docs.ultralytics.com/datasets/segment/ : the number of the class, then x and y of each
    corner as shares of width and height. data.yaml names the classes and the folders, or lists, of
    train, val and test; train/images/ + train/labels/ (Roboflow) are as good. Without it,
    classes.txt names the classes (Label Studio) and folders are splits. A photograph without a text
    file, or with an empty one, shows no object. Where outlines overlap, the smaller lies on top.
    Files of boxes are refused.
    """

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        with suppress(UserError):
            splits = _describe(root).folders
            images = chain(*(_photographs(root, split) for split in splits))
            photographs = (image for image in images if isinstance(image, Path))
            labels = (_label_file(image, root) for image in islice(photographs, SAMPLED))
            if found := next((path for path in labels if path.is_file()), None):
                return f"{shown(found.relative_to(root))} of YOLO"
        return None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return in_order(_describe(root).folders)

    @classmethod
    def named_classes(cls, root: Path) -> list[str]:
        place, names, _ = _describe(root)
        if names is None and cls.classes_file:
            names = read_lines(Path(cls.classes_file))
        found = class_list(names)
        if found is None:
            remedy = "give the names of the classes, 0 first, or --classes-file"
            raise UserError(place, f"{names!r}"[:40] if names else "nothing", remedy)
        return found

    @classmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, Path | UserError]]:
        splits = _describe(root).folders
        if not splits:
            require_split(root, "train", ())
        for split in splits:
            for image in _photographs(root, split):
                yield split, image

    @classmethod
    def pair(cls, root: Path, entry: Path | UserError) -> FilePair:
        if isinstance(entry, UserError):
            raise entry
        return FilePair(entry, _label_file(entry, root), sample_name(entry, root))

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        pairs, problems = super().find(root, split)
        if not problems and not any(pair.labels.is_file() for pair in pairs):
            everything = pairs if split is None else super().find(root, None)[0]
            if everything and not any(pair.labels.is_file() for pair in everything):
                # a split may show no object, but not a whole dataset
                remedy = f"{shown(everything[0].labels)} or others like it should be there"
                raise UserError(root, "no photograph has a text file of outlines", remedy)
        return pairs, problems

    @cached_property
    def named(self) -> list[str]:
        """The classes by their numbers, which are not those of labels: a background comes first."""
        return self.named_classes(self.root)

    def draw(self, path: Path) -> Canvas:
        height, width = self.photograph_size(path)
        canvas = self.canvas(height, width, path)
        for number, line in numbered_lines(path) if path.is_file() else ():
            with located(f"{shown(path)}: line {number}"):
                at, points = _outline(line)
                if at >= len(self.named):
                    raise UserError("", f"class {at}", f"{len(self.named)} are named")
                region = shapes.polygon(points * (width, height), canvas.size)
                canvas.paint(region, self.value_of(self.named[at]), depth=region.area)
        return canvas


def _outline(line: str) -> tuple[int, shapes.Points]:
    """Read a line: the number of the class and the outline, in shares of the photograph."""
    words = line.split()
    if len(words) == 5:
        raise UserError("", "a box, no outline", "export the dataset for segmentation")
    try:
        at, values = int(words[0]), np.array(words[1:], np.float64)
    except ValueError:
        raise UserError("", repr(line[:40]), "give numbers alone") from None
    if len(words) < 7 or len(words) % 2 == 0 or at < 0:
        raise UserError(
            "", f"{len(words)} numbers", "give a class, and x and y of 3 corners or more"
        )
    if not ((values >= -BEYOND) & (values <= 1 + BEYOND)).all():
        raise UserError("", "a corner outside the photograph", "x and y are shares, 0 to 1")
    return at, values.reshape(-1, 2)


class _Description(NamedTuple):
    """What data.yaml says, or the folders where there is none."""

    place: str
    names: Any  # of the classes: a list, or by their numbers
    folders: dict[str | None, Any]  # or lists, of each split; None: there are no splits


def _describe(root: Path) -> _Description:
    """Read data.yaml, or the only YAML file; without one, look for classes.txt and images/."""
    if (path := find_yaml(root)) is not None:
        data = read_yaml(path)
        return _Description(
            f"{shown(path)}: names",
            data.get("names"),
            {split: data[split] for split in SPLITS if data.get(split)},
        )
    names = next(
        (path for path in (root / "classes.txt", root / "labels/classes.txt") if path.is_file()),
        None,
    )
    pairs = [(split_in(one.name), f"images/{one.name}") for one in sorted(root.glob("images/*/"))]
    pairs += [
        (split_in(one.parent.name), f"{one.parent.name}/images")
        for one in sorted(root.glob("*/images/"))
    ]
    folders: dict[str | None, Any] = {split: folder for split, folder in pairs if split}
    if not folders and (root / "images").is_dir():
        folders = {None: "images"}
    if not folders:
        known = "it names classes, train and val; or give images/, labels/ and classes.txt"
        raise UserError(root / "data.yaml", "no such file", known)
    return _Description(shown(names or root / "classes.txt"), names and read_lines(names), folders)


def _photographs(root: Path, split: str | None) -> Iterator[Path | UserError]:
    """Go through the photographs of a split; an error for each that is not there."""
    description = _describe(root)
    given = description.folders[split]
    for entry in given if isinstance(given, list) else [given]:
        place = _locate(root, str(entry))
        if place is None:
            where = description.place.removesuffix("names") + str(split)
            yield UserError(where, f"{str(entry)!r} is not there", "add it")
        elif place.is_dir():
            for paths in find_files(place, *IMAGE_SUFFIXES).values():
                yield from paths
        else:
            for line in read_lines(place):
                what = "names a photograph that is not there"
                missing = UserError(place, what, "add it", repr(line))
                yield _locate(root, line) or missing


def _locate(root: Path, name: str) -> Path | None:
    """Find a file or folder that data.yaml or a list names, whose paths may be of another place.

    Nothing outside the dataset is found: of `../train/images` it is `train/images`.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    for start in range(len(parts)):
        if ".." not in parts[start:] and parts[start] != "/":
            place = root.joinpath(*parts[start:])
            if os.path.exists(place):  # not Path's own, which raises where a name is too long
                return place
    return None


def _label_file(image: Path, root: Path) -> Path:
    """Return the text file of a photograph: in labels/ where that is in images/."""
    parts = list(image.relative_to(root).with_suffix(".txt").parts)
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == "images":
            parts[at] = "labels"
            break
    return root.joinpath(*parts)
