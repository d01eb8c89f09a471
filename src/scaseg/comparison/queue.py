"""Jobs side by side, each in a process of its own: started, heard, ended in time, none left behind.

What a job computes is not known here: `start` gives a process that is told to stop by SIGTERM and
ends by itself when this one is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from scaseg.comparison.jobs import Job

POLL = 0.1  # seconds between looks
GRACE = 30.0  # seconds to save a state in, after SIGTERM
Process = subprocess.Popen[bytes]


@dataclass
class Outcome:
    """What became of the jobs; a failed one with what it said."""

    finished: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    remaining: list[Job] = field(default_factory=list)


class Running(NamedTuple):
    """A job that runs, since when, and how much of it was to do then."""

    job: Job
    process: Process
    since: float
    share: float

    def elapsed(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.since


@dataclass
class Queue:
    """Works jobs off, so many at a time.

    start: begins a job. finish: takes over the result of one that ended; whether there was one.
    complain: what one that failed has said. hear: told of every job that ended, with its seconds.
    estimate: how long a whole job takes, in seconds; None: nobody knows. share_left: how much of
    one is still to do, before it starts. deadline: of time.monotonic(); nothing is started that
    would not end before, and what runs then is stopped.
    """

    start: Callable[[Job], Process]
    finish: Callable[[Job], bool]
    complain: Callable[[Job, int], str]
    estimate: Callable[[Job], float | None]
    hear: Callable[[Job, float, Queue], None]
    share_left: Callable[[Job], float] = lambda job: 1.0
    side_by_side: int = 1
    deadline: float | None = None
    waiting: list[Job] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Work off what can be; children are ended whatever happens."""
        self.waiting = list(jobs)
        try:
            while self._fill() or self.running:
                self._collect()
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    break
                time.sleep(POLL)
        finally:
            self._end_all()
        self.outcome.remaining += self.waiting
        return self.outcome

    def seconds_left(self) -> float | None:
        """How long the rest takes, as far as anybody knows."""
        total = 0.0
        for job, share, elapsed in [
            *((job, self.share_left(job), 0.0) for job in self.waiting),
            *((one.job, one.share, one.elapsed()) for one in self.running),
        ]:
            whole = self.estimate(job)
            if whole is None:
                return None
            total += max(0.0, whole * share - elapsed)
        return total / self.side_by_side

    def _fill(self) -> bool:
        """Start what has room and time; whether anything was started."""
        begun = False
        for job in list(self.waiting):
            if len(self.running) >= self.side_by_side:
                break
            if self._fits(job):
                self.waiting.remove(job)
                share, since = self.share_left(job), time.monotonic()
                self.running.append(Running(job, self.start(job), since, share))
                begun = True
        return begun

    def _fits(self, job: Job) -> bool:
        if self.deadline is None:
            return True
        left = self.deadline - time.monotonic()
        return left > 0 and (self.estimate(job) or 0.0) * self.share_left(job) <= left

    def _collect(self) -> None:
        for one in list(self.running):
            job, process = one.job, one.process
            if process.poll() is None:
                continue
            self.running.remove(one)
            _close(process)
            if self.finish(job):
                self.outcome.finished.append(job)
            else:
                self.outcome.failed.append((job, self.complain(job, process.returncode)))
            self.hear(job, one.elapsed(), self)

    def _end_all(self) -> None:
        """Tell all that run to save and stop, and make sure that they do."""
        processes = [one.process for one in self.running]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + GRACE
        try:
            for process in processes:
                process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:  # also when Ctrl-C is pressed again
            for process in processes:
                _kill(process)
        for one in self.running:
            if self.finish(one.job):  # just done
                self.outcome.finished.append(one.job)
            else:
                self.outcome.remaining.append(one.job)
        self.running = []


def _kill(process: Process) -> None:
    """End a process with all that it has started."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
    _close(process)


def _close(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
