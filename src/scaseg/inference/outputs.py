"""What a prediction leaves on the disk, and what it must not touch.

NAME.png (the label map), and where asked for NAME.overlay.jpg, NAME.npz (probabilities) and
NAME.json (areas). Each appears whole or not at all, the PNG last: where it is, all is.
"""

from __future__ import annotations

import json
import os
import platform
import time
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from scaseg.inference.inputs import Listed
from scaseg.inference.segmentation import Segmentation
from scaseg.io.atomic import LEFTOVER, take_place, temporary_beside, whole_file

OVERLAY, SCORES, AREAS, LABELS = ".overlay.jpg", ".npz", ".json", ".png"
JPEG_SIDE = 60_000  # the format ends at 65,535
STALE = 3600.0  # seconds after which a temporary file has no owner


@dataclass
class Outputs:
    """The files that are wanted of each photograph, below one folder."""

    folder: Path
    overlay: bool = False
    scores: bool = False
    areas: bool = False
    _known: set[Path] = field(default_factory=set, repr=False)  # folders that were looked at

    def paths(self, name: PurePath) -> list[Path]:
        """What will be written for a photograph, the label map last."""
        wanted = ((self.overlay, OVERLAY), (self.scores, SCORES), (self.areas, AREAS))
        suffixes = [suffix for asked, suffix in wanted if asked]
        return [self.path(name, suffix) for suffix in (*suffixes, LABELS)]

    def path(self, name: PurePath, suffix: str) -> Path:
        # not with_suffix: a.b.jpg is a.b.png
        return self.folder / name.parent / (name.name + suffix)

    def is_done(self, name: PurePath) -> bool:
        """Whether a photograph's results are there; ValueError where an older run's are in part."""
        *others, labels = self.paths(name)
        if not labels.exists():
            return False
        for other in others:
            if not other.exists():
                raise ValueError(
                    f"{labels}: is there, but {other.name} is not; it was made without that "
                    "option, use --overwrite or another folder"
                )
        return True

    def prepare(self, name: PurePath) -> None:
        """Make the folder of a photograph's results, and clear it of what killed runs left."""
        folder = (self.folder / name).parent
        if folder in self._known:
            return
        root = self.folder.resolve()
        if root not in (resolved := folder.resolve(), *resolved.parents):
            raise ValueError(f"{folder}: a link out of {self.folder}; remove it")
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        self._known.add(folder)

    def write(self, photograph: Listed, found: Segmentation) -> None:
        """Write everything but the probabilities, which were written as they came."""
        name = photograph.name
        if self.overlay:
            picture = found.overlay(legend=True, most=JPEG_SIDE)
            picture.thumbnail((JPEG_SIDE, JPEG_SIDE))  # its legend may be long
            with whole_file(self.path(name, OVERLAY)) as file:
                picture.save(file, format="JPEG", quality=92, subsampling=0)
        if self.areas:
            height, width = found.size
            said = {"image": os.fspath(photograph.path), "width": width, "height": height}
            text = json.dumps(said | {"areas": found.areas()}, indent=2)
            with whole_file(self.path(name, AREAS)) as file:
                file.write_text(text + "\n", encoding="utf-8")
        found.save(self.path(name, LABELS))


def check_outputs(
    photographs: Callable[[], Iterable[Listed]],
    outputs: Outputs,
    *,
    skip_existing: bool,
    overwrite: bool,
) -> tuple[int, int]:
    """Refuse, before any work, what would overwrite or collide; count what is to do, and done.

    Of a million names this holds a number each; the first of two that collide is listed again.
    """
    to_do = done = 0
    taken: set[int] = set()
    for photograph in photographs():
        if photograph.path.resolve() in [path.resolve() for path in outputs.paths(photograph.name)]:
            raise ValueError(
                f"--out: would replace the photograph {photograph.path}; give another folder"
            )
        for name in _taken_names(photograph, outputs):
            key = hash(name)
            if key in taken:
                other = next(one for one in photographs() if name in _taken_names(one, outputs))
                raise ValueError(
                    f"{photograph.path}: would be {outputs.path(name, LABELS)}, and so would "
                    f"{other.path}; rename one, or predict them into two folders"
                )
            taken.add(key)
        if skip_existing and outputs.is_done(photograph.name):
            done += 1
            continue
        to_do += 1
        if not overwrite and not skip_existing:
            for path in outputs.paths(photograph.name):
                if path.exists():
                    raise ValueError(
                        f"{path}: exists already; use --skip-existing to continue, --overwrite to "
                        "replace it, or another folder"
                    )
    return to_do, done


def _taken_names(photograph: Listed, outputs: Outputs) -> list[PurePath]:
    """What no other photograph may be called: x.overlay.png would lie beside x's overlay."""
    name = photograph.name
    return [name, name.with_name(f"{name.name}.overlay")] if outputs.overlay else [name]


class ScoreFile:
    """NAME.npz, written a band of rows at a time: `scores` (H, W, classes) float16, `classes`.

    Rows first, because rows are what comes: probabilities of any photograph in bounded memory.
    """

    def __init__(self, path: Path, size: tuple[int, int], classes: tuple[str, ...]) -> None:
        self.path = path
        self._temporary = temporary_beside(path)
        self._zip = zipfile.ZipFile(self._temporary, "w", allowZip64=True)
        with self._zip.open("classes.npy", "w") as member:
            np.lib.format.write_array(member, np.array(classes))
        self._member = self._zip.open("scores.npy", "w", force_zip64=True)
        header = {"descr": "<f2", "fortran_order": False, "shape": (*size, len(classes))}
        np.lib.format.write_array_header_2_0(self._member, header)

    def write(self, probabilities: NDArray[np.float32]) -> None:
        """Add some rows: (classes, rows, W)."""
        rows = np.ascontiguousarray(probabilities.transpose(1, 2, 0), dtype="<f2")
        self._member.write(rows.data)

    def keep(self) -> None:
        """Let the file appear."""
        self._member.close()
        self._zip.close()
        take_place(self._temporary, self.path)

    def drop(self) -> None:
        """Leave nothing behind."""
        with suppress(Exception):
            self._member.close()
            self._zip.close()
        self._temporary.unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Remove temporary files that nobody writes any more."""
    for path in folder.glob(f"{LEFTOVER}*"):
        with suppress(OSError, ValueError):
            host, pid, _ = path.name.removeprefix(LEFTOVER).rsplit("-", 2)
            ours = host == platform.node() and not _alive(int(pid))
            if ours or time.time() - path.stat().st_mtime > STALE:
                path.unlink()


def _alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # elsewhere os.kill would do what it says
    try:
        os.kill(pid, 0)  # asks, and sends nothing
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
