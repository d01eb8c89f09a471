"""COCO Stuff: 80 thing and 91 stuff classes, on 10,000 or on 164,000 photographs of COCO."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import INVALID, PairedDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.decode.matlab import read_label_map, read_names
from scaseg.data.folders.pairs import (
    Listing,
    find_each,
    find_files,
    pair_files,
    read_list,
    require_split,
)
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError

# ids 1 to 182; https://github.com/nightrome/cocostuff/blob/master/labels.txt
NAMES = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "street sign", "stop sign", "parking meter", "bench", "bird",
    "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "hat",
    "backpack", "umbrella", "shoe", "eye glasses", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard",
    "surfboard", "tennis racket", "bottle", "plate", "wine glass", "cup", "fork", "knife",
    "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli", "carrot", "hot dog",
    "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "mirror", "dining table",
    "window", "desk", "toilet", "door", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "blender", "book",
    "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush", "hair brush", "banner",
    "blanket", "branch", "bridge", "building-other", "bush", "cabinet", "cage", "cardboard",
    "carpet", "ceiling-other", "ceiling-tile", "cloth", "clothes", "clouds", "counter",
    "cupboard", "curtain", "desk-stuff", "dirt", "door-stuff", "fence", "floor-marble",
    "floor-other", "floor-stone", "floor-tile", "floor-wood", "flower", "fog", "food-other",
    "fruit", "furniture-other", "grass", "gravel", "ground-other", "hill", "house", "leaves",
    "light", "mat", "metal", "mirror-stuff", "moss", "mountain", "mud", "napkin", "net", "paper",
    "pavement", "pillow", "plant-other", "plastic", "platform", "playingfield", "railing",
    "railroad", "river", "road", "rock", "roof", "rug", "salad", "sand", "sea", "shelf",
    "sky-other", "skyscraper", "snow", "solid-other", "stairs", "stone", "straw",
    "structural-other", "table", "tent", "textile-other", "towel", "tree", "vegetable",
    "wall-brick", "wall-concrete", "wall-other", "wall-panel", "wall-stone", "wall-tile",
    "wall-wood", "water-other", "waterdrops", "window-blind", "window-other", "wood",
)  # fmt: skip
UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91)  # ids that COCO named but never labelled
USED = tuple(id_ for id_ in range(1, len(NAMES) + 1) if id_ not in UNUSED)
CLASSES = tuple(NAMES[id_ - 1] for id_ in USED)

BY_ID = np.full(len(NAMES) + 1, INVALID, np.int32)
BY_ID[0] = IGNORE
BY_ID[list(USED)] = np.arange(len(USED))
# version 1.0 counts from 1, as MATLAB does, and leaves the unused ids out
BY_ID_1_0 = np.array([INVALID, IGNORE, *range(len(USED))], np.int32)
BY_PIXEL = np.full(IGNORE + 1, INVALID, np.int32)  # of a PNG: the id less 1, so 0 is a class
BY_PIXEL[: len(NAMES)] = BY_ID[1:]
BY_PIXEL[IGNORE] = IGNORE
SCANNED = 20  # files, to find the version


class CocoStuff10k(PairedDataset):
    """images/NAME.jpg + annotations/NAME.mat; imageLists/train.txt and test.txt, bare names.

    Get http://calvin.inf.ed.ac.uk/wp-content/uploads/data/cocostuffdataset/cocostuff-10k-v1.1.zip
    (9,000 training and 1,000 test photographs). A label map is the variable S: 0 unlabelled, 1 to
    91 things, 92 to 182 stuff, of which 11 ids never occur; the 171 others, in order, are the
    classes. Version 1.0 has 1 unlabelled and 2 to 172 the same 171 classes in the same order; the
    two are known by `names`, which has 182 entries here and 172 there. S has 8 bits: widen it
    before subtracting. https://github.com/nightrome/cocostuff10k#label-names--indices
    """

    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = (root / "imageLists").is_dir() and any((root / "annotations").glob("*.mat"))
        return "imageLists/ and annotations/*.mat of COCO Stuff 10k" if found else None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return tuple(s for s in ("train", "test") if (root / "imageLists" / f"{s}.txt").is_file())

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        images, labels, lists = root / "images", root / "annotations", root / "imageLists"
        names = sorted(find_files(images, ".jpg").keys() | find_files(labels, ".mat").keys())
        if split is not None:
            require_split(lists, split, cls.splits(root))
            names = read_list(lists / f"{split}.txt")
        return pair_files(names, images, labels, [".mat"])

    def read_values(self, path: Path) -> NDArray[np.int32]:
        values = read_label_map(path, "S", max_pixels=self.max_pixels)
        valid = "ids 1 to 172 are known to version 1.0, 1 as unlabelled"
        if self.by_id is BY_ID:
            unused = ", ".join(map(str, UNUSED))
            valid = f"ids 0 to 182 are known to version 1.1, 0 as unlabelled, but not {unused}"
        return self.renumber(values, self.by_id, path, valid)

    @cached_property
    def by_id(self) -> NDArray[np.int32]:
        """The class of each id, in the version of these files."""
        folder = self.root / "annotations"  # all of it: a subset may hold only one torn file
        for path, *_ in sorted(find_files(folder, ".mat").values())[:SCANNED]:
            try:
                names = read_names(path)
            except UserError:
                continue  # torn, which reading its labels will report, or without names
            if len(names) == len(USED) + 1 and names[0] == "unlabeled":
                return BY_ID_1_0
            if len(names) - (names[:1] == ("unlabeled",)) == len(NAMES):
                return BY_ID
            remedy = "version 1.1 names 182 and version 1.0 172, 'unlabeled' first"
            raise UserError(path, f"names {len(names)} classes", remedy)
        what = f"no variable `names` in the first {SCANNED} files"
        raise UserError(folder, what, "versions 1.0 and 1.1 are known by it")


class CocoStuff164k(PairedDataset):
    """images/train2017/NAME.jpg + annotations/train2017/NAME.png, and val2017.

    train2017/ and val2017/ may also lie at the root, as COCO's archives unpack. Get those from
    http://images.cocodataset.org/zips/ and the label maps, stuffthingmaps_trainval2017.zip, from
    http://calvin.inf.ed.ac.uk/wp-content/uploads/data/cocostuffdataset/ . The classes are those of
    CocoStuff10k. A pixel is the id less 1: 0 is a person, 255 unlabelled
    (https://github.com/nightrome/cocostuff/issues/17). The *TrainIds.png that mmseg writes beside
    the label maps are ignored.
    """

    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        for split in cls.splits(root):
            # COCO's panoptic PNGs lie in annotations/panoptic_train2017
            if any((root / "annotations" / f"{split}2017").glob("0*.png")):
                return f"annotations/{split}2017/*.png of COCO Stuff"
        return None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return tuple(s for s in ("train", "val") if (root / "annotations" / f"{s}2017").is_dir())

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        def pair(part: str) -> Listing:
            year, labels = f"{part}2017", root / "annotations" / f"{part}2017"
            at_root = not (root / "images" / year).is_dir() and (root / year).is_dir()
            images = root / year if at_root else root / "images" / year
            maps = {name for name in find_files(labels, ".png") if not name.endswith("TrainIds")}
            names = sorted(maps | find_files(images, ".jpg").keys())
            return pair_files(names, images, labels, [".png"], listed_in="annotations")

        return find_each(root / "annotations", split, cls.splits(root), pair)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        values = read_labels(path, max_pixels=self.max_pixels)
        valid = "0 to 181 are ids less 1, unused ones left out, 255 unlabelled"
        return self.renumber(values, BY_PIXEL, path, valid)
