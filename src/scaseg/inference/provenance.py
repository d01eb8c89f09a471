"""Who made the results in a folder: one model, looking in one way.

DIR/.scaseg.json holds a fingerprint of the model and the options that change results. So a run that
goes on where another stopped cannot mix two models without a word; machines that share the work
write the same record, whoever comes first.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from scaseg.inference.outputs import LABELS
from scaseg.io.atomic import take_place, temporary_beside, whole_file
from scaseg.io.model_folder import CONFIG, WEIGHTS

RECORD = ".scaseg.json"
UNFINISHED = "replacing"  # in the record while all results of another model are being replaced


class Record:
    """What the results of this run are made by, and what a folder says of those it holds."""

    def __init__(self, folder: Path, model: Path, options: Mapping[str, Any]) -> None:
        """model: its folder; options: those that change results, as they are typed."""
        self.path = folder / RECORD
        self.made_by = {"model": fingerprint(model), **options}
        self.begun = False
        self._replaces = False
        self._is_stale = False  # the record of results that are gone

    def check(self) -> None:
        """Refuse a folder whose results are others'; ValueError says how they differ.

        Results without a record are older, or made by hand: nothing is known of them.
        """
        if self._difference() is None:
            return
        if next(_label_maps(self.path.parent), None) is not None:
            self._refuse()
        self._is_stale = True

    def check_replaced(self, names: Iterable[PurePath]) -> None:
        """Refuse to replace a part of others' results: the folder would hold both."""
        if (differs := self._difference()) is None:
            return
        replaced = {hash(name) for name in names}
        for name in _label_maps(self.path.parent):
            if hash(name) not in replaced:
                raise ValueError(
                    f"--out: {self.path.parent} holds {differs}, and {name}{LABELS} would stay; "
                    "give all of its photographs, or another folder"
                )
        self._replaces = True

    def begin(self) -> None:
        """Let the record appear, before the first result does."""
        folder = self.path.parent
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if self._replaces:
                self._write({**self.made_by, UNFINISHED: True})
            elif self._is_stale:
                self._write(self.made_by)
            else:
                self._create()
                self._refuse()  # another run may have been faster
        except OSError:
            with suppress(OSError):  # somebody else is at work there
                for place in made:
                    place.rmdir()
            raise
        self.begun = True

    def finish(self) -> None:
        """Say that nothing of another model is left."""
        if self._replaces and self.begun:
            self._write(self.made_by)

    def _refuse(self) -> None:
        if (differs := self._difference()) is not None:
            raise ValueError(
                f"--out: {self.path.parent} holds {differs}; use --overwrite or another folder"
            )

    def _difference(self) -> str | None:
        there = self._read()
        if there is None or there == self.made_by:
            return None
        return _difference(there, self.made_by)

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise ValueError(
                f"{self.path}: not a record of predict; remove it, or give another folder"
            )
        return found

    def _create(self) -> None:
        """Write the record unless there is one, or somebody just did."""
        if self.path.exists():
            return
        temporary = temporary_beside(self.path)
        try:
            temporary.write_text(_text(self.made_by), encoding="utf-8")
            try:
                os.link(temporary, self.path)
            except FileExistsError:
                return
            except OSError:  # a disk without links
                take_place(temporary, self.path, durable=False)
        finally:
            temporary.unlink(missing_ok=True)

    def _write(self, record: dict[str, Any]) -> None:
        with whole_file(self.path) as temporary:
            temporary.write_text(_text(record), encoding="utf-8")


def fingerprint(model: Path) -> str:
    """A number that no other model has: of its config and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name in (CONFIG, WEIGHTS):
        with suppress(FileNotFoundError), (model / name).open("rb") as file:  # told of when loaded
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _difference(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    if there.get(UNFINISHED):
        return "results of several models, of a run with --overwrite that was cut off"
    if there.get("model") != wanted["model"]:
        return "results of another model"
    name = next(name for name in (wanted | there) if there.get(name) != wanted.get(name))
    before, now = (_said(name, record.get(name)) for record in (there, wanted))
    return f"results made {before}, and this run is {now}"


def _said(option: str, value: Any) -> str:
    if value is None or value is False:
        return f"without {option}"
    return f"with {option}" if value is True else f"with {option} {value}"


def _text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def _label_maps(folder: Path) -> Iterator[PurePath]:
    """The names of all results in a folder and below."""
    for place, _, files in os.walk(folder):
        for file in files:
            if file.endswith(LABELS) and not file.startswith("."):
                yield PurePath(place).relative_to(folder) / file.removesuffix(LABELS)
