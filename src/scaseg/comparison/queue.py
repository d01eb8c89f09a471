"""The queue: jobs in parallel, each in a process that has no other; no process is left behind.

A job's process stops at SIGTERM, and ends by itself when this one is gone: its standard input,
over which it was told what to do, is closed then.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from scaseg.comparison.claims import BEAT, Claims
from scaseg.comparison.jobs import Job
from scaseg.comparison.process import GRACE, POLL, Launcher, Process, end, start_process
from scaseg.comparison.results import Results, epochs_done
from scaseg.config.run import RunConfig
from scaseg.io.table import Row, read_rows
from scaseg.progress import Progress
from scaseg.system import usable_cores
from scaseg.training.run_folder import METRICS
from scaseg.training.signals import Signals

WORKER = "scaseg.comparison.worker"  # the module that a job's process runs
LOOK = 2.0  # seconds between looks at what other machines do


class Running(NamedTuple):
    """A running job, when it was started (time.monotonic), and the share of it to do then."""

    job: Job
    process: Process
    since: float
    share: float


@dataclass
class Queue:
    """Runs jobs of a comparison, `parallel` of them at a time; each that finishes becomes a row.

    run, split, keep: as `compare` has them. deadline: of time.monotonic(); nothing is started that
    would not end before, at best, and what runs then is stopped. Afterwards `failed` holds the
    errors of jobs that failed, `waiting` the jobs that were not finished, and `problem` says why
    the last of them were not started. claims: where other machines take part; those that have
    nothing to do wait for the others, whose jobs they take over if need be. launch: starts jobs
    elsewhere than on this machine, with so many cores each.
    """

    run: RunConfig
    results: Results
    split: str | None = None
    parallel: int = 1
    keep: str = "models"
    deadline: float | None = None
    log: Callable[[str], None] = lambda line: None
    progress: Progress = lambda done, total: None
    claims: Claims | None = None
    launch: Launcher = start_process
    cores: int | None = None
    waiting: list[Job] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    failed: dict[Job, str] = field(default_factory=dict)
    problem: str = ""
    _next_look: float = 0.0
    _next_beat: float = 0.0

    def work(self, jobs: Sequence[Job]) -> None:
        """Run what is not finished yet; child processes are ended whatever happens.

        At SIGTERM or Ctrl-C they are asked to save; a second Ctrl-C ends them at once.
        """
        self.waiting = [job for job in jobs if job not in self.results.rows]
        # what has begun comes first: less would be lost with its folder
        self.waiting.sort(key=lambda job: self._share_left(job) == 1)
        signals = Signals()
        with ExitStack() as stack:
            stack.callback(signals.restore)
            if self.claims is not None:
                stack.callback(self.claims.close)
            stack.callback(self._stop)  # comes first
            signals.install()
            while not signals.received and (self._fill() or self.running or self._is_elsewhere()):
                self._beat()
                self._collect(len(jobs))
                self._show_progress(jobs)
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    break
                time.sleep(POLL)
        signals.obey(signals.received)

    def start(self, job: Job) -> Process:
        """Begin a job; closing its standard input ends it."""
        cores = self.cores or max(1, usable_cores() // self.parallel)
        run = job.configure(self.run)
        if run.machine.workers is None:
            workers = min(8, cores - 1)  # one core for the training itself
            run = replace(run, machine=replace(run.machine, workers=workers))
        task = {
            "run": asdict(run),
            "place": str(job.run_folder(self.results.folder)),
            "split": self.split,
            "facts": job._asdict(),
            "side_by_side": self._at_once(),
            "started": time.time(),
        }
        log = self._log_of(job)
        # first the folder by which others, and this one if it is killed now, know a comparison
        job.run_folder(self.results.folder).parent.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(exist_ok=True)
        return self.launch(WORKER, json.dumps(task), log, cores)

    def _fill(self) -> bool:
        """Start what there is room and time for; return whether anything was started."""
        begun, late = False, []
        if self.claims is not None:
            if len(self.running) >= self.parallel or time.monotonic() < self._next_look:
                return False
            self._next_look = time.monotonic() + LOOK
            self.results.refresh()
            self.waiting = [job for job in self.waiting if job not in self.results.rows]
        for job in list(self.waiting):
            if len(self.running) >= self.parallel:
                break
            share, now = self._share_left(job), time.monotonic()
            if self.deadline is not None:
                left, takes = self.deadline - now, (self._usual_seconds(job) or 0.0) * share
                if left <= 0 or takes > left:
                    late.append((takes, left))
                    continue
            if not self._claim(job):
                continue
            process = self.start(job)
            self.waiting.remove(job)
            self.running.append(Running(job, process, now, share))
            begun = True
        if late and not self.running:
            takes, left = min(late)
            self.problem = f"one takes {_clock(takes)} or more, and " if takes else ""
            self.problem += f"{_clock(max(0.0, left))} of the time limit were left"
        return begun

    def _at_once(self) -> int:
        """How many jobs run side by side from now on."""
        return max(1, min(self.parallel, len(self.running) + len(self.waiting)))

    def _claim(self, job: Job) -> bool:
        """Make sure that nobody else does a job, and that nobody has done it."""
        if self.claims is None:
            return True
        if not self.claims.take(job):
            return False
        if self._adopt(job) or job in self.results.rows:  # its last owner just had, or was killed
            self.waiting.remove(job)
            self.claims.release(job)
            return False
        return True

    def _is_elsewhere(self) -> bool:
        """Whether other machines do what is left; where time is limited nobody waits for them."""
        return self.claims is not None and self.deadline is None and bool(self.waiting)

    def _beat(self) -> None:
        """Keep this queue's claims; a job that was taken over is no longer its own."""
        if self.claims is None or time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT
        for one in [one for one in self.running if self.claims.is_lost(one.job)]:
            end(one.process)
            self.running.remove(one)
            self.waiting.append(one.job)
            self.claims.release(one.job)
            self.log(f"{one.job}: taken over by another machine")
        self.claims.beat()

    def _collect(self, total: int) -> None:
        """Take over what has ended, and log each: its row, or its error."""
        for one in [one for one in self.running if one.process.poll() is not None]:
            self.running.remove(one)
            one.process.communicate()  # closes its standard input
            if not self._adopt(one.job):
                self.failed[one.job] = self._error_of(one.job, one.process)
                self.log(f"failed: {self.failed[one.job]}")
            if self.claims is not None:
                self.claims.release(one.job)
                self._next_look = 0.0
            if one.job in self.failed:
                continue
            done = total - len(self.waiting) - len(self.running) - len(self.failed)
            score = float(self.results.rows[one.job]["mIoU"])
            took, left = _clock(time.monotonic() - one.since), self._seconds_left()
            more = f"; about {_clock(left)} left" if left else ""
            self.log(f"{done} of {total}: {one.job}: mIoU {score:.1f}, {took}{more}")

    def _adopt(self, job: Job) -> bool:
        """Make a row of a finished job and remove what it no longer needs; False: not finished."""
        if not self.results.adopt(job):
            return False
        self.results.clean_up(job, self.keep)
        log = self._log_of(job)
        log.unlink(missing_ok=True)
        # others, here or on another machine, may be about to write there
        is_last = self.claims is None and not self.running
        if is_last and log.parent.is_dir() and not any(log.parent.iterdir()):
            log.parent.rmdir()
        return True

    def _stop(self) -> None:
        """Ask all running jobs to save and stop, then make sure that they did."""
        processes = [one.process for one in self.running]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        limit = time.monotonic() + GRACE
        try:
            for process in processes:
                process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when Ctrl-C is pressed again
            for process in processes:
                end(process)
        stopped = [one.job for one in self.running if not self._adopt(one.job)]  # else just done
        self.running, self.waiting = [], [*stopped, *self.waiting]

    def _show_progress(self, jobs: Sequence[Job]) -> None:
        epochs = self.run.training.epochs
        done = epochs * len(self.results.of(jobs))
        for one in self.running:
            done += len(read_rows(one.job.run_folder(self.results.folder) / METRICS))
        self.progress(done, epochs * len(jobs))

    def _share_left(self, job: Job) -> float:
        done = epochs_done(job.run_folder(self.results.folder))
        return 1 - done / self.run.training.epochs

    def _usual_seconds(self, job: Job) -> float | None:
        """The mean time of the most similar jobs; None where nothing is known.

        At best: where more of them ran side by side, each may have had a smaller part of the
        device. To start too much costs little, since what is stopped goes on from there.
        """
        now = self._at_once()
        timed = [row for row in self.results.rows.values() if row.get("seconds")]

        def side_by_side(row: Row) -> int:
            return int(row.get("side_by_side") or now)

        def likeness(row: Row) -> tuple[bool, bool]:
            return row["variant"] == job.variant, side_by_side(row) == now

        most = max(map(likeness, timed), default=None)
        alike = [row for row in timed if likeness(row) == most]
        known = [float(row["seconds"]) * min(1.0, now / side_by_side(row)) for row in alike]
        return statistics.fmean(known) if known else None

    def _seconds_left(self) -> float | None:
        """Estimate how long the rest takes; None where nothing is known."""
        now, total = time.monotonic(), 0.0
        parts = [(job, self._share_left(job), now) for job in self.waiting]
        parts += [(one.job, one.share, one.since) for one in self.running]
        for job, share, since in parts:
            whole = self._usual_seconds(job)
            if whole is None:
                return None
            total += max(0.0, whole * share - (now - since))
        return total / self._at_once()

    def _log_of(self, job: Job) -> Path:
        return self.results.folder / "logs" / f"{job.run_folder('').name}.log"

    def _error_of(self, job: Job, process: Process) -> str:
        """The last error of a failed job, in one line."""
        log, code = self._log_of(job), process.returncode or 0
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        if problem := getattr(process, "problem", None):
            last = problem
        elif errors:
            last = errors[-1].removeprefix("error: ")
        elif code == -getattr(signal, "SIGKILL", 9):
            last = "killed by the system, perhaps for lack of memory; try fewer --jobs"
        else:
            last = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{job}: {last} (its log is {log})"


def _clock(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds.

    >>> _clock(3661.2), _clock(70)
    ('1:01:01', '1:10')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
