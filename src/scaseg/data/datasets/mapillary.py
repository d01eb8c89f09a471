"""Mapillary Vistas: street scenes of the whole world, versions 1.2 and 2.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scaseg.data.class_names import require_fewer
from scaseg.data.datasets.color_table import Color
from scaseg.data.datasets.suffix import SuffixDataset
from scaseg.data.decode.documents import Node, read_json, sample
from scaseg.data.decode.image import read_labels
from scaseg.data.folders.endings import Endings
from scaseg.data.folders.layout import Place, split_of, subfolders
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError
from scaseg.io.paths import cached_by_file, shown

# what names the classes, and where the label maps of a split are; the newest first
VERSIONS = {"config_v2.0.json": "v2.0/labels", "config_v1.2.json": "v1.2/labels"}
VERSIONS |= {"config.json": "labels"}


class Classes(NamedTuple):
    """What a config says: the classes, their colours, the class of each value, what is left out."""

    names: tuple[str, ...]
    palette: tuple[Color, ...]
    table: NDArray[np.int32]
    unlabelled: tuple[str, ...]


class MapillaryVistas(SuffixDataset):
    """training/images/NAME.jpg + training/v2.0/labels/NAME.png, validation/ likewise.

    config_v2.0.json names the classes; those that it does not evaluate are unlabelled. Version 1.2
    has v1.2/labels and config_v1.2.json, or labels and config.json; 2.0 is taken if both are there.
    """

    is_general = False
    options = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        known = _classes(self.root)
        if self.classes == known.names:
            self.palette = known.palette

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        config, labels = _version(root)
        is_ours = b'"evaluate"' in sample(root / config) and bool(cls.places(root))
        return f"{config} and {labels}/ of Mapillary Vistas" if is_ours else None

    @classmethod
    def survey(cls, root: Path) -> tuple[dict[str, Place], list[str]]:
        inner, found, left = _version(root)[1], {}, []
        for folder in (root / name for name in subfolders(root)):
            if (split := split_of(folder.name)) and (folder / inner).is_dir():
                found[split] = Place(folder / "images", folder / inner)
            elif split:
                left.append(f"{shown(folder.name)}/ has no label maps: not used")
        return found, left

    @classmethod
    def endings(cls, place: Place) -> Endings:
        return Endings("", "")

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...]:
        return _classes(root).names

    def read_values(self, path: Path) -> NDArray[np.int32]:
        table = _classes(self.root).table
        valid = f"{_version(self.root)[0]} has 0 to {len(table) - 1}"
        return self.renumber(read_labels(path, max_pixels=self.max_pixels), table, path, valid)

    @property
    def notes(self) -> Sequence[str]:
        void = ", ".join(_classes(self.root).unlabelled)
        return [*super().notes, *([f"read as unlabelled: {void}"] if void else [])]


def _version(root: Path) -> tuple[str, str]:
    there = [one for one in VERSIONS.items() if (root / one[0]).is_file()]
    return next(iter(there), ("config_v2.0.json", VERSIONS["config_v2.0.json"]))


def _classes(root: Path) -> Classes:
    path = root / _version(root)[0]
    if not path.is_file():
        raise UserError(path, "no such file", "it names the classes of Mapillary Vistas")
    return _read_config(path)


@cached_by_file(4)
def _read_config(path: Path) -> Classes:
    """Read the list `labels` of a config, whose places are the values of label maps."""
    entries = list(read_json(path).each("labels"))
    used = [entry.value.get("evaluate") is not False for entry in entries]
    kept = [entry for entry, counts in zip(entries, used, strict=True) if counts]
    names = [entry.get("readable", str) for entry in kept]
    if len({*names}) < len(names):  # of several kinds
        names = [entry.get("name", str) for entry in kept]
    if not names or len({*names}) < len(names):
        raise UserError(path, "names no class, or one twice", "fetch it again")
    require_fewer(names, shown(path))
    table = np.where(used, np.cumsum(used) - 1, IGNORE).astype(np.int32)
    void = (entry.get("readable", str) for entry in entries if entry not in kept)
    return Classes(tuple(names), tuple(map(_color, kept)), table, tuple(void))


def _color(entry: Node) -> Color:
    levels = entry.get("color", list)
    if len(levels) != 3 or not all(isinstance(one, int) and 0 <= one <= 255 for one in levels):
        raise UserError(entry.where("color"), f"{levels}", "give r, g, b from 0 to 255")
    red, green, blue = levels
    return red, green, blue
