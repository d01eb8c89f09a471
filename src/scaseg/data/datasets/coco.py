"""COCO's annotations: one JSON file for a split (https://cocodataset.org/#format-data)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.annotated import FOLDERS, AnnotatedDataset, PhotographFinder, sample_name
from scaseg.data.decode import shapes
from scaseg.data.decode.documents import Node, read_json, sample
from scaseg.data.decode.image import read_colors
from scaseg.data.decode.shapes import Canvas, Region
from scaseg.data.folders.layout import in_order, split_in
from scaseg.data.folders.pairs import FilePair
from scaseg.errors import UserError, located
from scaseg.io.paths import cached_by_file, on_disk, shown

PLACES = ("annotations/*.json", "*.json", "*/*.json")  # of the files, the first that has any
MOST_FILES = 50  # in one of them: where there are more, each is of one photograph


class _Object(NamedTuple):
    """An annotation: its category, its outline or id as it stands in the file, and where."""

    category: int
    shape: Any
    place: str


class _Photograph(NamedTuple):
    name: str
    height: int
    width: int
    label_map: str  # the PNG of a panoptic annotation, or empty
    objects: list[_Object]


class _File(NamedTuple):
    """A file of annotations, with what is needed of it."""

    categories: dict[int, str]
    photographs: dict[str, _Photograph]


_Entry = tuple[Path, PhotographFinder, _Photograph]  # the file that names a photograph


class CocoInstances(AnnotatedDataset):
    """annotations/instances_train2017.json + train2017/ (or images/), as COCO has them.

    Also Roboflow's train/_annotations.coco.json, the export of CVAT and Label Studio, and any other
    JSON file with images, annotations and categories. The classes are the categories in the order
    of their ids, which may have gaps; two of one name are one, and one that only stands above
    others, without an annotation, is none. Polygons and run-length codes are read, and boxes
    without an outline are refused. Where objects overlap, the smaller lies on top. iscrowd decides
    nothing: in COCO it marks groups, in CVAT's export all that was painted. Splits are those that
    the files are named after.
    """

    kind: ClassVar[str] = "instances"

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = _files(root, cls.kind)
        return f"{shown(found[0].relative_to(root))} of COCO" if found else None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return in_order(cls._by_split(root))

    @classmethod
    def _by_split(cls, root: Path) -> dict[str | None, Path]:
        """Return the file of each split; None: its name says none."""
        found: dict[str | None, Path] = {}
        for path in _files(root, cls.kind):
            folder = path.relative_to(root).parent
            split = split_in(path.stem) or split_in(str(folder))
            if split in found:
                what = f"{shown(found[split].name)} has annotations of the same split"
                raise UserError(path, what, "move one of them away")
            found[split] = path
        if not found:
            known = "annotations/instances_train2017.json or the like"
            raise UserError(root, "has no annotations of COCO", f"{known} should be there")
        if None in found and len(found) > 1:
            what = "its name says no split, but others do"
            raise UserError(found[None], what, "rename it, or move it away")
        return found

    @classmethod
    def named_classes(cls, root: Path) -> Iterable[str]:
        names: dict[int, list[str]] = {}
        for path in cls._by_split(root).values():
            for id_, name in _load(path).categories.items():
                names.setdefault(id_, []).append(name)
        return [name for _, same in sorted(names.items()) for name in same]

    @classmethod
    def entries(cls, root: Path) -> Iterator[tuple[str | None, _Entry]]:
        for split, path in cls._by_split(root).items():
            finder = PhotographFinder(_folders(root, split, path.parent))
            for photograph in _load(path).photographs.values():
                yield split, (path, finder, photograph)

    @classmethod
    def pair(cls, root: Path, entry: _Entry) -> FilePair:
        path, finder, photograph = entry
        image = finder.require(photograph.name, path)
        return FilePair(image, cls._labels(path, photograph), sample_name(image, root))

    @classmethod
    def _labels(cls, path: Path, photograph: _Photograph) -> Path:
        """Return the label map of a photograph: a part of the file, named by it."""
        return path / photograph.name

    def draw(self, path: Path) -> Canvas:
        home = on_disk(path)
        file = _load(home)
        photograph = file.photographs[path.relative_to(home).as_posix()]
        canvas = self.canvas(photograph.height, photograph.width, path)
        for one in photograph.objects:
            with located(one.place):
                value, region = self.value_of(_name(file, one.category)), _region(one, canvas.size)
                canvas.paint(region, value, depth=region.area)
        return canvas


class CocoPanoptic(CocoInstances):
    """annotations/panoptic_train2017.json + panoptic_train2017/NAME.png, as COCO has them.

    A PNG holds the id of a segment in each pixel, R + 256 G + 65,536 B, and the JSON file the
    category of each segment; 0 is unlabelled, and so is a photograph without segments. Classes and
    photographs as for instances.
    """

    options = ("classes_file",)
    uncovered = "unlabelled"
    kind = "panoptic"

    @classmethod
    def _labels(cls, path: Path, photograph: _Photograph) -> Path:
        if not photograph.label_map:  # without a segment: unlabelled
            return path / photograph.name
        folders = (path.parent / path.stem, path.parent.parent / path.stem, path.parent)
        if labels := PhotographFinder(folders).find(photograph.label_map):
            return labels
        what = f"names a label map that is not in {path.stem}/"
        raise UserError(path, what, "unpack it", repr(photograph.label_map))

    def read_values(self, path: Path) -> NDArray[np.int32]:
        if not path.is_file():
            return self.draw(path).values
        colors = read_colors(path, max_pixels=self.max_pixels).astype(np.int32)
        ids = colors[..., 0] + 256 * colors[..., 1] + 65536 * colors[..., 2]
        file, photograph = self._of_label_map[path]
        classes = {0: self.ignore_index}
        for one in photograph.objects:
            with located(one.place):
                classes[int(one.shape)] = self.value_of(_name(file, one.category))
        distinct, places = np.unique(ids, return_inverse=True)
        unknown = [id_ for id_ in distinct.tolist() if id_ not in classes]
        if unknown:
            raise UserError(path, f"holds the id {unknown[0]}", "no segment has it")
        values = np.array([classes[id_] for id_ in distinct.tolist()], np.int32)
        return values[places].reshape(ids.shape)

    @cached_property
    def _of_label_map(self) -> dict[Path, tuple[_File, _Photograph]]:
        found = {}
        for path in self._by_split(self.root).values():
            file = _load(path)
            for photograph in file.photographs.values():
                with suppress(UserError):  # said of the pair
                    found[self._labels(path, photograph)] = (file, photograph)
        return found


def _files(root: Path, kind: str) -> list[Path]:
    for pattern in PLACES:
        paths = [path for path in sorted(root.glob(pattern)) if path.name[0] != "."]
        if len(paths) > MOST_FILES:
            continue
        if found := [path for path in paths if _kind(path) == kind]:
            # COCO publishes key points, and masks of stuff, of the same photographs
            named = [path for path in found if path.stem.startswith("instances")]
            return named or [path for path in found if "keypoints" not in path.stem]
    return []


def _kind(path: Path) -> str | None:
    """Return what a file is, by some of it: the keys of large ones may lie elsewhere."""
    some = sample(path)
    if b'"images"' not in some or b'"caption"' in some:
        return None
    if b'"segments_info"' in some or path.stem.startswith("panoptic"):
        return "panoptic"
    return "instances" if b'"segmentation"' in some or b'"annotations"' in some else None


def _folders(root: Path, split: str | None, beside: Path) -> Iterator[Path]:
    """Return where the photographs of a split may be."""
    homes = [root / name for name in FOLDERS if (root / name).is_dir()]
    if beside != root / "annotations":
        yield beside
    for home in (*homes, root):
        of_split = [one for one in sorted(home.iterdir()) if split and split_in(one.name) == split]
        for folder in of_split:
            if folder.is_dir() and not folder.name.startswith("panoptic"):
                yield folder
                yield from (folder / name for name in FOLDERS)
    yield from (*homes, root)


def _name(file: _File, category: int) -> str:
    if category not in file.categories:
        raise UserError("", f"category {category}", "it is not among the categories")
    return file.categories[category]


def _region(annotation: _Object, size: tuple[int, int]) -> Region:
    """Draw a segmentation: polygons, or run lengths, compressed or not."""
    shape = annotation.shape
    if isinstance(shape, dict):
        stored = shape.get("size")
        if stored != list(size):
            raise UserError("", f"run lengths of size {stored}", f"its photograph is {list(size)}")
        counts = shape.get("counts", [])
        counts = shapes.coco_counts(counts) if isinstance(counts, str) else counts
        return shapes.runs(counts, *size, order="columns")
    if not isinstance(shape, list) or not shape:
        raise UserError("", "no outline, a box alone", "draw it, or take it out")
    polygons = [shapes.to_points(one, flat=True) for one in shape]
    if any(len(points) < 3 for points in polygons):
        raise UserError("", "a polygon of less than 3 points", "draw it, or take it out")
    return shapes.union([shapes.polygon(points, size) for points in polygons])


@cached_by_file(4)  # it may be large, and is asked for by every photograph
def _load(path: Path) -> _File:
    document = read_json(path)
    photographs: dict[str, _Photograph] = {}
    by_id: dict[int, str] = {}
    for image in document.each("images"):
        id_, height, width = (_whole(image, key) for key in ("id", "height", "width"))
        name = image.get("file_name", str).replace("\\", "/").lstrip("/")
        if id_ in by_id or name in photographs:
            what = f"the id {id_} or {name!r} is there twice"
            raise UserError(image.place, what, "each has its own")
        by_id[id_] = name
        photographs[name] = _Photograph(name, height, width, "", [])
    for annotation in document.each("annotations"):
        id_ = _whole(annotation, "image_id")
        if id_ not in by_id:
            raise UserError(annotation.place, f"image_id {id_}", "no image has it")
        segments = list(annotation.each("segments_info"))
        photograph = photographs[by_id[id_]]
        if "segments_info" in annotation.value:
            png = annotation.get("file_name", str)
            photographs[by_id[id_]] = photograph._replace(label_map=png)
        for one in segments or [annotation]:
            shape = _whole(one, "id") if segments else _compact(one.value.get("segmentation"))
            photograph.objects.append(_Object(_whole(one, "category_id"), shape, one.place))
    return _File(_categories(document, photographs.values()), photographs)


def _whole(node: Node, key: str) -> int:
    value = node.get(key, float)
    if not isinstance(value, int) and not value.is_integer():
        raise UserError(node.where(key), f"{value}", "give a whole number")
    return int(value)


def _categories(document: Node, photographs: Iterable[_Photograph]) -> dict[int, str]:
    used = {one.category for photograph in photographs for one in photograph.objects}
    nodes = list(document.each("categories"))
    pairs = [(node.value.get("supercategory"), node.value.get("name")) for node in nodes]
    above = [category for category, name in pairs if category != name]
    named = {_whole(node, "id"): node.get("name", str) for node in nodes}
    return {id_: name for id_, name in named.items() if id_ in used or name not in above}


def _compact(shape: Any) -> Any:
    """Hold polygons as arrays, which take a quarter of the room of lists of numbers."""
    if not isinstance(shape, list):
        return shape
    try:
        return [np.asarray(polygon) for polygon in shape]
    except ValueError:  # drawing it will report it
        return shape
