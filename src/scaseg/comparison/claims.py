"""Who does which job, where several machines share the folder of a comparison.

claims/NAME.1 says that somebody does the job NAME: a file that only one can create. It is touched
while the job runs; if it has not been for STALE seconds, its owner is gone, and whoever creates
NAME.2 does the job from then on. Nothing of another is ever removed or renamed, so that no two can
believe that the same claim is theirs; one that was only slow finds NAME.2 and stops.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path

from scaseg.comparison.jobs import Job

CLAIMS = "claims"
BEAT = 5.0  # seconds between two touches
STALE = 60.0  # seconds without one; a file server may be busy for some


class Claims:
    """The claims of one queue in the folder of a comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / CLAIMS
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clock = self.folder / f".clock-{platform.node()}-{os.getpid()}"
        self._held: dict[Job, int] = {}

    def take(self, job: Job) -> bool:
        """Claim a job unless somebody alive has it; the caller then looks whether it is done."""
        last = max(self._numbers(job), default=0)
        if last and self._age(self._path(job, last)) < STALE:
            return False
        try:
            file = os.open(self._path(job, last + 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:  # another was faster
            return False
        os.write(file, f"{os.getpid()} on {platform.node()}\n".encode())
        os.close(file)
        self._held[job] = last + 1
        return True

    def beat(self) -> None:
        """Say that all jobs of this queue are still being done."""
        for job, number in self._held.items():
            with suppress(OSError):  # a file server that is down: its clock may have stopped too
                os.utime(self._path(job, number))

    def is_lost(self, job: Job) -> bool:
        """Whether another does a job that was claimed here: this machine was asleep."""
        return self._held[job] != max(self._numbers(job), default=0)

    def release(self, job: Job) -> None:
        """Give up a job, done or not; what is another's stays."""
        number = self._held.pop(job)
        for older in range(1, number + 1):
            self._path(job, older).unlink(missing_ok=True)

    def close(self) -> None:
        """Give up all jobs, and take this queue's clock away."""
        for job in list(self._held):
            self.release(job)
        self._clock.unlink(missing_ok=True)

    def _age(self, path: Path) -> float:
        """Seconds since a claim was touched, by the clock of the file server, not of machines."""
        self._clock.touch()
        os.utime(self._clock)
        try:
            return self._clock.stat().st_mtime - path.stat().st_mtime
        except FileNotFoundError:  # released: not now, but at the next look
            return 0.0

    def _numbers(self, job: Job) -> list[int]:
        prefix = self._path(job, 0).name.removesuffix("0")
        names = [name.removeprefix(prefix) for name in os.listdir(self.folder)]
        return [int(name) for name in names if name.isdigit()]

    def _path(self, job: Job, number: int) -> Path:
        return self.folder / f"{job.run_folder('').name}.{number}"
