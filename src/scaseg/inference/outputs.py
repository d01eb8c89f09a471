"""What `predict_folder` writes: results that appear whole or not at all, and their provenance.

NAME.png (the label map), and where asked for NAME.overlay.jpg, NAME.npz (probabilities),
NAME.confidence.png and NAME.json (areas); the label map last: where it is, all is.

.scaseg.json holds a fingerprint of the model and the options that change results. So a run that
continues another cannot mix two models unnoticed; machines that share the work write the same
record, whichever comes first.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from scaseg.errors import UserError
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile
from scaseg.io.atomic import LEFTOVER, sync_folder, whole_file, write_json
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.io.ownership import MARK, RECORD, check_replaceable, is_ours

if TYPE_CHECKING:
    from torch import Tensor

OVERLAY, SCORES, AREAS, LABELS = ".overlay.jpg", ".npz", ".json", ".png"
CONFIDENCE = ".confidence.png"
PART = "part-"  # files of packed results begin so, see parts.py
JPEG_SIDE = 60_000  # the format ends at 65,535
STALE = 3600.0  # seconds after which a temporary file has no owner
REPLACE = "use --overwrite or another folder"
UNFINISHED = "replacing"  # in the record while all results of another model are being replaced


@dataclass
class Outputs:
    """The files that are wanted of each image, below one folder."""

    folder: Path
    overlay: bool = False
    scores: bool = False
    areas: bool = False
    confidence: bool = False
    _prepared: set[Path] = field(default_factory=set, repr=False)

    def path(self, name: PurePath, suffix: str) -> Path:
        # not with_suffix: a.b.jpg is a.b.png
        return self.folder / name.parent / (name.name + suffix)

    def paths(self, name: PurePath) -> list[Path]:
        """What will be written for an image, the label map last."""
        wanted = {OVERLAY: self.overlay, SCORES: self.scores, AREAS: self.areas}
        wanted[CONFIDENCE] = self.confidence
        suffixes = [suffix for suffix, asked in wanted.items() if asked]
        return [self.path(name, suffix) for suffix in (*suffixes, LABELS)]

    def left_beside(self, name: PurePath) -> Path | None:
        """Return a result of ours for an image that is there and would not be written anew."""
        wanted = self.paths(name)
        for suffix in (OVERLAY, SCORES, AREAS, CONFIDENCE):
            path = self.path(name, suffix)
            if path not in wanted and path.is_file() and is_ours(path):  # the user's may stay
                return path
        return None

    def check(
        self, inputs: Iterable[InputFile], *, skip_existing: bool, overwrite: bool
    ) -> tuple[int, int]:
        """Refuse what would overwrite or collide; count what is to do, and what exists.

        inputs are iterated again to name the first of two that collide: of a million names this
        holds a number each.
        """
        go_on = "use --skip-existing to continue, --overwrite to replace it, or another folder"
        to_do = existing = 0
        taken: set[int] = set()
        for file in inputs:
            paths = self.paths(file.name)
            image = Path(file.path).resolve()
            results = [path.resolve() for path in paths]
            if image in results:
                problem = f"would replace the image {file.path}"
                raise UserError("--out", problem, "give another folder")
            if results[-1].parent in (image.parent, Path(file.path).parent.resolve()):
                # a second run would take them for photographs, training for label maps
                problem = f"is the folder of the image {file.path} itself"
                raise UserError("--out", problem, "give another folder")
            for name in self._taken_names(file):
                if hash(name) in taken:
                    other = next(one for one in inputs if name in self._taken_names(one))
                    problem = f"would be {self.path(name, LABELS)}, and so would {other.path}"
                    remedy = "rename one, or predict them into two folders"
                    raise UserError(file.path, problem, remedy)
                taken.add(hash(name))
            is_there = skip_existing and self.exists(file.name)
            to_do, existing = to_do + (not is_there), existing + is_there
            for path in paths:
                if overwrite:
                    check_replaceable(path)
                elif not skip_existing and path.exists():
                    raise UserError(path, "exists already", go_on)
        return to_do, existing

    def _taken_names(self, file: InputFile) -> list[PurePath]:
        """What no other image may be called: x.overlay.png would lie beside x's overlay."""
        beside = [OVERLAY] * self.overlay + [CONFIDENCE] * self.confidence
        names = [f"{file.name.name}{suffix.rpartition('.')[0]}" for suffix in beside]
        return [file.name, *(file.name.with_name(name) for name in names)]

    def exists(self, name: PurePath) -> bool:
        """Whether the results of an image are there; UserError where an older run's are in part."""
        *others, labels = self.paths(name)
        if not labels.exists():
            return False
        if (missing := next((path for path in others if not path.exists()), None)) is not None:
            problem = f"is there, but {missing.name} is not"
            remedy = "it was made without that option, use --overwrite or another folder"
            raise UserError(labels, problem, remedy)
        return True

    def prepare(self, name: PurePath) -> None:
        """Make the folder of an image's results, and clear it of what killed runs left."""
        folder = (self.folder / name).parent
        if folder in self._prepared:
            return
        root = self.folder.resolve()
        if root not in (resolved := folder.resolve(), *resolved.parents):
            raise UserError(folder, f"a link out of {self.folder}", "remove it")
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(f"{LEFTOVER}*"):
            with suppress(OSError, ValueError):
                host, pid, _ = path.name.removeprefix(LEFTOVER).rsplit("-", 2)
                is_ours = os.name == "posix" and host == platform.node()
                is_old = time.time() - path.stat().st_mtime > STALE
                if is_old or (is_ours and not _is_alive(int(pid))):
                    path.unlink()
        self._prepared.add(folder)

    @contextmanager
    def open_scores(
        self, classes: Sequence[str], file: InputFile, size: tuple[int, int]
    ) -> Iterator[Callable[[Tensor], None]]:
        """Write NAME.npz some rows at a time: `scores` (H, W, classes) float16, `classes`.

        Yields a function that takes the next rows, (classes, rows, W). In the file rows are the
        first axis, because rows are what comes: probabilities of any image in bounded memory.
        """
        path = self.path(file.name, SCORES)
        header = {"descr": "<f2", "fortran_order": False, "shape": (*size, len(classes))}
        with whole_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.comment = MARK.encode()
            with archive.open("classes.npy", "w") as member:
                np.lib.format.write_array(member, np.array(classes))
            with archive.open("scores.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_2_0(member, header)

                def write(rows: Tensor) -> None:
                    values = rows.cpu().numpy().transpose(1, 2, 0)
                    member.write(np.ascontiguousarray(values, dtype="<f2").data)

                yield write

    def write(self, file: InputFile, found: Segmentation) -> None:
        """Write everything but the probabilities, which were written as they came."""
        if self.overlay:
            picture = found.overlay(legend=True, max_side=JPEG_SIDE)
            picture.thumbnail((JPEG_SIDE, JPEG_SIDE))  # its legend may be long
            with whole_file(self.path(file.name, OVERLAY)) as temporary:
                picture.save(temporary, format="JPEG", quality=92, subsampling=0, comment=MARK)
        if self.areas:
            height, width = found.size
            record = {"image": os.fspath(file.path), "width": width, "height": height}
            unsure = float((found.labels == found.unsure).mean())
            record |= {"areas": found.areas(), "unsure": unsure, "software": MARK}
            write_json(self.path(file.name, AREAS), record)
        if self.confidence:
            found.save_confidence(self.path(file.name, CONFIDENCE))
        found.save(self.path(file.name, LABELS), durable=None)

    def finish(self) -> None:
        """Bring the names of all results to the disk."""
        for folder in self._prepared:
            sync_folder(folder)


class Provenance:
    """The record of which model and options made the results in a folder."""

    def __init__(self, folder: Path, model: Path, options: Mapping[str, Any]) -> None:
        """model: its folder. options: those that change results, as they are typed."""
        self.folder, self.path = folder, folder / RECORD
        self.record = {"model": fingerprint(model), **options}
        self.begun = False
        self._replacement: dict[str, Any] | None = None  # of the record of other results

    def check(
        self, replaced: Iterable[PurePath] | None = None, outputs: Outputs | None = None
    ) -> None:
        """Refuse a folder with results of another model, or made with other options.

        replaced: the names whose results --overwrite replaces by `outputs`; none of another model's
        may stay.
        Results without a record are older, or made by hand: nothing is known of them.
        """
        if (differs := self._difference()) is None:
            return
        if any(path.suffix in (".parquet", ".tar") for path in self.folder.glob(f"{PART}*")):
            raise UserError("--out", differs, "give another folder")
        names = {hash(name) for name in replaced or ()}
        for path in self.folder.rglob(f"[!.]*{LABELS}"):
            if replaced is None:
                raise UserError("--out", differs, REPLACE)
            result = path.relative_to(self.folder)
            image = result.with_name(result.name.removesuffix(CONFIDENCE).removesuffix(LABELS))
            if not names & {hash(result.with_suffix("")), hash(image)}:
                remedy = "give all of its images, or another folder"
                raise UserError("--out", f"{differs}, and {result} would stay", remedy)
            if outputs is not None and (beside := outputs.left_beside(image)) is not None:
                remedy = "give its option too, remove it, or give another folder"
                raise UserError("--out", f"{differs}, and {beside.name} would stay", remedy)
        self._replacement = self.record | ({} if replaced is None else {UNFINISHED: True})

    def begin(self) -> None:
        """Let the record appear, before the first result does."""
        made = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            if self._replacement is not None:
                write_json(self.path, self._replacement)
            else:
                write_json(self.path, self.record, exclusive=True)
        except OSError:  # a full disk: no empty folder stays behind
            with suppress(OSError):  # another process writes there
                for place in made:
                    place.rmdir()
            raise
        if self._replacement is None and (differs := self._difference()) is not None:
            raise UserError("--out", differs, REPLACE)  # another run was faster
        self.begun = True

    def finish(self) -> None:
        """Record that no result of another model is left."""
        if self.begun and self._replacement is not None:
            write_json(self.path, self.record)

    def _difference(self) -> str | None:
        """Say how the results in the folder differ from those of this run; None: not at all."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            remedy = "remove it, or give another folder"
            raise UserError(self.path, "not a record of predict", remedy)
        holds = f"{self.folder} holds results"
        if found.get(UNFINISHED):
            return f"{holds} of several models, of a run with --overwrite that was cut off"
        if found.get("model") != self.record["model"]:
            return f"{holds} of another model"
        for name in self.record | found:
            before, now = (_option(name, record.get(name)) for record in (found, self.record))
            if before != now:
                return f"{holds} made {before}, and this run is {now}"
        return None


def fingerprint(model: Path) -> str:
    """Identify a model by a hash of its config and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name in (CONFIG, WEIGHTS):
        with (model / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _option(name: str, value: Any) -> str:
    if value is None or value is False:
        return f"without {name}"
    return f"with {name}" if value is True else f"with {name} {value}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True
