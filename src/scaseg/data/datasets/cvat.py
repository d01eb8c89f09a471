"""CVAT for images 1.1: one XML file for all photographs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scaseg.data.datasets.annotated import AnnotatedDataset, PhotographFinder, sample_name
from scaseg.data.decode import shapes
from scaseg.data.decode.documents import Element, read_xml, sample
from scaseg.data.decode.shapes import Canvas, Region
from scaseg.data.folders.layout import split_in
from scaseg.data.folders.pairs import FilePair
from scaseg.errors import UserError, located
from scaseg.io.paths import cached_by_file, on_disk, shown

REMEDY = "export as CVAT for images 1.1"
WITHOUT_AREA = ("polyline", "points", "cuboid", "skeleton", "tag")


class _File(NamedTuple):
    classes: tuple[str, ...]
    images: dict[str, Element]


class Cvat(AnnotatedDataset):
    """annotations.xml + images/NAME.jpg, as "CVAT for images 1.1" exports them.

    https://docs.cvat.ai/docs/manual/advanced/xml_format : polygons, masks, boxes and ellipses are
    drawn by their z_order, later ones of the same on top; polylines, points, cuboids, skeletons and
    tags are left out. The classes are the labels of the task or project in their order. Subsets
    called train, val, test are splits, and so are files (train.xml, of Datumaro). "Segmentation
    mask 1.1" is read as voc.
    """

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = _files(root)
        return f"{shown(found[0].name)} of CVAT" if found else None

    @classmethod
    def named_classes(cls, root: Path) -> Iterable[str]:
        return [name for path in _required(root) for name in _load(path).classes]

    @classmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, tuple[Path, str, Element]]]:
        for path in _required(root):
            for name, image in _load(path).images.items():
                split = split_in(image.get("subset", "")) or split_in(path.stem)
                yield split, (path, name, image)

    @classmethod
    def pair(cls, root: Path, entry: tuple[Path, str, Element]) -> FilePair:
        path, name, image = entry
        images, subset = root / "images", image.get("subset", "") or "default"
        finder = PhotographFinder([images / subset, root / subset, images, root])
        found = finder.require(image.get("name"), path)
        return FilePair(found, path / name, sample_name(found, root))

    def draw(self, path: Path) -> Canvas:
        home = on_disk(path)
        image = _load(home).images[path.relative_to(home).as_posix()]
        with located(f"{shown(home)}: line {image.line}"):
            height, width = int(image.number("height")), int(image.number("width"))
        canvas = self.canvas(height, width, path)
        for one in image.children:
            with located(f"{shown(home)}: line {one.line}"):
                if one.tag not in WITHOUT_AREA:
                    region, value = _region(one, canvas.size), self.value_of(one.get("label"))
                    canvas.paint(region, value, depth=-one.number("z_order", "0"))
        self.leave_out(path, (one.tag for one in image.children if one.tag in WITHOUT_AREA))
        return canvas


def _region(shape: Element, size: tuple[int, int]) -> Region:
    if shape.tag == "polygon":
        points = shapes.to_points(_numbers(shape.get("points").replace(";", ",")), flat=True)
        if len(points) < 3:
            raise UserError("", f"a polygon of {len(points)} points", "3 are needed")
        return shapes.polygon(points, size)
    if shape.tag == "box":
        corners = [[shape.number(x), shape.number(y)] for x, y in (("xtl", "ytl"), ("xbr", "ybr"))]
        return shapes.box(shapes.to_points(corners), size, shape.number("rotation", "0"))
    if shape.tag == "ellipse":
        center = shapes.to_points([[shape.number("cx"), shape.number("cy")]])[0]
        radii = shape.number("rx"), shape.number("ry")
        return shapes.ellipse(center, radii, size, shape.number("rotation", "0"))
    if shape.tag == "mask":  # run lengths of the part of the photograph at left, top
        top, left, height, width = (
            int(shape.number(name)) for name in ("top", "left", "height", "width")
        )
        if not (0 <= height <= size[0] and 0 <= width <= size[1]):
            raise UserError("", f"a mask of {height} x {width}", "it is larger than its photograph")
        counts = _numbers(shape.get("rle"))
        region = shapes.runs(counts.astype(np.int64), height, width, order="rows")
        return region._replace(top=region.top + top, left=region.left + left)
    raise UserError("", f"<{shape.tag}>", "polygon, mask, box and ellipse are drawn")


def _numbers(text: str) -> shapes.Points:
    try:
        return np.array(text.split(","), np.float64)
    except ValueError:
        raise UserError("", f"{text[:40]!r}", "give numbers") from None


def _files(root: Path) -> list[Path]:
    """Return the files of annotations: CVAT's one, or Datumaro's for each split."""
    paths = [root / "annotations.xml", *sorted(root.glob("*.xml"))]
    some = {path: sample(path) for path in paths}
    found = [path for path in some if b"<annotations" in some[path] and b"<meta" in some[path]]
    return found[:1] if found[:1] == paths[:1] else found


def _required(root: Path) -> list[Path]:
    named = root / "annotations.xml"  # whatever is in it: reading it says what is wrong
    found = _files(root) or [named]
    if not found[0].is_file():
        raise UserError(named, "no such file", REMEDY)
    return found


@cached_by_file(4)  # it is asked for by every photograph
def _load(path: Path) -> _File:
    document = read_xml(path)
    with located(path):
        if next(document.find("track"), None) is not None:
            raise UserError("", "CVAT for video", REMEDY)
        images: dict[str, Element] = {}
        for image in document.find("image"):
            name = "/".join(filter(None, [image.get("subset", ""), image.get("name")]))
            name = name.replace("\\", "/").lstrip("/")
            if name in images:
                what = f"{name!r} is there twice"
                raise UserError(f"line {image.line}", what, "each image has its own")
            images[name] = image
        names = [name for meta in document.find("meta") for name in _labels(meta)]
        if not names:
            raise UserError("", "names no label", REMEDY)
    return _File(tuple(names), images)


def _labels(meta: Element) -> Iterator[str]:
    """Go through the labels of a task, a job or a project."""
    for element in meta.children:
        if element.tag == "label":
            if not any(kind.text in WITHOUT_AREA for kind in element.find("type")):
                yield from (name.text for name in element.find("name"))
        else:
            yield from _labels(element)
