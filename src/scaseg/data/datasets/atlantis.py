"""ATLANTIS: 5,195 photographs of waters, natural and artificial, in 56 classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.pairs import Listing, find_each, find_files, pair_files
from scaseg.data.sample import IGNORE

CLASSES = (
    "bicycle", "boat", "breakwater", "bridge", "building", "bus", "canal", "car", "cliff",
    "culvert", "cypress_tree", "dam", "ditch", "fence", "fire_hydrant", "fjord", "flood",
    "glaciers", "hot_spring", "lake", "levee", "lighthouse", "mangrove", "marsh", "motorcycle",
    "offshore_platform", "parking_meter", "person", "pier", "pipeline", "pole", "puddle", "rapids",
    "reservoir", "river", "river_delta", "road", "sea", "ship", "shoreline", "sidewalk", "sky",
    "snow", "spillway", "swimming_pool", "terrain", "traffic_sign", "train", "truck", "umbrella",
    "vegetation", "wall", "water_tower", "water_well", "waterfall", "wetland",
)  # fmt: skip
SPLITS = ("test", "val", "train")  # who keeps a photograph that is in two of them
TABLE = np.array([IGNORE, *range(len(CLASSES))], np.int32)


class Atlantis(FolderDataset):
    """images/SPLIT/SCENE/NAME.jpg + masks/SPLIT/SCENE/NAME.png; splits train, val and test.

    https://github.com/smhassanerfani/atlantis , its folder atlantis/ or the one that holds it; a
    label map has 0, unlabelled, and 1 to 56. A few photographs lie in two splits, under two
    scenes: they stay in test, or else in val. A folder of images/, labels/ and lists with labels
    from 0, as `scaseg data prepare` writes it, is read as well.
    """

    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        masks = _home(root) / "masks" / "train"
        scenes = [one for one in ("breakwater", "lighthouse", "wetland") if (masks / one).is_dir()]
        is_there = scenes and (_home(root) / "images" / "train").is_dir()
        return "images/train and masks/train/SCENE of ATLANTIS" if is_there else None

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        return CLASSES

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        masks = _home(root) / "masks"
        if not masks.is_dir():
            return super().splits(root)
        return tuple(split for split in reversed(SPLITS) if (masks / split).is_dir())

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        home = _home(root)
        if not (home / "masks").is_dir():
            return super().find(root, split)

        def pair(part: str) -> Listing:
            images, labels = home / "images" / part, home / "masks" / part
            names = find_files(images, ".jpg").keys() | find_files(labels, ".png").keys()
            names -= _elsewhere(home, part).keys()
            return pair_files(sorted(names), images, labels, [".png"], listed_in="masks")

        return find_each(home / "masks", split, cls.splits(root), pair)

    @property
    def notes(self) -> Sequence[str]:
        home = _home(self.root)
        twice = {part: _elsewhere(home, part) for part in SPLITS}
        return [
            f"{part}: {name} left out, the same photograph is in {other}"
            for part, names in twice.items()
            for name, other in sorted(names.items())
        ]

    def read_values(self, path: Path) -> NDArray[np.int32]:
        values = read_labels(path, max_pixels=self.max_pixels)
        if not (_home(self.root) / "masks").is_dir():
            return values
        return self.renumber(values, TABLE, path, "0 is unlabelled and 1 to 56 are classes")


def _home(root: Path) -> Path:
    inside = root / "atlantis"
    return inside if (inside / "masks").is_dir() else root


def _elsewhere(home: Path, split: str) -> dict[str, str]:
    """Return the photographs of a split that another one keeps, and which."""
    kept: dict[str, str] = {}
    for other in SPLITS[: SPLITS.index(split)]:
        for name in find_files(home / "images" / other, ".jpg"):
            kept.setdefault(name.rpartition("/")[2], other)
    own = find_files(home / "images" / split, ".jpg")
    return {name: kept[n] for name in own if (n := name.rpartition("/")[2]) in kept}
