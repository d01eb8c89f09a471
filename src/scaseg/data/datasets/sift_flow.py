"""SIFT Flow: outdoor scenes of LabelMe, 33 semantic and 3 geometric classes."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.listed import no_such_split, pair_up, read_list, renumber, stems
from scaseg.data.datasets.paired import Listing, PairedDataset
from scaseg.data.decode.matlab import read_label_map, read_names
from scaseg.data.sample import IGNORE
from scaseg.io.paths import shown

SCENES = "spatial_envelope_256x256_static_8outdoorcategories"
TEST_LIST = "TestSet1.txt"
UNANNOTATED = {"highway_bost181", "street_urb506"}
SEMANTIC = (
    "awning", "balcony", "bird", "boat", "bridge", "building", "bus", "car", "cow", "crosswalk",
    "desert", "door", "fence", "field", "grass", "moon", "mountain", "person", "plant", "pole",
    "river", "road", "rock", "sand", "sea", "sidewalk", "sign", "sky", "staircase", "streetlight",
    "sun", "tree", "window",
)  # fmt: skip
GEOMETRIC = ("sky", "horizontal", "vertical")


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

    folder: ClassVar[str] = "SemanticLabels"
    usual_classes: ClassVar[tuple[str, ...]] = SEMANTIC

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        return ("train", "test") if (root / TEST_LIST).is_file() else ()

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        labels = root / cls.folder / SCENES
        for name in sorted(stems(labels, ".mat"))[:1]:
            try:
                found = read_names(labels / f"{name}.mat")
            except ValueError:
                break  # without names; or torn, which reading its labels will tell
            if len(found) == len(cls.usual_classes):
                return found
        return cls.usual_classes

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        images, labels = root / "Images" / SCENES, root / cls.folder / SCENES
        everything = stems(images, ".jpg") - UNANNOTATED
        if split is None:
            names = sorted(everything)
        elif split not in ("train", "test"):
            raise no_such_split(root, split, cls.splits(root))
        elif not (root / TEST_LIST).is_file():
            raise ValueError(f"{shown(root / TEST_LIST)}: no such file; it tells test from train")
        else:
            test = [name for name in read_list(root / TEST_LIST) if name not in UNANNOTATED]
            names = test if split == "test" else sorted(everything - set(test))
        return pair_up(names, images, labels, ".mat")

    def read_values(self, path: Path) -> NDArray[np.int32]:
        table = np.array([IGNORE, *range(len(self.usual_classes))], np.int32)
        fits = f"0 is unlabelled and 1 to {len(self.usual_classes)} are classes"
        values = self.void_to_zero(read_label_map(path, "S", max_pixels=self.max_pixels))
        return renumber(values, table, path, fits=fits, unlabelled=self.ignore_index)

    def void_to_zero(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        """Bring a file's own sign for unlabelled to 0."""
        return values


class SiftFlowGeo(SiftFlow):
    """SIFT Flow's geometric labels: GeoLabels/SCENES/NAME.mat, -1 unlabelled, 1 to 3 the classes.

    The variable `names` names them; where a file has none: sky, horizontal, vertical, as in
    https://github.com/shelhamer/fcn.berkeleyvision.org/blob/master/data/sift-flow/classes.txt
    0 counts as unlabelled too, as it does there.
    """

    folder = "GeoLabels"
    usual_classes = GEOMETRIC

    def void_to_zero(self, values: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.where(values == -1, 0, values)
