"""Datasets whose photographs are parts of other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.files import Embedded
from scaseg.data.decode.image import image_orientation, image_size, read_image
from scaseg.errors import UserError
from scaseg.io.paths import on_disk, shown


class EmbeddedDataset(PairedDataset):
    """Photographs in files of another kind: the path of that file, then a name within it.

    A subclass takes them out (`extract`). Photographs that are files of their own are read as ever.
    """

    def extract(self, path: Path) -> bytes:
        """Return a photograph out of the file that it is part of."""
        raise NotImplementedError

    def read_photograph(self, path: Path) -> bytes:
        return super().read_photograph(path) if on_disk(path) == path else self.extract(path)

    def image_size(self, path: Path, *, upright: bool) -> tuple[int, int]:
        if on_disk(path) == path:
            return super().image_size(path, upright=upright)
        return image_size(self._embedded(path), upright=upright, max_pixels=self.max_pixels)

    def image_orientation(self, path: Path) -> int:
        if on_disk(path) == path:
            return super().image_orientation(path)
        return image_orientation(self._embedded(path), max_pixels=self.max_pixels)

    def read_image(self, path: Path) -> NDArray[Any]:
        if on_disk(path) == path:
            return super().read_image(path)
        return read_image(self._embedded(path), max_pixels=self.max_pixels)

    def _embedded(self, path: Path) -> Embedded:
        if self.bands is not None:
            remedy = "convert it with `scaseg data prepare` first"
            raise UserError("data.bands", "photographs in other files are read as RGB", remedy)
        return Embedded(self.extract(path), shown(path))
