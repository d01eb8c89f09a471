"""Cityscapes: street scenes of 50 cities in 19 classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from scaseg.data.datasets.base import INVALID, PairedDataset
from scaseg.data.decode.documents import read_json
from scaseg.data.decode.files import MAX_PIXELS, require_pixels
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.pairs import Listing, find_each, find_files, pair_files
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, located

# id: name, as cityscapesscripts/helpers/labels.py has them; those with a colour are the classes
LABELS = (
    "unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic",
    "ground", "road", "sidewalk", "parking", "rail track", "building", "wall", "fence",
    "guard rail", "bridge", "tunnel", "pole", "polegroup", "traffic light", "traffic sign",
    "vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "caravan", "trailer",
    "train", "motorcycle", "bicycle",
)  # fmt: skip
COLORS = {
    "road": (128, 64, 128), "sidewalk": (244, 35, 232), "building": (70, 70, 70),
    "wall": (102, 102, 156), "fence": (190, 153, 153), "pole": (153, 153, 153),
    "traffic light": (250, 170, 30), "traffic sign": (220, 220, 0), "vegetation": (107, 142, 35),
    "terrain": (152, 251, 152), "sky": (70, 130, 180), "person": (220, 20, 60),
    "rider": (255, 0, 0), "car": (0, 0, 142), "truck": (0, 0, 70), "bus": (0, 60, 100),
    "train": (0, 80, 100), "motorcycle": (0, 0, 230), "bicycle": (119, 11, 32),
}  # fmt: skip
CLASSES = tuple(COLORS)
NOT_DRAWN = "license plate"  # its id is -1: the car around it stays
BY_ID = np.array([CLASSES.index(n) if n in COLORS else IGNORE for n in LABELS], np.int32)
BY_TRAIN_ID = np.full(IGNORE + 1, INVALID, np.int32)
BY_TRAIN_ID[: len(CLASSES)] = np.arange(len(CLASSES))
BY_TRAIN_ID[IGNORE] = IGNORE
FAR = 1e6  # pixels: Pillow counts with 32 bits
GROUNDS = ("gtFine", "gtCoarse")
FORMS = ("labelTrainIds.png", "labelIds.png", "polygons.json")  # the first that is complete


class Cityscapes(PairedDataset):
    """leftImg8bit/SPLIT/CITY/NAME_leftImg8bit.png + gtFine/SPLIT/CITY/NAME_gtFine_labelIds.png.

    https://www.cityscapes-dataset.com. Label maps are *_labelTrainIds.png where they were made for
    all photographs of a split, else *_labelIds.png, else *_polygons.json, drawn in their order as
    cityscapesscripts draws them. gtCoarse/ is read where there is no gtFine/. The classes are the
    19 of the benchmark; all other ids are unlabelled. The labels of test are not public.
    """

    default_classes = CLASSES
    palette = tuple(COLORS.values())

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = [ground for ground in GROUNDS if (root / ground).is_dir()]
        if found and (root / "leftImg8bit").is_dir():
            return f"leftImg8bit/ and {found[0]}/ of Cityscapes"
        return None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        images = root / "leftImg8bit"
        return tuple(s for s in ("train", "val", "train_extra") if (images / s).is_dir())

    @property
    def notes(self) -> list[str]:
        test = len(find_files(self.root / "leftImg8bit" / "test", "_leftImg8bit.png"))
        what = f"test: {test} photographs left out, their labels are not public"
        return [what] if test else []

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        ground = next((one for one in GROUNDS if (root / one).is_dir()), GROUNDS[0])

        def pair(part: str) -> Listing:
            images, labels = root / "leftImg8bit" / part, root / ground / part
            names = find_files(images, "_leftImg8bit.png").keys()
            maps = {form: find_files(labels, f"_{ground}_{form}").keys() for form in FORMS}
            best = max(FORMS, key=lambda form: len(names & maps[form]))  # of equals the first
            ends = [f"_{ground}_{best}"], ["_leftImg8bit.png"]
            return pair_files(sorted(names | maps[best]), images, labels, *ends, str(labels))

        return find_each(root / "leftImg8bit", split, cls.splits(root), pair)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        if path.suffix == ".json":
            document = read_json(path).value
            with located(path):
                return self.unlabelled(_draw(document, self.max_pixels or MAX_PIXELS))
        values = read_labels(path, max_pixels=self.max_pixels)
        if path.name.endswith(FORMS[0]):
            return self.renumber(values, BY_TRAIN_ID, path, "0 to 18 are classes, 255 unlabelled")
        return self.renumber(values, BY_ID, path, f"ids are 0 to {len(LABELS) - 1}")


def _draw(annotation: Any, max_pixels: int) -> NDArray[np.int32]:
    """Draw the polygons of a file in their order, later ones over earlier ones."""
    try:
        width, height = int(annotation["imgWidth"]), int(annotation["imgHeight"])
        objects = [
            (str(one["label"]), [(float(x), float(y)) for x, y in one["polygon"]])
            for one in annotation["objects"]
            if not one.get("deleted")
        ]
        if min(width, height) < 1 or any(
            not abs(x) + abs(y) < FAR for _, one in objects for x, y in one
        ):
            raise ValueError("no size, or a corner far outside")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError("", "not in the form of Cityscapes", "fetch it again") from error
    require_pixels(width, height, max_pixels)
    labels = Image.new("L", (width, height), IGNORE)
    canvas = ImageDraw.Draw(labels)
    for label, corners in objects:
        if label not in LABELS:
            label = label.removesuffix("group")
        if label not in (*LABELS, NOT_DRAWN):
            raise UserError("", f"names {label!r}", "Cityscapes has no such label")
        if label != NOT_DRAWN and len(corners) > 1:
            canvas.polygon(corners, fill=int(BY_ID[LABELS.index(label)]))
    return np.asarray(labels).astype(np.int32)
