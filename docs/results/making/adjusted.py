"""Differences of many variants in few folds, from one fit to all of them.

`paired` of scaseg.comparison uses two variants alone: right for few variants in many folds. Here
value = fold + variant is fitted to all, with one noise level, where two pairs alone say nothing.
It assumes that runs of all variants scatter alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaseg.comparison.statistics import Difference, Rows, average_seeds, interval, values_of


@dataclass(frozen=True)
class Adjusted:
    """A variant's mean as if it had run in all folds, and its difference to the first (or None)."""

    mean: float
    difference: Difference | None


def adjusted(rows: Rows, names: Sequence[str], metric: str = "mIoU") -> dict[str, Adjusted]:
    """Fit value = fold + variant to everything; variants that share no fold with others are out.

    A variant with a single run says nothing about noise, and adds nothing to it.
    """
    units = {name: average_seeds(values_of(rows, name, metric)) for name in names}
    connected, folds = [names[0]], set(units[names[0]])
    while more := [name for name in names if name not in connected and folds & set(units[name])]:
        connected += more
        folds.update(*(units[name] for name in more))
    order = [name for name in names if name in connected]
    places = sorted(folds)
    cells = [(name, fold) for name in order for fold in units[name]]
    design = np.zeros((len(cells), len(places) + len(order) - 1))
    for row, (name, fold) in enumerate(cells):
        design[row, places.index(fold)] = 1
        if name != order[0]:
            design[row, len(places) + order.index(name) - 1] = 1
    values = np.array([units[name][fold] for name, fold in cells])
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ values
    freedom = len(cells) - design.shape[1]
    noise = float(((values - design @ effects) ** 2).sum())
    level = float(effects[: len(places)].mean())
    found = {order[0]: Adjusted(level, None)}
    for name, effect, own in zip(
        order[1:], effects[len(places) :], np.diag(inverse)[len(places) :], strict=True
    ):
        # one run does not show how its variant scatters: no interval, as for one pair
        known = freedom and len(units[name]) > 1
        error = math.sqrt(noise / freedom * own) if known else None
        difference = interval(float(effect), len(units[name]), error, freedom)
        found[name] = Adjusted(level + float(effect), difference)
    return found
