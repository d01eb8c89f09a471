"""Label maps whose classes are colours, with a table of names and colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scaseg.data.datasets.color_table import (
    BUILT_IN,
    Color,
    ColorTable,
    built_in,
    count_colors,
    read_table,
)
from scaseg.data.datasets.suffix import SuffixDataset, are_colored
from scaseg.data.decode.image import JPEG, read_colors
from scaseg.errors import UserError
from scaseg.io.paths import shown

TABLES = ("class_dict.csv", "label_colors.txt", "labelmap.txt", "classes.txt")
TABLE = "give --classes-file a file of lines `name r g b`"
UNKNOWN = ("error", "ignore", "nearest")
KEPT = 100  # unknown colours of a label map that are counted: a blurred one has thousands
MOST_BYTES = 1 << 16  # of a text that may be a table of classes under another name
SCANNED = 10  # label maps that are searched for colours where there is no table


class ColorDataset(SuffixDataset):
    """train/NAME.png + train_labels/NAME_L.png in colours, with class_dict.csv or the like.

    Folders, endings and lists are those of `suffix`. Classes and colours are read from
    --classes-file (lines `name r g b` or `r g b name`, a CSV file with r, g, b in its header, or
    voc, camvid, camvid11 or uavid for their own), else class_dict.csv, label_colors.txt,
    labelmap.txt, classes.txt, or the only text there that has colours. A class called void,
    unlabelled, ignore or unknown is unlabelled, and several colours may have one name. Without
    colours in the table R = G = B is the class index.

    A colour of no class is an error, unless --unknown-colors says ignore (unlabelled) or nearest;
    with nearest, label maps may be JPEG.
    """

    options = (*SuffixDataset.options, "classes_file", "unknown_colors")
    extensions = (*SuffixDataset.extensions, *JPEG)
    classes_file: ClassVar[str] = ""
    unknown_colors: ClassVar[str] = "error"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if self.unknown_colors not in UNKNOWN:
            raise UserError.choice("--unknown-colors", self.unknown_colors, UNKNOWN)
        self._replaced: list[Counter[Color]] = []  # a list: many threads read, append is atomic
        super().__init__(*arguments, **options)
        if self.table is not None and self.classes == self.table.names:
            self.palette = self.table.palette
        if self.table is None:
            self._require_gray()

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = cls.example(root)
        if found is None or not are_colored(found[1]):
            return None
        path = cls.table_file(root)
        table = "but no table of their classes" if path is None else f"and {path.name}"
        return f"label maps in colours ({shown(found[1][0].relative_to(root))}) {table}"

    @classmethod
    def table_file(cls, root: Path) -> Path | None:
        """Return the file that names the classes."""
        if cls.classes_file:
            return Path(cls.classes_file)
        there = {path.name.lower(): path for path in sorted(root.iterdir()) if path.is_file()}
        if named := [there[name] for name in TABLES if name in there]:
            return named[0]
        texts = [path for name, path in there.items() if name.endswith((".csv", ".txt"))]
        fits = [path for path in texts if path.stat().st_size < MOST_BYTES and _is_table(path)]
        return fits[0] if len(fits) == 1 else None

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        if (table := cls.find_table(root)) is not None:
            return table.names
        path = cls.table_file(root)
        return None if path is None else tuple(name for name, _ in read_table(path))

    @classmethod
    def find_table(cls, root: Path) -> ColorTable | None:
        """Read the classes by colour; None where R = G = B is their index."""
        if cls.classes_file in BUILT_IN:
            return built_in(cls.classes_file)
        path = cls.table_file(root)
        return ColorTable.of(path) if path is not None and _has_colors(path) else None

    @cached_property
    def table(self) -> ColorTable | None:
        """What `find_table` reads."""
        return self.find_table(self.root)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        if self.table is None:
            return self._read_index(path)
        values, unknown = self.table.read_labels(path, self.unknown_colors, self.max_pixels)
        if unknown:
            self._replaced.append(Counter(dict(unknown.most_common(KEPT))))
        return self.unlabelled(values)

    def _read_index(self, path: Path) -> NDArray[np.int32]:
        colors = read_colors(path, max_pixels=self.max_pixels)
        if (colors != colors[..., :1]).any():
            raise UserError(path, "has colours, but the table has names alone", TABLE)
        return colors[..., 0].astype(np.int32)

    def _require_gray(self) -> None:
        """Refuse colours without a table at once, and name those that are there."""
        blurred = [pair.labels for pair in self.pairs if pair.labels.suffix.lower() in JPEG]
        if blurred:
            what = "a JPEG label map, and no table of the colours that it had"
            raise UserError(blurred[0], what, f"{TABLE}, and --unknown-colors nearest")
        counted: Counter[Color] = Counter()
        for pair in self.pairs[:SCANNED]:
            with suppress(UserError):  # reading its labels will report it
                counted += count_colors(read_colors(pair.labels, max_pixels=self.max_pixels))
        if all(red == green == blue for red, green, blue in counted):
            return
        some = ", ".join(" ".join(map(str, color)) for color, _ in counted.most_common(6))
        fits = [name for name in BUILT_IN if counted.keys() <= built_in(name).by_color.keys()]
        more = f", or {' or '.join(fits)}, which has these colours" if fits else ""
        detail = f"{len(counted)} colours: {some}" + (", ..." if len(counted) > 6 else "")
        what = "no table says which class a colour is"
        raise UserError(self.root, what, f"{TABLE}{more}", detail)

    @property
    def notes(self) -> Sequence[str]:
        found = list(super().notes)
        if self.table is not None and self.table.void:
            found.append(f"the colour of {', '.join(self.table.void)} is read as unlabelled")
        if self.table is not None and self._replaced:
            became = "unlabelled" if self.unknown_colors == "ignore" else "the nearest class"
            what = self.table.describe(sum(self._replaced, Counter()))
            found.append(f"colours of no class became {became}: {what}")
        return found


def _is_table(path: Path) -> bool:
    with suppress(UserError):
        return _has_colors(path)
    return False


def _has_colors(path: Path) -> bool:
    return any(color is not None for _, color in read_table(path))
