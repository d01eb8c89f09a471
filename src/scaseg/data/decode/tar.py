"""Samples in tar files, as WebDataset has them: their files share the name before the dot."""

from __future__ import annotations

import re
import tarfile
from functools import lru_cache
from pathlib import Path

from scaseg.data.decode import files
from scaseg.errors import UserError

MOST_FILES = 1 << 21  # of one shard
IMAGE = re.compile(r"(?:(?:image|img|photo|rgb)\.)?(?:jpe?g|png|webp|tiff?|bmp|npy)")
LABELS = re.compile(r"(?:labels?|masks?|seg\w*|annotations?|target|gt\w*|y)\.(?:png|tiff?|bmp)")
_REMEDY = "write it again"


class TarShard:
    """The samples of a tar file, in its order; what is in them is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.samples: dict[str, dict[str, tuple[int, int]]] = {}  # files: where, how many bytes
        with files.open_untrusted(path, _REMEDY) as file:
            end = file.seek(0, 2)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for number, member in enumerate(tar):
                    if number >= MOST_FILES:
                        raise ValueError(f"more than {MOST_FILES} files")
                    if not member.isreg() or member.issparse():
                        continue
                    if member.offset_data + member.size > end:
                        raise ValueError("it is cut off")
                    folder, slash, name = member.name.rpartition("/")
                    key, _, field = name.partition(".")
                    sample = self.samples.setdefault(f"{folder}{slash}{key}", {})
                    sample[field.lower()] = (member.offset_data, member.size)
        self.keys = list(self.samples)

    def __len__(self) -> int:
        return len(self.keys)

    def fields(self, row: int, chosen: tuple[str, str] | None) -> tuple[str, str]:
        """Return the fields of the image and of the labels of a sample; chosen: by the user."""
        found = self.samples[self.keys[row]]
        if chosen is not None:
            images, labels = ([one] if one in found else [] for one in chosen)
        else:
            labels = [name for name in found if LABELS.fullmatch(name)]
            images = [name for name in found if IMAGE.fullmatch(name)]
            if not labels and len(images) == 2 and "png" in images:  # a.jpg and a.png
                labels = ["png"]
                images.remove("png")
        if (len(images), len(labels)) != (1, 1):
            problem = f"{self.keys[row]} has {', '.join(found)}"
            remedy = "say which are image and labels: data.fields, such as [jpg, seg.png]"
            raise UserError(self.path, problem, remedy)
        return images[0], labels[0]

    def image_field(self, row: int) -> str:
        """Return the field of the image of a sample, whether or not it has labels."""
        found = self.samples[self.keys[row]]
        images = [name for name in found if IMAGE.fullmatch(name) and not LABELS.fullmatch(name)]
        if len(images) == 2 and "png" in images:  # a.jpg and its labels a.png
            images.remove("png")
        if len(images) != 1:
            problem = f"{self.keys[row]} has {', '.join(found)}"
            raise UserError(self.path, problem, "one of them must be an image")
        return images[0]

    def read(self, row: int, field: str, most: int) -> bytes:
        """Return one file of a sample."""
        start, size = self.samples[self.keys[row]][field]
        if size > most:
            raise UserError(self.path, f"{size} bytes", f"{most} are taken")
        with self.path.open("rb") as file:  # opened anew: loader processes share no position
            file.seek(start)
            return file.read(size)


@lru_cache(maxsize=64)
def open_tar(path: Path, _stamp: tuple[int, int]) -> TarShard:
    """Read what is in a tar file, or return what was; _stamp: its time and size."""
    return TarShard(path)
