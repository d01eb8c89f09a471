"""Label maps as Roboflow exports them: x_mask.png beside x.jpg, values named in _classes.csv."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import is_void, require_fewer
from scaseg.data.datasets.base import INVALID
from scaseg.data.datasets.suffix import SuffixDataset
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.endings import Endings
from scaseg.data.folders.layout import Place, subfolders
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError
from scaseg.io.paths import cached_by_file, numbered_lines, shown

TABLE = "_classes.csv"
HEADER = ("pixel value", "class")  # that of classifications, by the same name, is another
MOST = 65535  # a pixel of 16 bits


class Roboflow(SuffixDataset):
    """train/NAME.jpg + train/NAME_mask.png + train/_classes.csv: Semantic Segmentation Masks.

    The file has lines `Pixel Value, Class` (0, background); what it calls unlabelled, void or the
    like becomes 255. The splits are train/, valid/ and test/.
    """

    is_general = False
    options = ()

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = [path for path in _tables(root) if _is_table(path)]
        return f"{shown(found[0].relative_to(root))} of Roboflow" if found else None

    @classmethod
    def endings(cls, place: Place) -> Endings:
        return Endings("", "_mask.png")

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in _names(root).values() if not is_void(name)))

    @cached_property
    def _named(self) -> dict[int, str]:
        """The class of each value."""
        return _names(self.root)

    def read_values(self, path: Path) -> NDArray[np.int32]:
        table = np.full(max(self._named) + 1, INVALID, np.int32)
        classes = self.own_classes(self.root)
        for value, name in self._named.items():
            table[value] = IGNORE if is_void(name) else classes.index(name)
        valid = f"add it to {TABLE}, as `unlabelled` if it is no class"
        return self.renumber(read_labels(path, max_pixels=self.max_pixels), table, path, valid)

    @property
    def notes(self) -> Sequence[str]:
        void = [name for name in self._named.values() if is_void(name)]
        more = [f"the value of {', '.join(void)} is read as unlabelled"] if void else []
        return [*super().notes, *more]


def _tables(root: Path) -> list[Path]:
    places = [root, *(root / name for name in subfolders(root))]
    return [path for place in places if (path := place / TABLE).is_file()]


def _names(root: Path) -> dict[int, str]:
    """Return the class of each value; UserError where splits differ."""
    if not (tables := _tables(root)):
        raise UserError(root / TABLE, "no such file", "it names the values of label maps")
    first, *others = tables
    named = _read_table(first)
    for other in others:
        if _read_table(other) != named:
            what = f"names other classes than {shown(first.relative_to(root))}"
            raise UserError(other, what, "export all splits at once")
    return named


def _rows(path: Path) -> list[tuple[int, str, str]]:
    """Return the number of each line and its two cells."""
    cells = ((at, line.partition(",")) for at, line in numbered_lines(path))
    return [(at, value.strip(), name.strip(' "')) for at, (value, _, name) in cells]


def _is_table(path: Path) -> bool:
    with suppress(UserError):
        return [(value.lower(), name.lower()) for _, value, name in _rows(path)[:1]] == [HEADER]
    return False


@cached_by_file(8)
def _read_table(path: Path) -> dict[int, str]:
    """Read the names of pixel values."""
    if not _is_table(path):
        what = "does not begin with `Pixel Value, Class`"
        raise UserError(path, what, "give Roboflow's own file")
    named: dict[int, str] = {}
    for number, digits, name in _rows(path)[1:]:
        value = int(digits) if re.fullmatch(r"[0-9]{1,5}", digits) else MOST + 1
        if not name or value > MOST or value in named:
            what = f"line {number} is no pixel value and its class"
            raise UserError(path, what, "give each value once, as `0, background`")
        named[value] = name
    if all(map(is_void, named.values())):
        raise UserError(path, "names no class", "give lines such as `0, background`")
    require_fewer(named, shown(path))
    return named
