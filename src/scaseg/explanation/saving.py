"""Figures and maps on disk: each file appears whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from scaseg.explanation.maps import DependencyMaps
from scaseg.io.atomic import whole_file

FORMATS = ("png", "pdf", "svg")


def save_figure(figure: Figure, path: str | Path, *, format: str | None = None) -> None:  # noqa: A002
    """Write a figure as png, pdf or svg: by the path's suffix, unless `format` says it."""
    path = Path(path)
    kind = format or path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise ValueError(f"{path}: unknown format {kind!r}; give {', '.join(FORMATS)}")
    with whole_file(path) as temporary:
        figure.savefig(temporary, format=kind)


def save_maps(maps: DependencyMaps, path: str | Path) -> None:
    """Write the numbers of a figure as npz, without the photograph.

    maps (P, h, w), neurons (P, 2) row and column, points (P, 2) x and y (NaN where a map is not
    that of a point), names (P,), average, centres_x (w,) and centres_y (h,): pixels of the
    photograph in the middle of what each neuron sees; regions (P, h, w) where there are some.
    """
    rows, columns = maps.grid.map
    arrays = {
        "maps": maps.maps,
        "neurons": maps.neurons,
        "points": np.array([point or (np.nan, np.nan) for point in maps.points]),
        "names": np.array(maps.names),
        "average": np.array(maps.average),
        "centres_x": np.array([maps.grid.center(0, column)[0] for column in range(columns)]),
        "centres_y": np.array([maps.grid.center(row, 0)[1] for row in range(rows)]),
    }
    if maps.regions is not None:
        arrays["regions"] = maps.regions
    with whole_file(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
