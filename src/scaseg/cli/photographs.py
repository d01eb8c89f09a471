"""Which photographs `scaseg predict` takes: of a data set, those and not its label maps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FORMS = (("images", "labels"), ("img_dir", "ann_dir"))  # photographs and label maps of a data set


def without_label_maps(arguments: Sequence[str], out: Path) -> tuple[list[str], list[str]]:
    """Take the photographs alone of folders that are data sets: the arguments, and what to say.

    A pattern, or the folder of the label maps itself, is taken as it is.
    """
    taken, notes = [], []
    for argument in arguments:
        for photographs, labels in FORMS:
            # not Path's own, which raises where a name is too long
            if all(os.path.isdir(os.path.join(argument, part)) for part in (photographs, labels)):
                _refuse_among(argument, labels, out)
                taken.append(os.path.join(argument, photographs))
                notes.append(
                    f"note: {argument} is a data set: the photographs in {photographs}/ are taken, "
                    f"the label maps in {labels}/ are not"
                )
                break
        else:
            taken.append(argument)
    return taken, notes


def _refuse_among(argument: str, labels: str, out: Path) -> None:
    for place in (argument, os.path.join(argument, labels)):
        if os.path.realpath(place) == os.path.realpath(out):
            raise ValueError(
                f"--out: {out} belongs to the data set {argument} itself; give another folder"
            )
