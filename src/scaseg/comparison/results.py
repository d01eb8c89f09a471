"""The results on disk: one row per finished job, each exactly once, whenever something is killed.

A job leaves runs/NAME/result.json when it is done; the queue makes a row of it, and only then
removes what the job no longer needs. What was killed in between is found by the next queue.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from scaseg.comparison.claims import CLAIMS
from scaseg.comparison.jobs import Job
from scaseg.errors import UserError
from scaseg.io.lock import LOCK, waiting_lock
from scaseg.io.model_folder import CONFIG, MODEL, RECIPE
from scaseg.io.table import Row, read_rows, write_rows
from scaseg.training.checkpoint_io import has_state
from scaseg.training.run_folder import LAST, METRICS

RESULTS, RESULT = "results.csv", "result.json"
NUMBERS = ("PPA", "CAA", "mIoU", "parameters", "milliseconds")  # what every row has


class Results:
    """The rows of a comparison by job, kept in its folder; shared: others write there too."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        self.folder, self.shared = folder, shared
        self.rows: dict[Job, Row] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the rows that others have written since."""
        try:
            rows = read_rows(self.folder / RESULTS)
            there = {Job.of_row(row): row for row in rows}
            for row in rows:
                _ = [float(row[name]) for name in NUMBERS]
        except (KeyError, ValueError) as error:  # a spreadsheet, or a hand, wrote it anew
            detail = error.problem if isinstance(error, UserError) else str(error)
            problem = f"not as compare wrote it ({detail})"
            raise UserError(self.folder / RESULTS, problem, "undo the change") from error
        self.rows = {**there, **self.rows}

    def write(self) -> None:
        """Write all rows; every row has every column."""
        if not self.shared:
            self._write()
            return
        lock = self.folder / CLAIMS / LOCK
        lock.parent.mkdir(exist_ok=True)
        with waiting_lock(lock):
            self.refresh()
            self._write()

    def _write(self) -> None:
        first = ("variant", "seed", "fold")
        names = dict.fromkeys([*first, *(name for row in self.rows.values() for name in row)])
        if self.rows:
            rows = [{name: row.get(name) for name in names} for row in self.rows.values()]
            write_rows(self.folder / RESULTS, rows)

    def of(self, jobs: Iterable[Job]) -> list[Row]:
        """The rows of the finished ones among these jobs, in their order."""
        return [self.rows[job] for job in jobs if job in self.rows]

    def adopt(self, job: Job) -> bool:
        """Make a row of what a finished job left; False where it is not finished."""
        try:
            text = (job.run_folder(self.folder) / RESULT).read_text(encoding="utf-8")
            row: Row = json.loads(text)
        except (OSError, ValueError):
            if self.shared:  # another queue may have made a row of it
                self.refresh()
            return self.shared and job in self.rows
        if job in self.rows:
            return False
        self.rows[job] = row
        self.write()
        return True

    def clean_up(self, job: Job, keep: str) -> None:
        """Remove what a job that has just become a row no longer needs; others stay as they are.

        result.json goes last: what is killed in between is cleaned up by the next queue.
        """
        place = job.run_folder(self.folder)
        if not (place / RESULT).is_file():
            return
        if keep == "nothing" or (keep == "models" and (place / MODEL).is_dir()):
            for name in (LAST.parent, "cache"):
                shutil.rmtree(place / name, ignore_errors=True)
        if keep == "nothing":
            shutil.rmtree(place / MODEL, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
        else:
            (place / RESULT).unlink(missing_ok=True)


def is_resumable(place: Path) -> bool:
    """Whether a run folder holds something to continue from: a state, or the final model."""
    saved = has_state(place / LAST) or (place / MODEL / CONFIG).is_file()
    return saved and (place / RECIPE).is_file()


def epochs_done(place: Path) -> int:
    """How many epochs of a resumable run are finished."""
    return len(read_rows(place / METRICS)) if is_resumable(place) else 0
