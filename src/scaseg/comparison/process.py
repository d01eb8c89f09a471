"""The process of one job: how it is started and ended, here or on a node of a cluster.

Without torch: where a job is a task of a cluster, another process waits for it.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

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
    """Begin a job on this machine; closing its standard input ends it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            # threads that wait for each other on a busy core would wait most of the time
            env={"OMP_NUM_THREADS": str(cores), **os.environ},
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            process_group=0,  # Ctrl-C is for the queue, which asks its jobs to save
        )
    assert process.stdin is not None
    try:
        process.stdin.write(task.encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it has ended already, and its log says why
    return process


def end(process: Process) -> None:
    """End a process and all that it has started."""
    if process.poll() is None:
        if isinstance(process, subprocess.Popen) and hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.communicate()  # waits, and closes its standard input


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
