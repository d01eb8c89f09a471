"""Photographs and label maps that are told apart by how their names end: x.jpg and x_mask.png."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar

from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.decode.image import IMAGE_SUFFIXES, JPEG, image_mode
from scaseg.data.folders.endings import (
    LABEL_SUFFIXES,
    LABEL_WORD,
    MOST_FILES,
    Endings,
    find_endings,
    is_extension,
    label_maps_beside,
)
from scaseg.data.folders.layout import Place, find_layout, in_order, split_of, subfolders
from scaseg.data.folders.lists import find_lists
from scaseg.data.folders.nested import by_split
from scaseg.data.folders.pairs import (
    Listing,
    find_each,
    find_files,
    joined,
    pair_files,
    read_list,
    require_split,
    with_split,
)
from scaseg.errors import UserError
from scaseg.io.paths import shown

SCANNED = 5  # label maps that are looked at for their kind


class SuffixDataset(FolderDataset):
    """NAME.jpg + NAME_mask.png or the like, in one folder, in two, or in folders of splits.

    The endings are found where one pair of them explains the files; --image-suffix and
    --label-suffix give them: .jpg, _mask.png. Folders and lists are those of `folder`; else the
    pairs of folders further in (train/seq1/images + train/seq1/labels, Images_png + Masks_png);
    where there are none, all files are taken, or those of the only two folders.
    """

    is_general = True
    options: ClassVar[tuple[str, ...]] = ("image_suffix", "label_suffix")
    image_suffix: ClassVar[str] = ""
    label_suffix: ClassVar[str] = ""
    extensions: ClassVar[tuple[str, ...]] = LABEL_SUFFIXES  # of label maps

    @classmethod
    def recognize(cls, root: Path) -> str | None:
        found = cls.example(root)
        if found is None or are_colored(found[1]):
            return None
        # label maps of the same names in folders of their own are read by `folder`
        place, *_ = cls.places(root).values()
        if found[0].label:
            return str(found[0])
        folders = (f"{shown(folder.relative_to(root))}/" for folder in place if folder is not None)
        return None if place in find_layout(root).all else " with ".join(folders)

    @classmethod
    def example(cls, root: Path) -> tuple[Endings, list[Path]] | None:
        """Return the endings of some files and a few label maps; None if no endings fit."""
        try:
            place = next(iter(cls.places(root).values()))
            assert place.labels is not None
            endings = cls.endings(place)
            ends = (endings.label.lower(),) if endings.label else cls.extensions
            maps = [path for path in _files(place.labels) if path.name.lower().endswith(ends)]
            return endings, maps[:: max(1, len(maps) // SCANNED)]
        except (UserError, OSError):
            return None

    @classmethod
    def places(cls, root: Path) -> dict[str, Place]:
        """Return folders of photographs and of label maps by what names begin with.

        That is "" for all of them, a split, a split and a scene (train/Urban), or /SCENE.
        """
        return cls.survey(root)[0]

    @classmethod
    def survey(cls, root: Path) -> tuple[dict[str, Place], list[str] | None]:
        """Return `places`, and notes of what is left out; None where `folder` has them."""
        whole, splits = find_layout(root)
        labelled = {split: place for split, place in splits.items() if place.labels}
        if labelled and (whole is None or not find_lists(root)):
            return labelled, None
        if whole is not None and whole.labels is not None:
            return {"": Place(whole.images, _innermost(whole.labels, whole.images))}, None
        below = [root / name for name in subfolders(root) if name[0] != "."]
        if (scenes := by_split(root))[0] and not any(map(_holds_pairs, (root, *below))):
            return scenes
        folders = [path for path in below if next(_files(path), None)]
        if named := {split: path for path in folders if (split := split_of(path.name))}:
            labelled = cls._labelled({split: Place(path, path) for split, path in named.items()})
            left = [named[split] for split in named if split not in labelled]
            return labelled, [f"{shown(path.name)}/ has no label maps: not used" for path in left]
        labels = [path for path in folders if LABEL_WORD.search(path.name)]
        if len(folders) == 2 and len(labels) == 1 and next(_files(root)).parent != root:
            return {"": Place(*(path for path in folders if path not in labels), *labels)}, None
        return {"": Place(root, root)}, None

    @classmethod
    def _labelled(cls, splits: dict[str, Place]) -> dict[str, Place]:
        """Leave out splits without any label map: the test images of a competition."""

        def ending(place: Place) -> str:
            with suppress(UserError):
                return cls.endings(place).label.lower()
            return ""

        known = next(filter(None, map(ending, splits.values())), "")

        def has_labels(place: Place) -> bool:
            if any(known and path.name.lower().endswith(known) for path in _files(place.images)):
                return True
            kinds = {path.suffix.lower() for path in _files(place.images)}
            # several kinds: some may be label maps
            return len(kinds) > 1 or ending(place) not in ("", known)

        found = {split: place for split, place in splits.items() if has_labels(place)}
        return found or splits

    @classmethod
    def endings(cls, place: Place) -> Endings:
        """Return the endings given, or the only ones that explain the files; else a UserError."""
        images, labels = place
        assert labels is not None
        if cls.image_suffix and cls.label_suffix:
            return Endings(cls.image_suffix, cls.label_suffix)
        names = [
            [file.relative_to(one).as_posix() for file in _files(one)] for one in (images, labels)
        ]
        found = find_endings(names[0], None if images == labels else names[1], cls.extensions)
        given = Endings(cls.image_suffix, cls.label_suffix)
        found = [one for one in found if all(a in ("", b) for a, b in zip(given, one, strict=True))]
        if len(found) == 1:
            return found[0]
        if cls.label_suffix and not found:
            return given
        problem = "no pair of endings explains its files"
        if found:
            problem = f"several endings fit: {', '.join(map(str, found))}"
        remedy = "give --image-suffix and --label-suffix, such as .jpg and _mask.png"
        raise UserError(images, problem, remedy)

    @classmethod
    def pair(cls, place: Place, names: Sequence[str] | None = None, listed_in: str = "") -> Listing:
        """Pair the files of two folders, which may be one; names: None for all of them."""
        images, labels = place
        assert labels is not None
        image, label = cls.endings(place)
        label_ends = [label] if label else cls.extensions
        image_ends = [image] if image else IMAGE_SUFFIXES
        if names is None:
            maps = find_files(labels, *label_ends)
            taken = set(chain(*maps.values()))
            photographs = find_files(images, *image_ends)
            own = {name for name, paths in photographs.items() if not taken.issuperset(paths)}
            names, listed_in = sorted(own | maps.keys()), "its label map"
        return pair_files(names, images, labels, label_ends, image_ends, listed_in)

    @classmethod
    def splits(cls, root: Path) -> tuple[str, ...]:
        places = cls.places(root)
        named = {key.partition("/")[0] for key in places} - {""}
        return in_order(named or (find_lists(root) if "" in places else ()))

    @classmethod
    def find(cls, root: Path, split: str | None) -> Listing:
        places, splits = cls.places(root), cls.splits(root)
        if "" in places:
            if split is not None:
                require_split(root, split, splits)
            names = None if split is None else read_list(find_lists(root)[split], folders=True)
            return cls.pair(places[""], names, f"{split}.txt")

        def find(part: str) -> Listing:
            mine = [key for key in places if key.partition("/")[0] == part]
            return joined([with_split(key.strip("/"), *cls.pair(places[key])) for key in mine])

        return find_each(root, split, splits, find) if splits or split else find("")

    @property
    def notes(self) -> Sequence[str]:
        left = self.survey(self.root)[1]
        return super().notes if left is None else left


def are_colored(label_maps: Sequence[Path]) -> bool:
    """Return whether label maps have colours instead of class indices: all that can be read.

    JPEG too: what was black and white is many greys there.
    """
    modes = set()
    for path in label_maps:
        suffix = path.suffix.lower()
        with suppress(UserError):
            mode = image_mode(path) if suffix in IMAGE_SUFFIXES else ""
            modes.add("RGB" if suffix in JPEG else mode)
    return bool(modes) and modes <= {"RGB", "RGBA"}


def _innermost(labels: Path, images: Path) -> Path:
    """Return the only folder of label maps in a folder, where photographs have none: trimaps/."""
    if (
        next(_files(labels), labels).parent == labels
        or next(_files(images), images).parent != images
    ):
        return labels
    inside = {path.relative_to(labels).parts[0] for path in _files(labels)}
    return labels / inside.pop() if len(inside) == 1 else labels


def _holds_pairs(folder: Path) -> bool:
    """Return whether label maps lie in a folder itself, beside their photographs."""
    return label_maps_beside([name for name in os.listdir(folder) if name[0] != "."]) is not None


def _files(folder: Path) -> Iterator[Path]:
    """Yield the images below a folder, as many as are needed to find endings."""

    def walk() -> Iterator[Path]:
        for place, folders, files in os.walk(folder):
            folders.sort()
            for file in sorted(files):
                if not file.startswith(".") and is_extension(os.path.splitext(file)[1]):
                    yield Path(place, file)

    return islice(walk(), MOST_FILES)
