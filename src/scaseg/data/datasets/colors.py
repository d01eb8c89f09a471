"""Label maps whose classes are colours, with a table of names and colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.color_table import BUILT_IN, Color, ColorTable, built_in, read_table
from scaseg.data.datasets.suffix import SuffixDataset, are_colored
from scaseg.data.decode.image import read_colors
from scaseg.errors import UserError
from scaseg.io.paths import shown

TABLES = ("class_dict.csv", "label_colors.txt", "labelmap.txt", "classes.txt")
UNKNOWN = ("error", "ignore", "nearest")
SCANNED = 10  # label maps that are searched for colours where there is no table


class ColorDataset(SuffixDataset):
    """train/NAME.png + train_labels/NAME_L.png in colours, with class_dict.csv or the like.

    Folders, endings and lists are those of `suffix`. Classes and colours are read from
    --classes-file (lines `name r g b` or `r g b name`, a CSV file with r, g, b in its header, or
    "voc" or "camvid" for their own), else class_dict.csv, label_colors.txt, labelmap.txt,
    classes.txt. A class called void, unlabelled, ignore or unknown is unlabelled, and several
    colours may have one name. Without colours in the table R = G = B is the class index.

    A colour of no class is an error, unless --unknown-colors says ignore (unlabelled) or nearest.
    """

    options = (*SuffixDataset.options, "classes_file", "unknown_colors")
    classes_file: ClassVar[str] = ""
    unknown_colors: ClassVar[str] = "error"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if self.unknown_colors not in UNKNOWN:
            raise UserError.choice("--unknown-colors", self.unknown_colors, UNKNOWN)
        self._replaced: list[Counter[Color]] = []  # a list: many threads read, append is atomic
        super().__init__(*arguments, **options)
        if self.table is not None and self.classes == self.table.names:
            self.palette = self.table.palette

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = cls.example(root)
        if found is None or not are_colored(found[1]):
            return None
        path = cls.table_file(root)
        table = f"and {path.name}" if isinstance(path, Path) else "but no table of their classes"
        return f"label maps in colours ({shown(found[1][0].relative_to(root))}) {table}"

    @classmethod
    def table_file(cls, root: Path) -> Path | str | None:
        """Return the file that names the classes, or the name of a built-in table."""
        if cls.classes_file in BUILT_IN:
            return cls.classes_file
        if cls.classes_file:
            return Path(cls.classes_file)
        there = {path.name.lower(): path for path in root.iterdir() if path.is_file()}
        return next((there[name] for name in TABLES if name in there), None)

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        path = cls.table_file(root)
        if path is None:
            return None
        if isinstance(path, str):
            return built_in(path).names
        return (
            ColorTable.of(path).names
            if _has_colors(path)
            else tuple(n for n, _ in read_table(path))
        )

    @cached_property
    def table(self) -> ColorTable | None:
        """The classes by colour; None where R = G = B is their index."""
        path = self.table_file(self.root)
        if isinstance(path, str):
            return built_in(path)
        return ColorTable.of(path) if path is not None and _has_colors(path) else None

    def read_values(self, path: Path) -> NDArray[np.int32]:
        if self.table is None:
            return self._read_index(path)
        values, unknown = self.table.read_labels(path, self.unknown_colors, self.max_pixels)
        if unknown:
            self._replaced.append(unknown)
        return self.unlabelled(values)

    def _read_index(self, path: Path) -> NDArray[np.int32]:
        colors = read_colors(path, max_pixels=self.max_pixels)
        if (colors != colors[..., :1]).any():
            raise self._no_table()
        return colors[..., 0].astype(np.int32)

    def _no_table(self) -> UserError:
        """The error for colours without a table: it names those that are there."""
        counted: Counter[Color] = Counter()
        for pair in self.pairs[:SCANNED]:
            colors = read_colors(pair.labels, max_pixels=self.max_pixels).reshape(-1, 3)
            distinct, counts = np.unique(colors, axis=0, return_counts=True)
            counted.update(dict(zip(map(tuple, distinct.tolist()), counts.tolist(), strict=True)))
        some = ", ".join(" ".join(map(str, color)) for color, _ in counted.most_common(6))
        fits = [name for name in BUILT_IN if counted.keys() <= built_in(name).by_color.keys()]
        more = f", or {' or '.join(fits)}, which has these colours" if fits else ""
        remedy = f"give --classes-file a file of lines `name r g b`{more}"
        detail = f"{len(counted)} colours: {some}" + (", ..." if len(counted) > 6 else "")
        return UserError(shown(self.root), "no table says which class a colour is", remedy, detail)

    @property
    def notes(self) -> Sequence[str]:
        found = []
        if self.table is not None and self.table.void:
            found.append(f"{', '.join(self.table.void)}: unlabelled, no class")
        if self.table is not None and self._replaced:
            became = "unlabelled" if self.unknown_colors == "ignore" else "the nearest class"
            what = self.table.describe(sum(self._replaced, Counter()))
            found.append(f"colours of no class became {became}: {what}")
        return found


def _has_colors(path: Path) -> bool:
    return any(color is not None for _, color in read_table(path))
