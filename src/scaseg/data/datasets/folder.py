"""A folder of photographs and label maps: images/ and labels/, or mmseg's img_dir/ and ann_dir/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from scaseg.data.files import IMAGE_SUFFIXES, read_image, read_labels
from scaseg.data.sample import IGNORE, Sample


class FolderDataset:
    """Samples of one split of a folder, in the order of its list, or of the names.

    images/NAME.jpg + labels/NAME.png + optional classes.txt and train.txt, val.txt, test.txt (one
    NAME a line, with or without ending); or img_dir/SPLIT/ + ann_dir/SPLIT/. Where no split is
    asked for, all pairs. label_map renames values on reading ({255: 1} for binary masks);
    reduce_zero_label makes 0 unlabelled and every other class one less, as in mmseg.
    """

    def __init__(
        self,
        root: str | Path,
        split: str | None = None,
        *,
        classes: Sequence[str] | None = None,
        label_map: Mapping[int, int] | None = None,
        reduce_zero_label: bool = False,
        ignore_index: int = IGNORE,
    ) -> None:
        self.root = Path(root)
        self.split = split
        self.label_map = dict(label_map or {})
        self.reduce_zero_label = reduce_zero_label
        self.ignore_index = ignore_index
        self.pairs = _pairs(self.root, split)
        self.classes = tuple(classes) if classes is not None else _classes(self.root)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        image_path, label_path = self.pairs[index]
        image, labels = read_image(image_path), self.read_labels(label_path)
        if image.shape[:2] != labels.shape:
            raise ValueError(
                f"{label_path}: {labels.shape[0]} x {labels.shape[1]} but its photograph is "
                f"{image.shape[0]} x {image.shape[1]}{_turned(image, labels)}"
            )
        return Sample(image, labels, image_path.stem)

    def read_labels(self, path: Path) -> NDArray[np.int32]:
        """Read a label map as classes 0, 1, ... and IGNORE."""
        raw = read_labels(path)
        labels = raw.copy()
        for before, after in self.label_map.items():
            labels[raw == before] = after
        unlabelled = labels == self.ignore_index
        if self.reduce_zero_label:
            unlabelled |= labels == 0
            labels = labels - 1
        if ((labels == IGNORE) & ~unlabelled).any():
            raise ValueError(
                f"{path}: class {IGNORE} is taken, it means unlabelled; use label_map to bring the "
                f"classes below {IGNORE}"
            )
        labels[unlabelled] = IGNORE
        if self.classes is not None:
            wrong = (labels != IGNORE) & ((labels < 0) | (labels >= len(self.classes)))
            if wrong.any():
                raise ValueError(
                    f"{path}: holds {labels[wrong][0]}, but there are {len(self.classes)} classes "
                    f"(0 to {len(self.classes) - 1}); use label_map or reduce_zero_label"
                )
        return labels


def _turned(image: NDArray[np.uint8], labels: NDArray[np.int32]) -> str:
    if image.shape[:2] == labels.shape[::-1]:
        return "; the camera's EXIF rotation was not applied to the labels"
    return "; they must have one size"


def _pairs(root: Path, split: str | None) -> list[tuple[Path, Path]]:
    """Find the photographs of a split and the label map of each."""
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder")
    if (root / "img_dir").is_dir():
        folder = split or ""
        images, labels, names = root / "img_dir" / folder, root / "ann_dir" / folder, None
    else:
        images, labels = root / "images", root / "labels"
        names = None if split is None else _names(root, split)
    for folder_path in (images, labels):
        if not folder_path.is_dir():
            raise ValueError(
                f"{folder_path}: no such folder; give images/ and labels/, or img_dir/ and ann_dir/"
            )
    photographs = _by_name(images, IMAGE_SUFFIXES)
    maps = _by_name(labels, (".png", ".tif", ".tiff", ".bmp"))
    wanted = sorted(photographs) if names is None else names
    if not wanted:
        raise ValueError(f"{images}: has no photograph ({', '.join(IMAGE_SUFFIXES)})")
    pairs = []
    for name in wanted:
        if name not in photographs:
            raise ValueError(f"{images}: has no photograph {name!r}, which {split}.txt names")
        if name not in maps:
            raise ValueError(f"{labels}: has no label map for the photograph {name!r}")
        pairs.append((photographs[name], maps[name]))
    return pairs


def _names(root: Path, split: str) -> list[str]:
    path = root / f"{split}.txt"
    if not path.is_file():
        there = sorted(p.stem for p in root.glob("*.txt") if p.stem not in ("classes",))
        raise ValueError(
            f"{path}: no such file; the splits here are {', '.join(there) or 'none: all images'}"
        )
    lines = (line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    names = [_without_suffix(line) for line in lines if line and not line.startswith("#")]
    if not names:
        raise ValueError(f"{path}: names no photograph; give one name a line")
    return names


def _without_suffix(name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))  # lists made on Windows
    return str(path.with_suffix("") if path.suffix.lower() in IMAGE_SUFFIXES else path)


def _by_name(folder: Path, suffixes: tuple[str, ...]) -> dict[str, Path]:
    """Map the name of each file, its path below the folder without ending, to its place."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes:
            continue
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            raise ValueError(f"{path}: {found[name].name} has the same name; keep one of them")
        found[name] = path
    return found


def _classes(root: Path) -> tuple[str, ...] | None:
    path = root / "classes.txt"
    if not path.is_file():
        return None
    names = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    return tuple(name for name in names if name)
