"""ADE20K in the 150 classes of the scene parsing benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.pairs import Listing, find_each, find_files, pair_files
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError

# the first of the names that objectInfo150.txt gives each
CLASSES = (
    "wall", "building", "sky", "floor", "tree", "ceiling", "road", "bed", "windowpane", "grass",
    "cabinet", "sidewalk", "person", "earth", "door", "table", "mountain", "plant", "curtain",
    "chair", "car", "water", "painting", "sofa", "shelf", "house", "sea", "mirror", "rug", "field",
    "armchair", "seat", "fence", "desk", "rock", "wardrobe", "lamp", "bathtub", "railing",
    "cushion", "base", "box", "column", "signboard", "chest of drawers", "counter", "sand", "sink",
    "skyscraper", "fireplace", "refrigerator", "grandstand", "path", "stairs", "runway", "case",
    "pool table", "pillow", "screen door", "stairway", "river", "bridge", "bookcase", "blind",
    "coffee table", "toilet", "flower", "book", "hill", "bench", "countertop", "stove", "palm",
    "kitchen island", "computer", "swivel chair", "boat", "bar", "arcade machine", "hovel", "bus",
    "towel", "light", "truck", "tower", "chandelier", "awning", "streetlight", "booth",
    "television", "airplane", "dirt track", "apparel", "pole", "land", "bannister", "escalator",
    "ottoman", "bottle", "buffet", "poster", "stage", "van", "ship", "fountain", "conveyer belt",
    "canopy", "washer", "plaything", "swimming pool", "stool", "barrel", "basket", "waterfall",
    "tent", "bag", "minibike", "cradle", "oven", "ball", "food", "step", "tank", "trade name",
    "microwave", "pot", "animal", "bicycle", "lake", "dishwasher", "screen", "blanket", "sculpture",
    "hood", "sconce", "vase", "traffic light", "tray", "ashcan", "fan", "pier", "crt screen",
    "plate", "monitor", "bulletin board", "shower", "radiator", "glass", "clock", "flag",
)  # fmt: skip
FOLDERS = {"train": "training", "val": "validation"}
TABLE = np.array([IGNORE, *range(len(CLASSES))], np.int32)


class Ade20k(PairedDataset):
    """images/training/NAME.jpg + annotations/training/NAME.png, and validation.

    http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip ; root is
    ADEChallengeData2016 or the folder that holds it. A label map has 0, other objects, unlabelled
    here, and 1 to 150. The full ADE20K (3,688 classes, *_seg.png) is not read.
    """

    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        home = _home(root)
        if any((home / "images" / "ADE").glob("training")):
            return "images/ADE/training of the full ADE20K"
        marks = ("objectInfo150.txt", "sceneCategories.txt")
        images, labels = (home / kind / FOLDERS["train"] for kind in ("images", "annotations"))
        named = any((home / mark).is_file() for mark in marks) or any(labels.glob("ADE_*.png"))
        if named and images.is_dir() and labels.is_dir():
            return "images/training and annotations/training of ADE20K"
        return None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        annotations = _home(root) / "annotations"
        return tuple(split for split, name in FOLDERS.items() if (annotations / name).is_dir())

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        home = _home(root)
        if (home / "images" / "ADE").is_dir():
            what = "the full ADE20K, of 3,688 classes, is not read"
            remedy = "get ADEChallengeData2016.zip, the benchmark of 150"
            raise UserError(home, what, remedy)

        def pair(part: str) -> Listing:
            images, labels = (home / kind / FOLDERS[part] for kind in ("images", "annotations"))
            names = sorted(find_files(images, ".jpg").keys() | find_files(labels, ".png").keys())
            return pair_files(names, images, labels, [".png"], listed_in="annotations")

        return find_each(home / "annotations", split, cls.splits(root), pair)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        values = read_labels(path, max_pixels=self.max_pixels)
        return self.renumber(values, TABLE, path, "0 is unlabelled and 1 to 150 are classes")


def _home(root: Path) -> Path:
    inside = root / "ADEChallengeData2016"
    return inside if inside.is_dir() else root
