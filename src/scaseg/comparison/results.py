"""The results on disk: a row a finished job, each once, whatever is killed when.

A job leaves runs/NAME/result.json when it is done; the queue makes a row of it, and only then takes
away what the job no longer needs. What was killed in between is found by the next queue.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaseg.comparison.jobs import Job, Key, key_of, place_of
from scaseg.io.table import Row, read_rows, write_rows
from scaseg.training.run_folder import LAST, METRICS, MODEL, RECIPE, write_json

RESULTS, RESULT = "results.csv", "result.json"
KEEP = ("models", "all", "nothing")
FIRST = ("variant", "seed", "fold")


class Results:
    """The rows of a comparison, kept in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = read_rows(folder / RESULTS)
        for row in self.rows:
            row.setdefault("fold", "")  # written before there were folds

    def __contains__(self, key: Key) -> bool:
        return any(key_of(row) == key for row in self.rows)

    def add(self, row: Row) -> None:
        """Append a row and put it on the disk."""
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        """Put all rows on the disk; every row has every column."""
        names = dict.fromkeys([*FIRST, *(name for row in self.rows for name in row)])
        if self.rows:
            rows = [{name: row.get(name) for name in names} for row in self.rows]
            write_rows(self.folder / RESULTS, rows)

    def of(self, jobs: Sequence[Job]) -> list[Row]:
        """The rows of these jobs, in their order; those that are finished."""
        found = {key_of(row): row for row in self.rows}
        return [found[job.key] for job in jobs if job.key in found]

    def adopt(self, job: Job) -> Row | None:
        """Take over what a job has left; None: it is not finished."""
        row = read_result(place_of(self.folder, job.key))
        if row is None or job.key in self:
            return None
        self.add(row)
        return row

    def tidy(self, key: Key, keep: str) -> None:
        """Take away what a job no longer needs that has just become a row; others stay as they are.

        result.json goes last: what was killed in between is tidied by the next queue.
        """
        place = place_of(self.folder, key)
        if not (place / RESULT).is_file():
            return
        states, model = [LAST.parent, Path("cache")], MODEL
        if keep == "nothing" or (keep == "models" and (place / model).is_dir()):
            for name in [*states, model] if keep == "nothing" else states:
                shutil.rmtree(place / name, ignore_errors=True)
        if keep == "nothing":
            shutil.rmtree(place, ignore_errors=True)
        else:
            (place / RESULT).unlink()


def write_result(place: Path, row: Row) -> None:
    """Say that a job is finished, and what came of it."""
    write_json(place / RESULT, row)


def read_result(place: Path) -> Row | None:
    """Read what a finished job said; None: it is not finished."""
    try:
        found: Any = json.loads((place / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def is_resumable(place: Path) -> bool:
    """Whether a run folder holds anything to go on from: a state, or the final model."""
    if not (place / RECIPE).is_file():
        return False
    states = (place / LAST).parent
    saved = states.is_dir() and any(
        path.is_file() and not path.name.startswith(".") for path in states.iterdir()
    )
    return saved or (place / MODEL / "config.json").is_file()


def epochs_done(place: Path) -> int:
    """How many epochs of a run that can go on are behind it."""
    return len(read_rows(place / METRICS)) if is_resumable(place) else 0
