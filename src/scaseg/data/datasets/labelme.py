"""LabelMe: a JSON file of shapes for each photograph (https://github.com/wkentaro/labelme)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from scaseg.data.datasets.annotated import AnnotatedDataset, PhotographFinder, sample_name
from scaseg.data.datasets.base import EmbeddedDataset
from scaseg.data.decode import shapes
from scaseg.data.decode.documents import Node, read_json, sample
from scaseg.data.decode.image import IMAGE_SUFFIXES, read_mask
from scaseg.data.decode.shapes import Canvas, Region
from scaseg.data.folders.layout import split_in
from scaseg.data.folders.pairs import FilePair, find_files
from scaseg.errors import UserError, located
from scaseg.io.paths import cached_by_file, shown

OUTLINES = ("polygon", "oriented_rectangle", "rotation")  # the last is X-AnyLabeling's
LINE_WIDTH, POINT_RADIUS = 10, 5  # as labelme's own conversion draws what has no area
SAMPLED = 20  # JSON files that are looked into, to recognize them


class _Header(NamedTuple):
    """What is needed of a file before it is drawn."""

    labels: tuple[str, ...]
    image: str
    is_embedded: bool  # the photograph is part of the file


class LabelMe(EmbeddedDataset, AnnotatedDataset):
    """NAME.json of shapes beside NAME.jpg, or in another folder: labelme's own form.

    The photograph is the one that imagePath names, one called like the JSON file, or imageData; a
    photograph without a JSON file is not labelled yet and left out. Later shapes lie over earlier
    ones. Lines are 10 pixels wide and points have a radius of 5, as labelme converts them. The
    classes are the labels of all files in alphabetical order. Folders called train, val, test are
    splits.
    """

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        first = next(_annotations(root, SAMPLED), None)
        return None if first is None else f"{shown(first.relative_to(root))} of labelme"

    @classmethod
    def named_classes(cls, root: Path) -> Iterable[str]:
        found: set[str] = set()
        for path in _annotations(root):
            with suppress(UserError):  # drawing it will report it
                found.update(_header(path).labels)
        return sorted(found)

    @classmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, Path]]:
        for path in _annotations(root):
            splits = (split_in(part) for part in path.relative_to(root).parts[:-1])
            yield next((split for split in splits if split), None), path

    @classmethod
    def pair(cls, root: Path, entry: Path) -> FilePair:
        header = _header(entry)
        around = (entry.parent, entry.parent.parent / "images")
        below = root / "images" / entry.parent.relative_to(root)
        finder = PhotographFinder([*around, below, root / "images", root])
        own = [f"{entry.stem}{suffix}" for suffix in IMAGE_SUFFIXES]
        found = (finder.find(one) for one in (header.image, *own))
        image = next((one for one in found if one is not None), None)
        if image is None and header.is_embedded:
            suffix = PurePosixPath(header.image).suffix.lower()
            name = f"{entry.stem}{suffix if suffix in IMAGE_SUFFIXES else '.png'}"
            return FilePair(entry / name, entry, sample_name(entry, root))
        image = image or finder.require(header.image, entry)
        return FilePair(image, entry, sample_name(image, root))

    def extract(self, path: Path) -> bytes:
        document = read_json(path.parent)
        return _decode(document.get("imageData", str), document.where("imageData"))

    @property
    def notes(self) -> list[str]:
        named = {pair.image for pair in self.find(self.root, None)[0]}
        beside = {path.parent for path in named if path.parent.is_dir()}
        there = {one for folder in beside for one in folder.iterdir()}
        rest = {one for one in there - named if one.suffix.lower() in IMAGE_SUFFIXES}
        unlabelled = [f"photographs left out, without a JSON file: {len(rest)}"] if rest else []
        return [*super().notes, *unlabelled]

    def draw(self, path: Path) -> Canvas:
        document = read_json(path)
        height, width = (document.get(key, int, 0) for key in ("imageHeight", "imageWidth"))
        if not (height and width):
            height, width = self.photograph_size(path)
        canvas = self.canvas(height, width, path)
        for shape in document.each("shapes"):
            with located(shape.place):
                value = self.value_of(shape.get("label", str))
                canvas.paint(_region(shape, canvas.size), value)
        return canvas


def _region(shape: Node, size: tuple[int, int]) -> Region:
    kind, points = (
        shape.get("shape_type", str, "polygon"),
        shapes.to_points(shape.value.get("points")),
    )
    needed = dict.fromkeys(OUTLINES, 3)
    needed |= dict.fromkeys(("rectangle", "circle", "line", "linestrip", "mask"), 2)
    if len(points) < needed.get(kind, 1):
        raise UserError("", f"a {kind} of {len(points)} points", f"{needed[kind]} are needed")
    if kind in OUTLINES:
        return shapes.polygon(points, size)
    if kind == "rectangle":
        return shapes.box(points[:2], size)
    if kind == "circle":  # its centre, and a point on it
        radius = float(np.hypot(*(points[1] - points[0])))
        return shapes.ellipse(points[0], (radius, radius), size)
    if kind in ("line", "linestrip"):
        return shapes.stroke(points, LINE_WIDTH, size)
    if kind in ("point", "points"):
        radii = (POINT_RADIUS, POINT_RADIUS)
        return shapes.union([shapes.ellipse(point, radii, size) for point in points])
    if kind == "mask":  # the part of the photograph between its two corners, as a PNG
        data = _decode(shape.get("mask", str), "")
        left, top = points[0].astype(int).tolist()
        return Region(top, left, read_mask(data, max_pixels=size[0] * size[1]))
    known = "polygon, rectangle, circle, line, linestrip, point, mask"
    raise UserError("", f"a shape of type {kind!r}", f"{known} are drawn")


def _decode(text: str, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UserError(place, "not valid base64", "export it again") from error


def _annotations(root: Path, most: int | None = None) -> Iterator[Path]:
    """Go through the JSON files, or the first of them, that have shapes."""
    for paths in islice(find_files(root, ".json").values(), most):
        yield from (path for path in paths if b'"shapes"' in sample(path))


@cached_by_file(1 << 17)
def _header(path: Path) -> _Header:
    document = read_json(path)
    found = (shape.value.get("label") for shape in document.each("shapes"))
    labels = dict.fromkeys(one for one in found if isinstance(one, str))  # drawing needs them all
    image, data = document.get("imagePath", str, ""), document.value.get("imageData")
    return _Header(tuple(labels), image, bool(data))
