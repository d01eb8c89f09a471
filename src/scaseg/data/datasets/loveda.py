"""LoveDA: 5,987 aerial images of three Chinese cities and the country around them, 7 classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.suffix import SuffixDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.endings import Endings
from scaseg.data.folders.layout import Place
from scaseg.data.sample import IGNORE

CLASSES = ("background", "building", "road", "water", "barren", "forest", "agriculture")
AREAS = ("Urban", "Rural")
FOLDERS = ("Train/", "Val/", "Train/Train/", "Val/Val/", "")  # twice, as its archives unpack
TABLE = np.array([IGNORE, *range(len(CLASSES))], np.int32)


class LoveDA(SuffixDataset):
    """Train/Urban/images_png/NAME.png + Train/Urban/masks_png/NAME.png; Rural and Val likewise.

    https://github.com/Junjue-Wang/LoveDA , a label map has 0, no data, and 1 to 7. Test is left
    out: its label maps are not public.
    """

    is_general = False
    options = ()
    default_classes = CLASSES

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        scenes = [f"{folder}{area}" for folder in FOLDERS for area in AREAS]
        found = [scene for scene in scenes if (root / scene / "masks_png").is_dir()]
        return f"{found[0]}/images_png and masks_png of LoveDA" if found else None

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        return CLASSES

    @classmethod
    def endings(cls, place: Place) -> Endings:
        return Endings("", "")

    def read_values(self, path: Path) -> NDArray[np.int32]:
        values = read_labels(path, max_pixels=self.max_pixels)
        return self.renumber(values, TABLE, path, "0 is no data and 1 to 7 are classes")
