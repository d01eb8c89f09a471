"""Datasets whose photographs are parts of other files."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.files import Embedded
from scaseg.errors import UserError
from scaseg.io.paths import on_disk, shown


class EmbeddedDataset(PairedDataset):
    """Photographs in files of another kind: the path of that file, then a name within it.

    A subclass takes them out (`extract`). Photographs that are files of their own are read as ever.
    """

    @abstractmethod
    def extract(self, path: Path) -> bytes:
        """Return a photograph out of the file that it is part of."""

    def photograph(self, path: Path) -> Path | Embedded:
        if on_disk(path) == path:
            return path
        if self.bands is not None:
            remedy = "convert it with `scaseg data prepare` first"
            raise UserError("data.bands", "photographs in other files are read as RGB", remedy)
        return Embedded(self.extract(path), shown(path))
