"""SIFT Flow: outdoor scenes of LabelMe, 33 semantic and 3 geometric classes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.matlab import read_label_map, read_names
from scaseg.data.folders.pairs import Listing, find_files, pair_files, read_list, require_split
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError

SCENES = "spatial_envelope_256x256_static_8outdoorcategories"
TEST_LIST = "TestSet1.txt"
UNANNOTATED = {"highway_bost181", "street_urb506"}
SEMANTIC = (
    "awning", "balcony", "bird", "boat", "bridge", "building", "bus", "car", "cow", "crosswalk",
    "desert", "door", "fence", "field", "grass", "moon", "mountain", "person", "plant", "pole",
    "river", "road", "rock", "sand", "sea", "sidewalk", "sign", "sky", "staircase", "streetlight",
    "sun", "tree", "window",
)  # fmt: skip


class SiftFlow(PairedDataset):
    r"""Images/SCENES/NAME.jpg + SemanticLabels/SCENES/NAME.mat; splits train and test.

    SCENES is spatial_envelope_256x256_static_8outdoorcategories. Get it from
    http://www.cs.unc.edu/~jtighe/Papers/ECCV10/siftflow/SiftFlowDataset.zip

    A label map is the variable S: 0 unlabelled, 1 to 33 the classes, named by the variable
    `names`, or by `SEMANTIC` where a file has none. TestSet1.txt names 200 test photographs, a
    line `SCENES\NAME.jpg`, with a backslash; all others are for training. Two photographs are left
    out because nobody labelled them, and cow, desert and moon never occur in the test set:
    https://github.com/shelhamer/fcn.berkeleyvision.org/blob/master/data/sift-flow/classes.txt
    """

    default_classes: ClassVar[tuple[str, ...]] = SEMANTIC
    folder: ClassVar[str] = "SemanticLabels"
    void: ClassVar[int] = 0  # unlabelled, beside 0

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = (root / "Images" / SCENES).is_dir() and (root / "SemanticLabels").is_dir()
        return "Images/ and SemanticLabels/ of SIFT Flow" if found else None

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return ("train", "test") if (root / TEST_LIST).is_file() else ()

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        labels = root / cls.folder / SCENES
        for path, *_ in sorted(find_files(labels, ".mat").values())[:1]:
            with suppress(UserError):  # without names; or torn, as reading its labels will report
                if len(names := read_names(path)) == len(cls.default_classes):
                    return names
        return cls.default_classes

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        images, labels = root / "Images" / SCENES, root / cls.folder / SCENES
        everything = find_files(images, ".jpg").keys() - UNANNOTATED
        names = sorted(everything)
        if split is not None:
            path = root / TEST_LIST
            if not path.is_file():
                raise UserError(path, "no such file", "it separates test from train")
            require_split(root, split, cls.splits(root))
            test = [name for name in read_list(path) if name not in UNANNOTATED]
            names = test if split == "test" else sorted(everything.difference(test))
        return pair_files(names, images, labels, [".mat"], listed_in=TEST_LIST)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        count = len(self.default_classes)
        values = read_label_map(path, "S", max_pixels=self.max_pixels)
        values[values == self.void] = 0
        table = np.array([IGNORE, *range(count)], np.int32)
        return self.renumber(values, table, path, f"0 is unlabelled and 1 to {count} are classes")


class SiftFlowGeo(SiftFlow):
    """SIFT Flow's geometric labels: GeoLabels/SCENES/NAME.mat, -1 unlabelled, 1 to 3 the classes.

    The variable `names` names them; where a file has none: sky, horizontal, vertical, as in
    https://github.com/shelhamer/fcn.berkeleyvision.org/blob/master/data/sift-flow/classes.txt
    0 counts as unlabelled too, as it does there.
    """

    default_classes = ("sky", "horizontal", "vertical")
    folder = "GeoLabels"
    void = -1

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        return None  # the same folder as SiftFlow's, whose labels most people want
