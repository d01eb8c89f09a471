"""PASCAL VOC's segmentation, and what other tools export in its form."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.datasets.color_table import VOC_SOURCE, ColorTable, built_in, read_table
from scaseg.data.decode.image import image_mode, read_labels
from scaseg.data.folders.pairs import Listing, find_files, pair_files, read_list, require_split
from scaseg.errors import UserError

LABELS = ("SegmentationClass", "SegmentationClassPNG")  # the second is labelme2voc's
SPLITS = ("train", "val", "test")


class VocSegmentation(PairedDataset):
    """JPEGImages/NAME.jpg + SegmentationClass/NAME.png; ImageSets/Segmentation/train.txt, val.txt.

    root is VOC2012 (or another year), VOCdevkit, or the folder that holds it. A label map is a
    palette PNG of 0, background, to 20 and 255, the borders, unlabelled; RGB copies are read by
    VOC's colours. http://host.robots.ox.ac.uk/pascal/VOC/voc2012/

    Where other tools export this form, labelmap.txt (CVAT, Datumaro: `name:r,g,b:parts:actions`)
    or class_names.txt (labelme) names the classes.
    """

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        try:
            home = _home(root)
            return f"JPEGImages/ and {_labels(home).name}/ of PASCAL VOC"
        except UserError:
            return None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        home = _home(root)
        maps = find_files(_labels(home), ".png")
        lists = {split: path for split in SPLITS if (path := _list(home, split)).is_file()}
        # VOC names test photographs whose labels it keeps
        if "test" in lists and maps.keys().isdisjoint(read_list(lists["test"])):
            del lists["test"]
        return tuple(lists)

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        home = _home(root)
        for path in (home / "class_names.txt", home.parent / "class_names.txt"):
            if path.is_file():
                return tuple(name for name, _ in read_table(path))
        return _table(home).names

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        home = _home(root)
        labels = _labels(home)
        names = sorted(find_files(labels, ".png"))
        if split is not None:
            require_split(home / "ImageSets" / "Segmentation", split, cls.splits(root))
            names = read_list(_list(home, split))
        suffixes = (".jpg", ".jpeg", ".png")
        return pair_files(names, home / "JPEGImages", labels, [".png"], suffixes)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.classes == self.table.names:
            self.palette = self.table.palette

    @property
    def notes(self) -> list[str]:
        home = _home(self.root)
        if not _list(home, "test").is_file() or "test" in self.splits(self.root):
            return []
        return ["test: left out, its photographs have no label maps"]

    @cached_property
    def table(self) -> ColorTable:
        """The classes and their colours."""
        return _table(_home(self.root))

    def read_values(self, path: Path) -> NDArray[np.int32]:
        mode = image_mode(path, max_pixels=self.max_pixels)
        # of VOC itself the index counts, whatever palette a copy has; of others the colour
        if mode in ("RGB", "RGBA") or (mode == "P" and self.table.source != VOC_SOURCE):
            values, _ = self.table.read_labels(path, max_pixels=self.max_pixels)
        else:
            values = read_labels(path, max_pixels=self.max_pixels)
        return self.unlabelled(values)


def _home(root: Path) -> Path:
    """Return the folder of one year."""
    places = [root, *sorted(root.glob("VOC2*")), *sorted(root.glob("VOCdevkit/VOC2*"))]
    found = [place for place in places if (place / "JPEGImages").is_dir()]
    if len(found) > 1:
        years = ", ".join(place.name for place in found)
        raise UserError(root, f"holds several years ({years})", "give the folder of one")
    if not found:
        raise UserError(root / "JPEGImages", "no such folder", "give VOC2012 or the like")
    return found[0]


def _labels(home: Path) -> Path:
    for name in LABELS:
        if (home / name).is_dir():
            return home / name
    raise UserError(home / LABELS[0], "no such folder", "it should hold the label maps")


def _list(home: Path, split: str) -> Path:
    return home / "ImageSets" / "Segmentation" / f"{split}.txt"


def _table(home: Path) -> ColorTable:
    for path in (home / "labelmap.txt", home.parent / "labelmap.txt"):
        if path.is_file():
            return ColorTable.of(path)
    return built_in("voc")
