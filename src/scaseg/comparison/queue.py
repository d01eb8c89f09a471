"""Jobs in parallel, each in a process of its own; no process is left behind.

`Queue` does not know what a job computes: `start` gives a process that stops at SIGTERM and ends by
itself when this one is gone. `Launcher` starts the processes of a comparison.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from scaseg.comparison.jobs import Job, run_folder
from scaseg.config.run import RunConfig
from scaseg.system import usable_cores

WORKER = "scaseg.comparison.worker"  # the module that a job's process runs
POLL = 0.1  # seconds between checks
GRACE = 30.0  # seconds to save a state in, after SIGTERM
Process = subprocess.Popen[bytes]


@dataclass
class Outcome:
    """The jobs by their end; a failed one with its error."""

    finished: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    remaining: list[Job] = field(default_factory=list)


class Running(NamedTuple):
    """A running job, its start, and the share of it that was to do then."""

    job: Job
    process: Process
    since: float
    share: float

    def elapsed(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.since


@dataclass
class Queue:
    """Run jobs, `parallel` of them at a time.

    start: begin a job. finish: take over the result of one that ended, False where there is none.
    error_of: the error of a failed job, given its exit code. on_end: called for every job that
    ended, with its seconds. on_poll: called between checks. estimate: seconds that a whole job
    takes, None where nothing is known. share_left: the share of a job still to do before it starts.
    deadline: of time.monotonic(); nothing is started that would not end before, and what runs then
    is stopped.
    """

    start: Callable[[Job], Process]
    finish: Callable[[Job], bool]
    error_of: Callable[[Job, int], str]
    on_end: Callable[[Job, float, Queue], None]
    on_poll: Callable[[], None] = lambda: None
    estimate: Callable[[Job], float | None] = lambda job: None
    share_left: Callable[[Job], float] = lambda job: 1.0
    parallel: int = 1
    deadline: float | None = None
    waiting: list[Job] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Run what can be run; child processes are ended whatever happens."""
        self.waiting = list(jobs)
        try:
            while self._fill() or self.running:
                self._collect()
                self.on_poll()
                if self.deadline is not None and time.monotonic() >= self.deadline:
                    break
                time.sleep(POLL)
        finally:
            self._end_all()
        self.outcome.remaining += self.waiting
        return self.outcome

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes; None where nothing is known."""
        total = 0.0
        for job, share, elapsed in [
            *((job, self.share_left(job), 0.0) for job in self.waiting),
            *((one.job, one.share, one.elapsed()) for one in self.running),
        ]:
            whole = self.estimate(job)
            if whole is None:
                return None
            total += max(0.0, whole * share - elapsed)
        return total / self.parallel

    def _fill(self) -> bool:
        """Start what there is room and time for; return whether anything was started."""
        begun = False
        for job in list(self.waiting):
            if len(self.running) >= self.parallel:
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
                self.outcome.failed.append((job, self.error_of(job, process.returncode)))
            self.on_end(job, one.elapsed(), self)

    def _end_all(self) -> None:
        """Ask all running jobs to save and stop, then make sure that they did."""
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
    """End a process and all that it has started."""
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


@dataclass(frozen=True)
class Launcher:
    """Starts the jobs of a comparison in `folder`, `parallel` of them at a time."""

    run: RunConfig
    folder: Path
    split: str | None
    parallel: int

    def start(self, job: Job) -> Process:
        """Begin a job; closing its standard input ends it."""
        cores = max(1, usable_cores() // self.parallel)
        run = job.configure(self.run)
        if run.machine.workers is None:
            workers = min(8, cores - 1)  # one core for the training itself
            run = replace(run, machine=replace(run.machine, workers=workers))
        task = {
            "run": asdict(run),
            "place": str(run_folder(self.folder, job.key)),
            "split": self.split,
            "facts": {"variant": job.variant.name, "seed": job.seed, "fold": job.fold},
            "side_by_side": self.parallel,
            "started": time.time(),
        }
        log = self.log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                # threads that wait for each other on a busy core would wait most of the time
                env={"OMP_NUM_THREADS": str(cores), **os.environ},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                process_group=0,  # Ctrl-C is for the queue, which asks its jobs to save
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already, and its log says why
        return process

    def log(self, job: Job) -> Path:
        """The log of a job."""
        return self.folder / "logs" / f"{run_folder(self.folder, job.key).name}.log"

    def error_of(self, job: Job, code: int) -> str:
        """The last error of a failed job, in one line."""
        log = self.log(job)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        if errors:
            last = errors[-1].removeprefix("error: ")
        elif code == -getattr(signal, "SIGKILL", 9):
            last = "killed by the system, perhaps for lack of memory; try fewer --jobs"
        else:
            last = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{job}: {last} (its log is {log})"

    def remove_log(self, job: Job) -> None:
        """Remove the log of a job that went well, and the folder with the last of them."""
        self.log(job).unlink(missing_ok=True)
        logs = self.log(job).parent
        if logs.is_dir() and not any(logs.iterdir()):
            logs.rmdir()
