"""Supervisely's projects: meta.json and, for each dataset, img/ and ann/."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from scaseg.data.datasets.annotated import AnnotatedDataset
from scaseg.data.decode import shapes
from scaseg.data.decode.documents import Node, read_json, sample
from scaseg.data.decode.files import max_bytes
from scaseg.data.decode.image import IMAGE_SUFFIXES, read_mask
from scaseg.data.decode.shapes import Canvas, Region
from scaseg.data.folders.layout import split_in
from scaseg.data.folders.pairs import FilePair, find_files
from scaseg.errors import UserError, located

WITHOUT_AREA = ("line", "polyline", "point", "graph")


class Supervisely(AnnotatedDataset):
    """meta.json + DATASET/img/NAME.jpg + DATASET/ann/NAME.jpg.json, as Supervisely exports them.

    https://developer.supervisely.com/getting-started/supervisely-annotation-format : polygons with
    holes, bitmaps and rectangles are drawn in their order, later ones on top. Coordinates are those
    of pixels, so an outline is a part of its polygon, and of a hole. Lines and points are left out.
    The classes are those of meta.json. Datasets called train, val, test are splits.
    """

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        is_ours = b'"classes"' in sample(root / "meta.json") and any(_datasets(root))
        return "meta.json, img/ and ann/ of Supervisely" if is_ours else None

    @classmethod
    def named_classes(cls, root: Path) -> Iterable[str]:
        return [one.get("title", str) for one in read_json(root / "meta.json").each("classes")]

    @classmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, tuple[Path, Path]]]:
        for folder in _datasets(root):
            split = split_in(folder.relative_to(root).name)
            for image in chain(*find_files(folder / "img", *IMAGE_SUFFIXES).values()):
                yield split, (folder, image)

    @classmethod
    def pair(cls, root: Path, entry: tuple[Path, Path]) -> FilePair:
        folder, image = entry
        for name in (f"{image.name}.json", f"{image.stem}.json"):
            if (labels := folder / "ann" / name).is_file():
                own = (folder / image.stem).relative_to(root).as_posix()
                return FilePair(image, labels, own)
        what = "has no annotation of a photograph"
        raise UserError(folder / "ann", what, "add it", repr(image.name))

    def draw(self, path: Path) -> Canvas:
        document = read_json(path)
        size = Node(document.value.get("size"), document.where("size"))
        canvas = self.canvas(size.get("height", int), size.get("width", int), path)
        left_out = []
        for figure in document.each("objects"):
            with located(figure.place):
                kind = figure.get("geometryType", str)
                if kind in WITHOUT_AREA:
                    left_out.append(kind)
                    continue
                value = self.value_of(figure.get("classTitle", str))
                canvas.paint(_region(figure, kind, canvas.size), value)
        self.leave_out(path, left_out)
        return canvas


def _region(figure: Node, kind: str, size: tuple[int, int]) -> Region:
    if kind == "bitmap":
        bitmap = Node(figure.value.get("bitmap"), "bitmap")
        top, left = _origin(bitmap)
        mask = read_mask(_unpack(bitmap.get("data", str), size), max_pixels=size[0] * size[1])
        return Region(top, left, mask)
    if kind not in ("polygon", "rectangle"):
        raise UserError("", f"a {kind}", "polygon, rectangle and bitmap are drawn")
    points = Node(figure.value.get("points"), "points")
    exterior = shapes.to_points(points.get("exterior", list))
    if len(exterior) < (3 if kind == "polygon" else 2):
        raise UserError("", f"a {kind} of {len(exterior)} points", "draw it, or take it out")
    if kind == "rectangle":  # the pixels of its corners belong to it
        corners = [exterior.min(axis=0), exterior.max(axis=0) + 1]
        return shapes.box(shapes.to_points(corners), size)
    region = _with_outline(exterior, size)
    for hole in points.get("interior", list, []):
        region = shapes.without(region, _with_outline(shapes.to_points(hole), size))
    return region


def _with_outline(points: shapes.Points, size: tuple[int, int]) -> Region:
    """Fill a polygon whose corners are pixels, those on its outline with it."""
    centers = points + 0.5
    outline = shapes.stroke(shapes.to_points([*centers, centers[0]]), 1, size)
    return shapes.union([shapes.polygon(centers, size), outline])


def _origin(bitmap: Node) -> tuple[int, int]:
    """Return the row and column of a bitmap's first pixel, which stand as x and y."""
    with suppress(TypeError, ValueError, OverflowError):
        left, top = (int(value) for value in bitmap.get("origin", list))
        return top, left
    raise UserError(bitmap.where("origin"), "not a point", "give x and y")


def _unpack(data: str, size: tuple[int, int]) -> bytes:
    """Return the PNG of a bitmap, packed by zlib and then base64: no more than it may need."""
    most = max_bytes(size[0] * size[1])
    try:
        unpacker = zlib.decompressobj()
        png = unpacker.decompress(base64.b64decode(data, validate=True), most)
    except (ValueError, zlib.error) as error:
        raise UserError("", "a damaged bitmap", "export it again", str(error)) from error
    if not unpacker.eof:
        what = "more bytes than it has pixels for" if len(png) == most else "a bitmap that is cut"
        raise UserError("", what, "export it again")
    return png


def _datasets(root: Path) -> Iterator[Path]:
    """Go through the folders with img/ and ann/; a dataset may be in a dataset, or the root."""
    if (root / "ann").is_dir() and (root / "img").is_dir():
        yield root
        return
    for folder in sorted(path.parent for path in root.glob("*/ann")):
        if (folder / "img").is_dir():
            yield folder
