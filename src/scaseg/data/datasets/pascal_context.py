"""PASCAL Context: VOC 2010 with every pixel labelled, in its 59 most frequent classes."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import INVALID, PairedDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.decode.matlab import read_label_map
from scaseg.data.folders.pairs import Listing, find_files, pair_files, read_list, require_split
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError
from scaseg.io.paths import read_lines

# The 59 by their ids among the 459 of labels.txt, which are alphabetical; so are these.
IDS = {
    2: "aeroplane", 9: "bag", 18: "bed", 19: "bedclothes", 22: "bench", 23: "bicycle", 25: "bird",
    31: "boat", 33: "book", 34: "bottle", 44: "building", 45: "bus", 46: "cabinet", 59: "car",
    65: "cat", 68: "ceiling", 72: "chair", 80: "cloth", 85: "computer", 98: "cow", 104: "cup",
    105: "curtain", 113: "dog", 115: "door", 144: "fence", 158: "floor", 159: "flower",
    162: "food", 187: "grass", 189: "ground", 207: "horse", 220: "keyboard", 232: "light",
    258: "motorbike", 259: "mountain", 260: "mouse", 284: "person", 295: "plate", 296: "platform",
    308: "pottedplant", 324: "road", 326: "rock", 347: "sheep", 349: "shelves", 354: "sidewalk",
    355: "sign", 360: "sky", 366: "snow", 368: "sofa", 397: "table", 415: "track", 416: "train",
    420: "tree", 424: "truck", 427: "tvmonitor", 440: "wall", 445: "water", 454: "window",
    458: "wood",
}  # fmt: skip
CLASSES = tuple(IDS.values())
RENAMED = {"diningtable": "table", "bedcloth": "bedclothes", "clothes": "cloth"}
ALL_IDS = 459
BY_ID = np.full(ALL_IDS + 1, IGNORE, np.int32)
BY_ID[list(IDS)] = np.arange(len(CLASSES))

FORMS = (("SegmentationClassContext", ".png"), ("Context", ".png"), ("trainval", ".mat"))
LISTS = ("SegmentationContext/{}.txt", "Segmentation/{}_context.txt", "Main/{}.txt")
SCANNED = 500  # PNGs of Context/, for what their 0 means: most photographs have unlabelled pixels


class PascalContext(PairedDataset):
    """VOCdevkit/VOC2010/JPEGImages/NAME.jpg and one of three forms of label maps, as found.

    Photographs: http://host.robots.ox.ac.uk/pascal/VOC/voc2010/VOCtrainval_03-May-2010.tar ; root
    is VOC2010, VOCdevkit, or the folder that holds it. Label maps lie in any of these, the first
    form that is there:

    - SegmentationClassContext/NAME.png of mmseg: 0 unlabelled, 1 to 59.
    - Context/NAME.png of PaddleSeg: 0 to 58 and 255 unlabelled, or, of older copies, as mmseg's;
      255 or 59 in any file decides (https://github.com/PaddlePaddle/PaddleSeg, convert_voc2010).
    - trainval/NAME.mat of https://www.cs.stanford.edu/~roozbeh/pascal-context/ : the variable
      LabelMap, 16 bits, 459 ids, of which the other 400 count as unlabelled.

    Lists: VOC2010/ImageSets/SegmentationContext/train.txt and val.txt, PaddleSeg's
    Segmentation/train_context.txt, or VOC's Main/train.txt; the first that is there.

    The classes are always 59 and alphabetical, named as in labels.txt: table, bedclothes and cloth
    where 59_labels.txt has diningtable, bedcloth and clothes. That file lists VOC's 20 first
    (https://github.com/open-mmlab/mmsegmentation/issues/1940): where one lies in the very folder
    of the PNGs, their values follow it; else they are alphabetical, as both converters write them.
    """

    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        try:
            voc, (labels, suffix) = _find_voc(root), _find_labels(root)
        except UserError:
            return None
        return f"{voc.name}/JPEGImages and {labels.name}/*{suffix} of PASCAL Context"

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return tuple(split for split in ("train", "val") if _find_lists(root, split))

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        voc = _find_voc(root)
        labels, suffix = _find_labels(root)
        names = sorted(find_files(labels, suffix))
        if split is not None:
            require_split(voc / "ImageSets", split, cls.splits(root))
            names = read_list(_find_lists(root, split)[0])
        return pair_files(names, voc / "JPEGImages", labels, [suffix])

    def read_values(self, path: Path) -> NDArray[np.int32]:
        if path.suffix == ".mat":
            values, table = read_label_map(path, "LabelMap", max_pixels=self.max_pixels), BY_ID
            valid = f"ids are 1 to {ALL_IDS}, and 0 unlabelled"
        else:
            values, table = read_labels(path, max_pixels=self.max_pixels), self.by_pixel
            valid = "1 to 59 are classes and 0 is unlabelled"
            if table[0] != IGNORE:
                valid = "0 to 58 are classes and 255 is unlabelled"
        return self.renumber(values, table, path, valid)

    @cached_property
    def by_pixel(self) -> NDArray[np.int32]:
        """The class of each pixel value of a PNG."""
        folder, _ = _find_labels(self.root)
        order = folder / "59_labels.txt"
        classes = _read_order(order) if order.is_file() else list(range(len(CLASSES)))
        table = np.full(IGNORE + 1, INVALID, np.int32)
        if folder.name == "Context" and _counts_from_zero(folder):
            table[: len(classes)], table[IGNORE] = classes, IGNORE
        else:
            table[1 : len(classes) + 1], table[0] = classes, IGNORE
        return table


def _counts_from_zero(folder: Path) -> bool:
    for path, *_ in sorted(find_files(folder, ".png").values())[:SCANNED]:
        with suppress(UserError):  # reading its labels will report it
            values = read_labels(path)
            if (values == IGNORE).any() or (values == len(CLASSES)).any():
                return bool((values == IGNORE).any())
    raise UserError(
        folder,
        "no PNG holds 255 or 59, so 0 may be a class or unlabelled",
        "rename it SegmentationClassContext if 0 is unlabelled",
    )


def _places(root: Path) -> tuple[Path, ...]:
    """Return the folders where parts of the dataset may be, from VOC2010 outwards."""
    return (root / "VOCdevkit" / "VOC2010", root / "VOC2010", root / "VOCdevkit", root)


def _find_voc(root: Path) -> Path:
    for place in _places(root):
        if (place / "JPEGImages").is_dir():
            return place
    raise UserError(root, "has no VOCdevkit/VOC2010/JPEGImages", "unpack VOC 2010 there")


def _find_lists(root: Path, split: str) -> list[Path]:
    paths = (_find_voc(root) / "ImageSets" / name.format(split) for name in LISTS)
    return [path for path in paths if path.is_file()]


def _find_labels(root: Path) -> tuple[Path, str]:
    for name, suffix in FORMS:
        for place in _places(root):
            if next((place / name).glob(f"*{suffix}"), None):
                return place / name, suffix
    for place in _places(root):
        merged = place / "trainval_merged.json"
        if merged.is_file():
            # run-length codes of every region of 10,103 photographs in one file: each process of
            # a loader would hold all of it to read one photograph
            raise UserError(
                merged,
                "the Detail API's one file for all photographs is not read",
                "convert it to SegmentationClassContext/*.png with mmseg's "
                "tools/dataset_converters/pascal_context.py, or get trainval/*.mat",
            )
    forms = ", ".join(f"{name}/*{suffix}" for name, suffix in FORMS)
    raise UserError(root, "has no label maps", f"one of {forms} should be there")


def _read_order(path: Path) -> list[int]:
    """Read which class each of the values 1 to 59 is, from lines such as `12: dog`."""
    order: dict[int, int] = {}
    for line in read_lines(path):
        match = re.fullmatch(r"(\d+)\s*:\s*(.+)", line)
        name = match[2].replace(" ", "") if match else ""
        name = RENAMED.get(name, name)
        if match and name in CLASSES:
            order[int(match[1])] = CLASSES.index(name)
    numbers, found = list(range(1, len(CLASSES) + 1)), len(set(order.values()))
    if sorted(order) != numbers or found != len(CLASSES):
        remedy = "it should have a line `1: aeroplane` for each"
        raise UserError(path, f"names {found} of the 59 classes", remedy)
    return [order[number] for number in numbers]
