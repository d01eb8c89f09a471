"""Where results may go: not into a model, a run, or the folders of a dataset."""

from __future__ import annotations

import os
from pathlib import Path

from scaseg.data.folders.endings import label_maps_beside
from scaseg.data.folders.layout import dataset_folders, subfolders
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.io.ownership import RECORD, is_run


def check_destination(option: str, folder: str | Path) -> None:
    """Refuse a folder in which results could be taken for something else, or replace it.

    A new or empty folder is fine wherever it is.
    """
    folder = Path(folder)
    names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    with located(option):
        if {CONFIG, WEIGHTS} <= names:
            raise UserError(folder, "holds a model", "give a folder of its own")
        if is_run(names):
            raise UserError(folder, "holds a run", f"give a folder of its own: {folder}/results")
        if all(name.startswith(".") for name in names) or RECORD in names:
            return  # empty, or results of ours, each of which is marked
        if label_maps_beside(sorted(names)):
            problem = "is a dataset of photographs and label maps"
            raise UserError(folder, problem, "give another folder")
        place = Path(os.path.abspath(folder))
        for root in (place, place.parent, place.parent.parent):
            photographs, labels = dataset_folders(subfolders(root))
            within = place.relative_to(root).parts
            if photographs and (not within or within[0] in photographs | labels):
                raise UserError(folder, f"belongs to the dataset {root}", "give another folder")
