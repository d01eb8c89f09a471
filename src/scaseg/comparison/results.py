"""The results on disk: one row per finished job, each exactly once, whenever something is killed.

A job leaves runs/NAME/result.json when it is done; the queue makes a row of it, and only then
removes what the job no longer needs. What was killed in between is found by the next queue.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaseg.comparison.jobs import Job, Key, key_of, run_folder
from scaseg.io.atomic import write_json
from scaseg.io.table import Row, read_rows, write_rows
from scaseg.training.run_folder import LAST, METRICS, MODEL, RECIPE

RESULTS, RESULT = "results.csv", "result.json"
KEEP = ("models", "all", "nothing")


class Results:
    """The rows of a comparison, kept in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = read_rows(folder / RESULTS)

    def __contains__(self, key: Key) -> bool:
        return any(key_of(row) == key for row in self.rows)

    def write(self) -> None:
        """Write all rows; every row has every column."""
        first = ("variant", "seed", "fold")
        names = dict.fromkeys([*first, *(name for row in self.rows for name in row)])
        if self.rows:
            rows = [{name: row.get(name) for name in names} for row in self.rows]
            write_rows(self.folder / RESULTS, rows)

    def of(self, jobs: Sequence[Job]) -> list[Row]:
        """The rows of the finished ones among these jobs, in their order."""
        found = {key_of(row): row for row in self.rows}
        return [found[job.key] for job in jobs if job.key in found]

    def adopt(self, job: Job) -> bool:
        """Make a row of what a finished job left; False where it is not finished."""
        row = read_result(run_folder(self.folder, job.key))
        if row is None or job.key in self:
            return False
        self.rows.append(row)
        self.write()
        return True

    def clean_up(self, key: Key, keep: str) -> None:
        """Remove what a job that has just become a row no longer needs; others stay as they are.

        result.json goes last: what is killed in between is cleaned up by the next queue.
        """
        place = run_folder(self.folder, key)
        if not (place / RESULT).is_file():
            return
        if keep == "nothing" or (keep == "models" and (place / MODEL).is_dir()):
            for name in (LAST.parent, "cache"):
                shutil.rmtree(place / name, ignore_errors=True)
        if keep == "nothing":
            shutil.rmtree(place / MODEL, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
        else:
            (place / RESULT).unlink()


def write_result(place: Path, row: Row) -> None:
    """Mark a job as finished, with its row."""
    write_json(place / RESULT, row)


def read_result(place: Path) -> Row | None:
    """The row of a finished job; None where it is not finished."""
    try:
        found: Any = json.loads((place / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def is_resumable(place: Path) -> bool:
    """Whether a run folder holds something to continue from: a state, or the final model."""
    if not (place / RECIPE).is_file():
        return False
    states = (place / LAST).parent
    saved = states.is_dir() and any(
        path.is_file() and not path.name.startswith(".") for path in states.iterdir()
    )
    return saved or (place / MODEL / "config.json").is_file()


def epochs_done(place: Path) -> int:
    """How many epochs of a resumable run are finished."""
    return len(read_rows(place / METRICS)) if is_resumable(place) else 0
