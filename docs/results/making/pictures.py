"""The pictures of a study, each with a note of the numbers that it was drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image, PngImagePlugin

from making.plots import write_axes, write_costs, write_variants
from making.studies import Study
from scaseg.comparison.compare import PICTURE
from scaseg.comparison.results import RESULTS

AXES = ("layers:hidden=128", "hidden")  # what the paper tunes: K_l at K_f = 128, K_f at K_l = 3
ALT = {
    "axes.png": "mIoU over the values of an option, and differences to the default",
    "cost.png": "mIoU over the time and the memory of training, a point for each context",
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
    if len({name.partition(":")[0] for name in study.names}) >= MANY:
        found["cost.png"] = lambda path: write_costs(study, path)
    found[PICTURE] = lambda path: write_variants(study, path)
    return found


def draw_pictures(study: Study) -> None:
    """Draw all, and say in each of which numbers it is."""
    note = PngImagePlugin.PngInfo()
    note.add_text(NOTE, _fingerprint(study))
    for name, write in pictures_of(study).items():
        path = study.folder / name
        write(path)
        with Image.open(path) as picture:
            picture.load()
            picture.save(path, pnginfo=note, optimize=True)


def stale_pictures(study: Study) -> list[Path]:
    """Those that are not there, or drawn from other numbers; bytes differ between machines."""
    paths = [study.folder / name for name in pictures_of(study)]
    return [path for path in paths if _drawn_from(path) != _fingerprint(study)]


def _fingerprint(study: Study) -> str:
    return hashlib.sha256((study.folder / RESULTS).read_bytes()).hexdigest()


def _drawn_from(path: Path) -> str | None:
    if not path.is_file():
        return None
    with Image.open(path) as picture:
        return picture.info.get(NOTE)
