"""Which format a stranger's folder is in: every dataset is asked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scaseg.data.folders.layout import find_layout, subfolders
from scaseg.errors import UserError
from scaseg.io.paths import shown
from scaseg.registry import DATASETS

DEPTH = 3  # folders that may lie around a dataset, each alone in the next, as archives unpack


class Recognized(NamedTuple):
    """A format, by its name in the registry; the folder, SRC or below it; what was found there."""

    name: str
    root: Path
    found: str

    @property
    def command(self) -> str:
        """The command that converts it, ready to paste; its result lies beside the folder."""
        name = f"{self.root.resolve().name}_prepared"
        target = os.path.normpath(self.root / ".." / name)
        return (
            f"scaseg data prepare {self.name} {shlex.quote(str(self.root))} {shlex.quote(target)}"
        )


def recognize(root: str | Path) -> list[Recognized]:
    """Return the formats that fit a folder, or else the only folder in it; none for ours.

    General ones, of which many a folder could be, count only where no other fits.
    """
    folders = list(_alone(Path(root)))
    for general in (False, True):
        asked = {name: one for name, one in DATASETS.items() if one.is_general == general}
        for folder in folders:
            words = {name: dataset.recognize(folder) for name, dataset in asked.items()}
            if found := [Recognized(name, folder, one) for name, one in words.items() if one]:
                return found
    for folder in folders[1:]:
        if is_ours(folder):
            return [Recognized("folder", folder, "photographs and label maps")]
    return []


def is_ours(root: Path) -> bool:
    """Return whether a folder has folders of photographs and of label maps, as `folder` reads it.

    By names alone: reading it would ask for advice where it fails, and so come back here.
    """
    try:
        return any(place.labels for place in find_layout(root).all)
    except (UserError, OSError):
        return False


def _alone(root: Path) -> Iterator[Path]:
    """Yield a folder, the only folder in it, and so on."""
    for _ in range(DEPTH):
        if not root.is_dir():
            return
        yield root
        below = [name for name in subfolders(root) if name[0] not in "._"]
        if len(below) != 1:
            return
        root = root / below[0]


def require_one(root: str | Path) -> Recognized:
    """Return the format of a folder; UserError if none or several fit."""
    formats = recognize(root)
    if not formats and is_ours(Path(root)):
        return Recognized("folder", Path(root), "photographs and label maps")
    if len(formats) == 1:
        return formats[0]
    if formats:
        fits = "; ".join(f"{one.name}: {one.found}" for one in formats)
        names = ", ".join(one.name for one in formats)
        raise UserError(root, "several formats fit", f"give one of {names}", fits)
    problem = "no such folder" if not Path(root).is_dir() else "its format is not recognized"
    known = "`scaseg data list` shows what each looks like"
    raise UserError(root, problem, f"give a format by name, {known}")


def advice(root: str | Path) -> str:
    """Say what a folder was recognized as, and what to do; empty if nothing was."""

    def say(one: Recognized) -> str:
        if one.name == "folder":  # ours, further in: nothing to convert
            return f"did you mean --data {shown(one.root)}?"
        if one.name == "shards":  # trained on as they are
            inner = "" if one.root == Path(root) else f" --data {shlex.quote(str(one.root))}"
            return f"it has {one.found}: give --data.name shards{inner}"
        return f"it has {one.found}: run `{one.command}`"

    return "; or ".join(map(say, recognize(root)))
