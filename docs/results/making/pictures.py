"""The pictures of a study, each with a note of the numbers that it was drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from PIL import Image, PngImagePlugin

from making.depth import FOLDER, TIMES, cuts, write_depth
from making.depth import PICTURE as DEPTH
from making.plots import COUNTED, write_axes, write_costs, write_variants
from making.studies import Study
from scaseg.comparison.compare import PICTURE
from scaseg.comparison.results import RESULTS
from scaseg.comparison.statistics import known

AXES = ("layers:hidden=128", "hidden")  # what the paper tunes: K_l at K_f = 128, K_f at K_l = 3
ALT = {
    "axes.png": "mIoU over the values of an option, and differences to the default",
    "cost.png": "mIoU over what a context computes and over the memory of training",
    "compare.png": "mIoU of every run, and every difference to the first context",
}
MANY = 8  # contexts from which on their cost is drawn too
NOTE = "results.csv, SHA-256"


def pictures_of(study: Study) -> dict[str, Callable[[Path], None]]:
    """What a study is drawn as, and by what."""
    found: dict[str, Callable[[Path], None]] = {}
    axes = [option for option in AXES if len(study.along(option)) > 1]
    if axes:
        found["axes.png"] = lambda path: write_axes(study, axes, path)
    many = len({name.partition(":")[0] for name in study.names}) >= MANY
    if many and known(study.rows, "mebibytes"):  # on a CPU nobody measured it
        found["cost.png"] = lambda path: write_costs(study, path)
    found[PICTURE] = lambda path: write_variants(study, path)
    return found


class Picture(NamedTuple):
    """A picture, by what it is drawn, and the rows that it shows."""

    path: Path
    write: Callable[[Path], None]
    sources: list[Path]


def all_pictures(studies: Mapping[str, Study]) -> list[Picture]:
    """Those of each study, and those that bring several together."""
    found = [
        Picture(
            study.folder / name,
            write,
            [study.folder / RESULTS, *([COUNTED] if name == "cost.png" else [])],
        )
        for study in studies.values()
        for name, write in pictures_of(study).items()
    ]
    cut = [one.study for one in cuts(studies)]
    if len(cut) > 1:
        place = next(one.folder.parent for one in cut if one.name.startswith(FOLDER))
        sources = [one.folder / RESULTS for one in cut]
        sources += [place / TIMES] if (place / TIMES).is_file() else []
        found.append(Picture(place / DEPTH, lambda path: write_depth(studies, path), sources))
    return found


def draw_pictures(studies: Mapping[str, Study]) -> None:
    """Draw all, and say in each of which numbers it is."""
    for picture in all_pictures(studies):
        picture.write(picture.path)
        note = PngImagePlugin.PngInfo()
        note.add_text(NOTE, _fingerprint(picture))
        with Image.open(picture.path) as image:
            image.load()
            image.save(picture.path, pnginfo=note, optimize=True)


def stale_pictures(studies: Mapping[str, Study]) -> list[Path]:
    """Those that are not there, or drawn from other numbers; bytes differ between machines."""
    return [one.path for one in all_pictures(studies) if _drawn_from(one.path) != _fingerprint(one)]


def _fingerprint(picture: Picture) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in picture.sources)).hexdigest()


def _drawn_from(path: Path) -> str | None:
    if not path.is_file():
        return None
    with Image.open(path) as picture:
        return picture.info.get(NOTE)
