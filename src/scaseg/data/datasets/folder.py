"""A folder of photographs and label maps: images/ and labels/, or mmseg's img_dir/ and ann_dir/."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from scaseg.data.datasets.paired import FilePair, Listing, PairedDataset
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
        if not _is_mmseg(root):
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
        names = None
        if _is_mmseg(root):
            images, labels = root / "img_dir" / (split or ""), root / "ann_dir" / (split or "")
        else:
            images, labels = root / "images", root / "labels"
            names = None if split is None else _read_list(root, split)
        for folder in (images, labels):
            if not folder.is_dir():
                remedy = "give images/ and labels/, or img_dir/ and ann_dir/"
                raise UserError(shown(folder), "no such folder", remedy)
        photographs, problems = _by_name(images, IMAGE_SUFFIXES)
        maps, ambiguous = _by_name(labels, LABEL_SUFFIXES)
        lossy, _ = _by_name(labels, (".jpg", ".jpeg"))
        problems += ambiguous
        if not photographs:
            raise UserError(shown(images), "has no photograph", detail=", ".join(IMAGE_SUFFIXES))
        pairs = []
        remedy = "add what is missing, or take the name out"
        for name in sorted(photographs) if names is None else names:
            if name in photographs and name in maps:
                pairs.append(FilePair(photographs[name], maps[name], name))
            elif name not in photographs:
                what = f"has no photograph that {split}.txt names"
                problems.append(UserError(shown(images), what, remedy, repr(name)))
            elif name in lossy:
                what, png = "a JPEG label map", "its values are blurred, use PNG"
                problems.append(UserError(shown(lossy[name]), what, png))
            else:
                what = "has no label map for a photograph"
                problems.append(UserError(shown(labels), what, remedy, repr(name)))
        return Listing(pairs, problems)


def _is_mmseg(root: Path) -> bool:
    return (root / "img_dir").is_dir()


def _read_list(root: Path, split: str) -> list[str]:
    path = root / f"{split}.txt"
    if not path.is_file():
        there = sorted(p.stem for p in root.glob("*.txt") if p.stem != "classes")
        if there:
            raise UserError(shown(path), "no such file", f"the splits here are {', '.join(there)}")
        raise UserError(
            shown(path),
            "no such file, nor any other list",
            "write it, a name a line, or give no split to take all photographs (evaluate: "
            "--split all)",
        )
    names = []
    for line in read_lines(path):
        if not line.startswith("#"):
            name = PurePosixPath(line.replace("\\", "/"))  # lists made on Windows
            is_file = name.suffix.lower() in IMAGE_SUFFIXES
            names.append(str(name.with_suffix("") if is_file else name))
    if not names:
        raise UserError(shown(path), "names no photograph", "give one name a line")
    return names


def _by_name(folder: Path, suffixes: tuple[str, ...]) -> tuple[dict[str, Path], list[UserError]]:
    """Map the name of each file, its path below the folder without suffix, to its path."""
    found: dict[str, Path] = {}
    problems = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or path.name.startswith("."):
            continue  # hidden files are a system's own, such as macOS's ._NAME.jpg
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            what = f"{found[name].name} has the same name"
            problems.append(UserError(shown(path), what, "keep one of them"))
        else:
            found[name] = path
    return found, problems
