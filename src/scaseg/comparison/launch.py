"""How a job becomes a process: its share of the cores, its log, and the line that ties it to us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scaseg.comparison.jobs import Job, place_of, run_of
from scaseg.config.run import RunConfig
from scaseg.system import usable_cores

LOGS = "logs"
MODULE = "scaseg.comparison.worker"


@dataclass(frozen=True)
class Starter:
    """Starts the jobs of a comparison in `folder`, `side_by_side` of them at a time."""

    run: RunConfig
    folder: Path
    split: str | None
    side_by_side: int

    def start(self, job: Job) -> subprocess.Popen[bytes]:
        """Begin a job; closing its standard input ends it."""
        share = max(1, usable_cores() // self.side_by_side)
        own = run_of(self.run, job)
        if own.machine.workers is None:
            workers = min(8, share - 1)  # one core for the training itself
            own = replace(own, machine=replace(own.machine, workers=workers))
        facts = {"variant": job.variant.name, "seed": job.seed, "fold": job.fold}
        task = {
            "run": asdict(own),
            "place": str(place_of(self.folder, job.key)),
            "split": self.split,
            "facts": facts,
            "side_by_side": self.side_by_side,
            "started": time.time(),
        }
        log = self.log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                # threads that wait for each other on a busy core would wait most of the time
                env={"OMP_NUM_THREADS": str(share), **os.environ},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                process_group=0,  # Ctrl-C is for the queue, which tells its jobs to save
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already, and its log says why
        return process

    def log(self, job: Job) -> Path:
        """Where all that a job says goes."""
        return self.folder / LOGS / f"{place_of(self.folder, job.key).name}.log"

    def complaint(self, job: Job, code: int) -> str:
        """What a failed job said last, in one line."""
        log = self.log(job)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        said = [line for line in text.splitlines() if line.startswith("error: ")]
        last = said[-1].removeprefix("error: ") if said else _of_code(code)
        return f"{job}: {last} (all that it said is in {log})"

    def forget_log(self, job: Job) -> None:
        """Take away the log of a job that went well, and the folder with the last of them."""
        self.log(job).unlink(missing_ok=True)
        if (self.folder / LOGS).is_dir() and not any((self.folder / LOGS).iterdir()):
            (self.folder / LOGS).rmdir()


def _of_code(code: int) -> str:
    if code == -getattr(signal, "SIGKILL", 9):
        return "killed by the system, perhaps for want of memory; try fewer --jobs"
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"
