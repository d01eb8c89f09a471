"""Classes by their colours: read from the tables that datasets bring, looked up in label maps."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import is_void
from scaseg.data.decode.image import read_colors
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, located
from scaseg.io.paths import numbered_lines, shown

Color = tuple[int, int, int]
BLOCK = 10_000  # unknown colours that are compared with a table at a time
SHOWN = 3  # unknown colours that a message names

_RGB = r"(\d+)\s*[,;\s]\s*(\d+)\s*[,;\s]\s*(\d+)"
_COLOR_FIRST = re.compile(rf"[\[(]?{_RGB}[\])]?[\s,;:]+(?=\D)(.+)")  # 64 128 64 Animal
# Animal,64,128,64; 1 Animal 64 128 64; background:0,0,0:: as CVAT and Datumaro write it
_NAME_FIRST = re.compile(rf"(?:\d+[\s,;:]+)?(.*?\D)[\s,;:]\s*[\[(]?{_RGB}[\])]?(?::[^:]*:[^:]*)?")


class ColorTable:
    """The classes of a dataset, 0, 1, ..., and the colours of each; several may share a class.

    rows: names and colours; those called void, unlabelled or the like become IGNORE. source: the
    file that they are from, for messages.
    """

    def __init__(self, rows: Iterable[tuple[str, Color]], source: str) -> None:
        self.source = source
        self.classes: dict[str, int] = {}
        self.by_color: dict[Color, int] = {}
        self.void: list[str] = []  # names of what is unlabelled
        for name, color in rows:
            if is_void(name):
                label = IGNORE
                self.void.append(name)
            else:
                label = self.classes.setdefault(name, len(self.classes))
            if self.by_color.setdefault(color, label) != label:
                what = f"{name} has the colour {_shown(color)} of another class"
                raise UserError(source, what, "each class needs its own")
        if not self.classes:
            raise UserError(source, "names no class", "give lines such as `sky 128 128 128`")
        if len(self.classes) > IGNORE:
            raise UserError(source, f"names {len(self.classes)} classes", "255 are the most")

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read a file of names and colours."""
        rows = read_table(path)
        if rows[0][1] is None:
            raise UserError(path, "has names without colours", "give lines `name r g b`")
        return cls([(name, color) for name, color in rows if color is not None], shown(path))

    def read_labels(
        self, path: Path, unknown: str = "error", max_pixels: int | None = None
    ) -> tuple[NDArray[np.int32], Counter[Color]]:
        """Read a label map of colours, see look_up; a UserError names the file."""
        colors = read_colors(path, lossy=unknown == "nearest", max_pixels=max_pixels)
        with located(path):
            return self.look_up(colors, unknown)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.classes)

    @property
    def palette(self) -> tuple[Color, ...]:
        """A colour of each class: its first."""
        first = {label: color for color, label in reversed(self.by_color.items())}
        return tuple(first[label] for label in range(len(self.classes)))

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The colours as numbers, in order, and the label of each."""
        codes = _codes(np.array(list(self.by_color), np.uint8))
        order = np.argsort(codes)
        return codes[order], np.array(list(self.by_color.values()), np.int32)[order]

    def look_up(
        self, colors: NDArray[np.uint8], unknown: str = "error"
    ) -> tuple[NDArray[np.int32], Counter[Color]]:
        """Turn colours (H, W, 3) into labels (H, W); also count the pixels of unknown colours.

        unknown: what becomes of them: "error", "ignore" (IGNORE) or "nearest" (the class of the
        nearest colour). The UserError has no place.
        """
        known, labels = self._sorted
        codes = _codes(colors)
        places = np.searchsorted(known, codes).clip(max=len(known) - 1)
        found = labels[places]
        strange = known[places] != codes
        if not strange.any():
            return found, Counter()
        counted = count_colors(colors[strange])
        if unknown == "error":
            raise self.unknown_colors(counted)
        if unknown == "nearest":
            distinct = np.array(list(counted), np.int32)
            places = np.searchsorted(_codes(distinct), codes[strange])
            all_labels = np.array(list(self.by_color.values()), np.int32)
            found[strange] = all_labels[self._nearest(distinct)][places]
        else:
            found[strange] = IGNORE
        return found, counted

    def nearest(self, color: Color) -> Color:
        """Return the colour of the table that is nearest in RGB."""
        return list(self.by_color)[int(self._nearest(np.array([color], np.int32))[0])]

    def _nearest(self, colors: NDArray[np.int32]) -> NDArray[np.intp]:
        """Return the place in the table of the nearest colour for each of (K, 3)."""
        known = np.array(list(self.by_color), np.int32)
        near = [
            ((part[:, None] - known) ** 2).sum(-1).argmin(1)
            for part in np.array_split(colors, -(-len(colors) // BLOCK))  # to bound the memory
        ]
        return np.concatenate(near)

    def describe(self, unknown: Counter[Color]) -> str:
        """Name the most frequent unknown colours, each with its nearest class."""
        names = {label: name for name, label in self.classes.items()} | {IGNORE: "unlabelled"}
        words = []
        for color, count in unknown.most_common(SHOWN):
            near = self.nearest(color)
            words.append(
                f"{count} pixels of {_shown(color)}, nearest is {names[self.by_color[near]]} "
                f"{_shown(near)}"
            )
        rest = len(unknown) - SHOWN
        return "; ".join(words) + (f"; and {rest} more colours" if rest > 0 else "")

    def unknown_colors(self, unknown: Counter[Color]) -> UserError:
        """The error for a label map that has colours of no class."""
        remedy = f"add them to {self.source}, or give --unknown-colors ignore, or nearest"
        return UserError("", "has colours of no class", remedy, self.describe(unknown))


def read_table(path: Path) -> list[tuple[str, Color | None]]:
    """Read names and colours: a CSV file with r, g, b in its header, or a line for each class.

    Lines are `name r g b`, `r g b name`, or names alone, separated by blanks, commas, semicolons,
    tabs or colons; # starts a comment.
    """
    numbered = [(at, line) for at, line in numbered_lines(path) if not line.startswith("#")]
    numbers, lines = [at for at, _ in numbered], [line for _, line in numbered]
    if not lines:
        raise UserError(path, "names no class", "give lines such as `sky 128 128 128`")
    header = [word.strip(' "').lower() for word in re.split(r"[,;\t]", lines[0])]
    columns = next(
        (one for one in (("r", "g", "b"), ("red", "green", "blue")) if {*one} <= {*header}), None
    )
    if columns is not None:
        names = [word for word in ("name", "class", "label", "category") if word in header]
        name = next(iter([*names, *(word for word in header if word not in columns)]))
        separator = next(sign for sign in ",;\t" if sign in lines[0])
        table = list(csv.reader(lines[1:], delimiter=separator, skipinitialspace=True))
        rows = [dict(zip(header, row, strict=False)) for row in table]
        placed = list(zip(numbers[1:], rows, strict=False))  # a name in quotes may span lines
        if nameless := [at for at, row in placed if not row.get(name, "").strip()]:
            raise UserError(path, f"line {nameless[0]} has no name", "name the class")
        return [
            (row[name].strip(), _color([row.get(one, "") for one in columns], path, number))
            for number, row in placed
        ]
    found: list[tuple[str, Color | None]] = []
    for number, line in numbered:
        if match := _COLOR_FIRST.fullmatch(line):
            found.append((match[4].strip(), _color(match.groups()[:3], path, number)))
        elif match := _NAME_FIRST.fullmatch(line):
            found.append((match[1].strip(" ,;:\t"), _color(match.groups()[1:], path, number)))
        else:
            found.append((line, None))
    with_color = [color is not None for _, color in found]
    if any(with_color) and not all(with_color):
        if at := with_color.index(False):
            what, remedy = f"line {numbers[at]}: {lines[at]!r}", "give `name r g b`"
            raise UserError(path, what, remedy)
        del found[0]  # a header without r, g and b
    return found


def _color(values: Iterable[str], path: Path, line: int) -> Color:
    levels = [int(value) if value.strip().isdecimal() else -1 for value in values]
    if not all(0 <= level <= 255 for level in levels):
        raise UserError(path, f"line {line} has no colour", "give r, g, b from 0 to 255")
    red, green, blue = levels
    return red, green, blue


def count_colors(colors: NDArray[np.uint8]) -> Counter[Color]:
    """Count the pixels of each colour, (..., 3), in the order of their numbers."""
    distinct, counts = np.unique(_codes(colors), return_counts=True)
    there = [(code >> 16, code >> 8 & 255, code & 255) for code in distinct.tolist()]
    return Counter(dict(zip(there, counts.tolist(), strict=True)))


def _codes(colors: NDArray[np.integer]) -> NDArray[np.int32]:
    wide = colors.astype(np.int32)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _shown(color: Color) -> str:
    return " ".join(map(str, color))


def voc_color(index: int) -> Color:
    """Return the colour of a class in PASCAL VOC's palette, whose bits are spread over r, g, b.

    >>> voc_color(1), voc_color(20)
    ((128, 0, 0), (0, 64, 128))
    """
    levels = [0, 0, 0]
    for bit in range(8):
        for channel in range(3):
            levels[channel] |= (index >> (3 * bit + channel) & 1) << (7 - bit)
    return levels[0], levels[1], levels[2]


VOC = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa",
    "train", "tvmonitor",
)  # fmt: skip
_CAMVID = """
    64 128 64 Animal, 192 0 128 Archway, 0 128 192 Bicyclist, 0 128 64 Bridge, 128 0 0 Building,
    64 0 128 Car, 64 0 192 CartLuggagePram, 192 128 64 Child, 192 192 128 Column_Pole,
    64 64 128 Fence, 128 0 192 LaneMkgsDriv, 192 0 64 LaneMkgsNonDriv, 128 128 64 Misc_Text,
    192 0 192 MotorcycleScooter, 128 64 64 OtherMoving, 64 192 128 ParkingBlock,
    64 64 0 Pedestrian, 128 64 128 Road, 128 128 192 RoadShoulder, 0 0 192 Sidewalk,
    192 128 128 SignSymbol, 128 128 128 Sky, 64 128 192 SUVPickupTruck, 0 0 64 TrafficCone,
    0 64 64 TrafficLight, 192 64 128 Train, 128 128 0 Tree, 192 128 192 Truck_Bus, 64 0 64 Tunnel,
    192 192 0 VegetationMisc, 0 0 0 Void, 64 192 0 Wall
"""


# the 11 classes that most papers use, as SegNet put CamVid's 32 together
_CAMVID11 = {
    "sky": "Sky", "building": "Building Bridge Wall Tunnel Archway",
    "pole": "Column_Pole TrafficCone", "road": "Road LaneMkgsDriv LaneMkgsNonDriv",
    "sidewalk": "Sidewalk ParkingBlock RoadShoulder", "tree": "Tree VegetationMisc",
    "sign": "SignSymbol Misc_Text TrafficLight", "fence": "Fence",
    "car": "Car SUVPickupTruck Truck_Bus Train OtherMoving",
    "pedestrian": "Pedestrian Child CartLuggagePram Animal",
    "bicyclist": "Bicyclist MotorcycleScooter", "void": "Void",
}  # fmt: skip
_UAVID = """
    128 0 0 building, 128 64 128 road, 192 0 192 static_car, 0 128 0 tree,
    128 128 0 low_vegetation, 64 64 0 human, 64 0 128 moving_car, 0 0 0 background_clutter
"""
BUILT_IN = ("voc", "camvid", "camvid11", "uavid")
VOC_SOURCE = "VOC's palette"


def built_in(name: str) -> ColorTable:
    """Return a table that needs no file; of "voc" the border, 255, is 224 224 192."""
    if name == "voc":
        rows = [(class_, voc_color(index)) for index, class_ in enumerate(VOC)]
        return ColorTable([*rows, ("void", voc_color(IGNORE))], VOC_SOURCE)
    words = (row.split() for row in (_UAVID if name == "uavid" else _CAMVID).split(","))
    colors = {class_: (int(r), int(g), int(b)) for r, g, b, class_ in words}
    rows = list(colors.items())
    if name == "camvid11":
        rows = [(group, colors[one]) for group, ones in _CAMVID11.items() for one in ones.split()]
    return ColorTable(rows, "UAVid's palette" if name == "uavid" else "CamVid's palette")
