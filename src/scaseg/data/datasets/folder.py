"""A folder of photographs and label maps: images/ and labels/, or mmseg's img_dir/ and ann_dir/."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from scaseg.data.datasets.paired import Listing, Pair, PairedDataset
from scaseg.data.decode.files import IMAGE_SUFFIXES
from scaseg.io.paths import read_lines, shown

LABEL_SUFFIXES = (".png", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")


class FolderDataset(PairedDataset):
    """images/NAME.jpg + labels/NAME.png, or img_dir/SPLIT/ + ann_dir/SPLIT/.

    In the first form classes.txt (one name a line) and train.txt, val.txt, test.txt (one NAME a
    line, with or without ending) are optional; NAME may lie in a subfolder.
    """

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        if _is_mmseg(root):
            found = {path.name for path in (root / "img_dir").iterdir() if path.is_dir()}
        else:
            found = {path.stem for path in root.glob("*.txt")} - {"classes"}
        known = [split for split in SPLITS if split in found]
        return (*known, *sorted(found - set(known))) if _is_mmseg(root) else tuple(known)

    @classmethod
    def own_classes(cls, root: Path) -> tuple[str, ...] | None:
        path = root / "classes.txt"
        if not path.is_file():
            return None
        names = tuple(read_lines(path))
        if not names:
            raise ValueError(f"{shown(path)}: names no class; give one name a line")
        return names

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        if _is_mmseg(root):
            folder = split or ""
            images, labels, names = root / "img_dir" / folder, root / "ann_dir" / folder, None
        else:
            images, labels = root / "images", root / "labels"
            names = None if split is None else _names(root, split)
        for folder_path in (images, labels):
            if not folder_path.is_dir():
                raise ValueError(
                    f"{shown(folder_path)}: no such folder; give images/ and labels/, or img_dir/ "
                    "and ann_dir/"
                )
        photographs, problems = _by_name(images, IMAGE_SUFFIXES)
        maps, more = _by_name(labels, LABEL_SUFFIXES)
        problems += more
        lossy, _ = _by_name(labels, (".jpg", ".jpeg"))
        if not photographs:
            raise ValueError(f"{shown(images)}: has no photograph ({', '.join(IMAGE_SUFFIXES)})")
        pairs = []
        for name in sorted(photographs) if names is None else names:
            if name not in photographs:
                problems.append(
                    f"{shown(images)}: has no photograph {name!r}, which {split}.txt names; add "
                    "what is missing, or take the name out"
                )
            elif name not in maps and name in lossy:
                problems.append(
                    f"{shown(lossy[name])}: a JPEG label map; its values are blurred, use PNG"
                )
            elif name not in maps:
                problems.append(
                    f"{shown(labels)}: has no label map for the photograph {name!r}; add what is "
                    "missing, or take the name out"
                )
            else:
                pairs.append(Pair(photographs[name], maps[name], name))
        return Listing(pairs, problems)


def _is_mmseg(root: Path) -> bool:
    return (root / "img_dir").is_dir()


def _names(root: Path, split: str) -> list[str]:
    path = root / f"{split}.txt"
    if not path.is_file():
        there = sorted(p.stem for p in root.glob("*.txt") if p.stem != "classes")
        if not there:
            raise ValueError(
                f"{shown(path)}: no such file, nor any other list; write it, a name a line, or ask "
                "for no split: all photographs are one set (evaluate: --split all)"
            )
        raise ValueError(f"{shown(path)}: no such file; the splits here are {', '.join(there)}")
    lines = [line for line in read_lines(path) if not line.startswith("#")]
    names = [_without_suffix(line) for line in lines]
    if not names:
        raise ValueError(f"{shown(path)}: names no photograph; give one name a line")
    return names


def _without_suffix(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))  # lists made on Windows
    return str(path.with_suffix("") if path.suffix.lower() in IMAGE_SUFFIXES else path)


def _by_name(folder: Path, suffixes: tuple[str, ...]) -> tuple[dict[str, Path], list[str]]:
    """Map the name of each file, its path below the folder without ending, to its place."""
    found: dict[str, Path] = {}
    problems = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or path.name.startswith("."):
            continue  # a dot: a system's own files, such as macOS's ._NAME.jpg
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            problems.append(
                f"{shown(path)}: {found[name].name} has the same name; keep one of them"
            )
            continue
        found[name] = path
    return found, problems
