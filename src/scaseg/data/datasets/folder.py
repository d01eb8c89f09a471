"""A folder of photographs and label maps: images/ and labels/, or mmseg's img_dir/ and ann_dir/."""

from __future__ import annotations

from pathlib import Path

from scaseg.data.datasets.base import Listing, PairedDataset, pair_files, read_list
from scaseg.data.datasets.recognition import advice
from scaseg.data.decode.image import IMAGE_SUFFIXES
from scaseg.errors import UserError
from scaseg.io.paths import read_lines, shown

LABEL_SUFFIXES = (".png", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")


class FolderDataset(PairedDataset):
    """images/NAME.jpg + labels/NAME.png, or img_dir/SPLIT/ + ann_dir/SPLIT/.

    In the first form classes.txt (one name a line) and train.txt, val.txt, test.txt (one NAME a
    line, with or without suffix) are optional; NAME may be in a subfolder.
    """

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        if not (root / "img_dir").is_dir():
            return tuple(split for split in SPLITS if (root / f"{split}.txt").is_file())
        found = {path.name for path in (root / "img_dir").iterdir() if path.is_dir()}
        return (*(s for s in SPLITS if s in found), *sorted(found.difference(SPLITS)))

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        path = root / "classes.txt"
        if not path.is_file():
            return None
        names = tuple(read_lines(path))
        if not names:
            raise UserError(shown(path), "names no class", "give one name a line")
        return names

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        images, labels, names = root / "images", root / "labels", None
        if (root / "img_dir").is_dir():
            images, labels = root / "img_dir" / (split or ""), root / "ann_dir" / (split or "")
        elif split is not None:
            names = _read_split(root / f"{split}.txt")
        for folder in (images, labels):
            if not folder.is_dir():
                forms = "give images/ and labels/, or img_dir/ and ann_dir/"
                raise UserError(shown(folder), "no such folder", advice(root) or forms)
        listed_in = f"{split}.txt"
        return pair_files(names, images, labels, LABEL_SUFFIXES, IMAGE_SUFFIXES, listed_in)


def _read_split(path: Path) -> list[str]:
    if path.is_file():
        return read_list(path, folders=True)
    there = sorted(other.stem for other in path.parent.glob("*.txt") if other.stem != "classes")
    if there:
        raise UserError(shown(path), "no such file", f"the splits here are {', '.join(there)}")
    raise UserError(
        shown(path),
        "no such file, nor any other list",
        "write it, a name a line, or give no split to take all photographs (evaluate: --split all)",
    )
