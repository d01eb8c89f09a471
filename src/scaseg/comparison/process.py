"""The processes of jobs: how they are started and ended, here or on a node of a cluster.

Without torch: where a job is a task of a cluster, another process waits for it.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from scaseg.errors import WorkError

POLL = 0.1  # seconds between checks
GRACE = 30.0  # seconds to save a state in, after SIGTERM


class Process(Protocol):
    """What the queue wants of a job's process: of subprocess.Popen, or of a task elsewhere."""

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float) -> object: ...
    def communicate(self) -> object: ...


class Launcher(Protocol):
    """What starts the process of a job: a module with a task, a line, on its standard input."""

    def __call__(self, module: str, task: str, log: Path, cores: int) -> Process: ...


def start_process(module: str, task: str, log: Path, cores: int) -> subprocess.Popen[bytes]:
    """Begin a job on this machine, in a process of its own; closing its standard input ends it."""
    with log.open("wb") as file:
        process = _open(module, cores, file, file)
    _tell(process, task)  # or it has ended already, and its log says why
    return process


class Workers:
    """Starts jobs in processes that take one after the other, and end with the first that fails.

    What a process has once, imports and what a GPU prepares, took a third of the time of short
    trainings. `close` ends those that wait.
    """

    def __init__(self) -> None:
        self._waiting: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, task: str, log: Path, cores: int) -> Turn:
        """Begin a job on this machine, in a process that waits or in a new one."""
        task = json.dumps({**json.loads(task), "log": str(log)})
        log.write_bytes(b"")
        while self._waiting:
            process = self._waiting.pop()
            if process.poll() is None and _tell(process, task):
                return Turn(process, self._waiting)
            _close(process)
        with log.open("ab") as file:
            process = _open(module, cores, subprocess.PIPE, file)
        _tell(process, task)
        return Turn(process, self._waiting)

    def close(self) -> None:
        while self._waiting:
            process = self._waiting.pop()
            _tell(process, "{}")  # the last: under MPS a killed process may end those beside it
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                _kill(process)
            _close(process)


class Turn:
    """One job of a process that may have others after it: what the queue wants of a process."""

    def __init__(
        self, process: subprocess.Popen[bytes], waiting: list[subprocess.Popen[bytes]]
    ) -> None:
        """waiting: where the process goes when the job is done."""
        self.returncode: int | None = None
        self._process, self._waiting, self._is_free = process, waiting, False
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)

    def poll(self) -> int | None:
        if self.returncode is None:
            assert self._process.stdout is not None
            ended = self._process.poll()  # first: what it said before it ended counts
            if self._process.stdout.read(1):  # a line of the worker's: done
                self.returncode, self._is_free = 0, True
                self._waiting.append(self._process)
            else:
                self.returncode = ended
        return self.returncode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        _kill(self._process)

    def wait(self, timeout: float) -> None:
        limit = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() >= limit:
                raise subprocess.TimeoutExpired(self._process.args, timeout)
            time.sleep(POLL / 10)

    def communicate(self) -> None:
        if not self._is_free:  # else another job may have it
            _close(self._process)
            if self.returncode is None:  # it was killed
                self.returncode = self._process.returncode


def end(process: Process) -> None:
    """End a process and all that it has started."""
    if process.poll() is None:
        if isinstance(process, subprocess.Popen):
            _kill(process)
        else:
            process.kill()
    process.communicate()  # waits, and closes its standard input


def _open(module: str, cores: int, out: IO[bytes] | int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        # threads that wait for each other on a busy core would wait most of the time
        env={"OMP_NUM_THREADS": str(cores), **os.environ},
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=log,
        process_group=0,  # Ctrl-C is for the queue, which asks its jobs to save
    )


def _tell(process: subprocess.Popen[bytes], task: str) -> bool:
    """Give a process its task; False: it has ended."""
    assert process.stdin is not None
    try:
        process.stdin.write(task.encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _close(process: subprocess.Popen[bytes]) -> None:
    """Close what a process listens to, at which it ends, and wait for that."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # of a task that it did not read
                pipe.close()
    process.wait()


def run_process(module: str, task: str, log: str, cores: int, folder: str) -> int:
    """Run a job to its end and return its exit code; KeyboardInterrupt asks it to save and stop.

    folder: where the user is, to whom relative names belong. However this process ends, the job
    ends with it. WorkError: this machine does not see the comparison.
    """
    if Path(folder).is_dir():
        os.chdir(folder)
    if not Path(log).parent.is_dir():
        place = f"{Path(log).parent} on {platform.node()}"
        raise WorkError(place, "no such folder", "give --out in one that all machines share")
    # what was started in the background of a script, as a cluster may have been, ignores it
    process, usual = None, signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start_process(module, task, Path(log), cores)
        while process.poll() is None:
            time.sleep(POLL)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # being asked again must not cut it short
        limit = time.monotonic() + GRACE
        if process is not None:
            process.terminate()
        while process is not None and process.poll() is None and time.monotonic() < limit:
            time.sleep(POLL)
    finally:
        if process is not None:
            end(process)
        signal.signal(signal.SIGINT, usual)
    return 128 + signal.SIGTERM if process is None else process.returncode
