"""Jobs of a comparison as tasks of a Ray cluster, each with a share of a GPU.

A task starts the same process as the queue does on one machine, and waits for it. What a lost
worker or node was doing Ray gives to another, where it goes on from the last saved state. Only the
queue, in the process that the user started, writes results.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from scaseg.comparison.process import run_process
from scaseg.comparison.queue import Queue
from scaseg.errors import UserError, WorkError
from scaseg.io.ray_cluster import first_line


def place_on(ray: Any, queue: Queue, *, jobs: int | None, gpus: float | None) -> None:
    """Let a queue run its jobs on a cluster; jobs: so many at once (None: as many as fit now).

    gpus: of each job (None: one, where there are any). What does not fit now waits in Ray, whose
    autoscaler sees it. UserError: there is no GPU to have a share of.
    """
    device = queue.run.machine.device
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in nodes if node.get("CPU", 0) >= 1]
    with_gpus = [node for node in nodes if node.get("GPU", 0) >= 1]
    if not with_gpus and (gpus or device == "cuda"):
        option = "--gpus" if gpus else "--device"
        raise UserError(option, "there is no GPU in the cluster", "leave it out")
    share = 0.0
    if with_gpus and device in ("auto", "cuda"):
        nodes, share = with_gpus, gpus or 1.0
    if not nodes:
        raise WorkError("--engine ray", "the cluster has no node with a core", "add one")
    cores = [int(node["CPU"]) for node in nodes]
    fit = sum(int(node["GPU"] / share) for node in nodes) if share else sum(cores)
    queue.parallel = jobs or fit
    # no more than the smallest node has: a job must not wait for one that is not there
    queue.cores = max(1, min(sum(cores) // queue.parallel, *cores))
    work = ray.remote(run_process)

    def launch(module: str, task: str, log: Path, cores: int) -> RayProcess:
        placed = work.options(num_cpus=cores, num_gpus=share, name=log.stem)
        return RayProcess(ray, placed.remote(module, task, str(log), cores, os.getcwd()))

    queue.launch = launch


class RayProcess:
    """A task, with what the queue wants of a process."""

    def __init__(self, ray: Any, task: Any) -> None:
        self.ray, self.task = ray, task
        self.returncode: int | None = None
        self.problem: str | None = None  # where it is not in the log

    def poll(self) -> int | None:
        if self.returncode is None and self.ray.wait([self.task], timeout=0)[0]:
            try:
                self.returncode = self.ray.get(self.task)
            except self.ray.exceptions.RayError as error:  # lost too often, or cancelled
                self.returncode = 1
                cause = getattr(error, "cause", None)
                self.problem = str(cause) if isinstance(cause, WorkError) else first_line(error)
        return self.returncode

    def terminate(self) -> None:
        """Ask the job to save and stop."""
        self.ray.cancel(self.task)

    def kill(self) -> None:
        self.ray.cancel(self.task, force=True)

    def wait(self, timeout: float) -> None:
        if not self.ray.wait([self.task], timeout=timeout)[0]:
            raise subprocess.TimeoutExpired("", timeout)

    def communicate(self) -> None:
        """Nothing to close: the task has its own process's input."""
