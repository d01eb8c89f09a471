"""What the jobs of a comparison are trained and evaluated on: rows of other data do not mix."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import NamedTuple

from scaseg.comparison.jobs import Job
from scaseg.config.run import RunConfig
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.splits import evaluation_split
from scaseg.data.validation.check import Part, Pixels, require_valid
from scaseg.io.table import Row
from scaseg.training.data import open_data


class Judged(NamedTuple):
    """The split that a job is evaluated on, and what stands for the label maps.

    labels, trained_labels: a checksum of how many pixels each class has in evaluation, and in
    training and validation; None where not all label maps are read (`data.check: quick`, shards).
    """

    split: str
    images: int
    labels: str | None
    trained_labels: str | None

    def problem(self, job: Job, row: Row) -> str | None:
        """Why the row of a finished job is of other data; None: nothing says so."""

        def differs(name: str) -> bool:
            now, before = getattr(self, name), row.get(name)  # an earlier version's row has none
            return None not in (now, before) and before not in ("", now, str(now))

        if differs("trained_labels"):
            return f"label maps have changed since {job} was trained"
        if row.get("split") != self.split:
            return None
        if differs("images"):
            before = f"{row['images']} images of {self.split}"
            return f"{job} was evaluated on {before}, now {self.images}"
        if differs("labels"):
            return f"label maps of {self.split} have changed since {job} was evaluated"
        return None


def judged(run: RunConfig, split: str | None) -> Judged:
    """Look at the data of a run; UserError where they cannot be trained or evaluated on.

    Files that have been read before, and are unchanged since, are not read again.
    """
    dataset, description = evaluation_split(run.data, split)
    pixels = trained = None
    if isinstance(dataset, PairedDataset) and run.data.check == "all":
        pixels = require_valid([Part(description, dataset)], training=False)
        data = run.data
        if data.bands is not None:  # given, so that nobody measures them for this
            data = replace(data, mean=(0.0,) * data.bands, std=(1.0,) * data.bands)
        trained = open_data(replace(run, data=data), None).counted
    return Judged(description, len(dataset), _checksum(pixels), _checksum(trained))


def _checksum(pixels: Pixels | None) -> str | None:
    # a letter first: a spreadsheet would make a number of 12345678 or 1234e567
    return None if pixels is None else f"x{zlib.crc32(json.dumps(pixels).encode()):08x}"
