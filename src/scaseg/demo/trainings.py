"""Several trainings side by side: small networks keep one core busy each, not two."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scaseg.config.recipe import save_recipe
from scaseg.config.run import RunConfig
from scaseg.io.table import read_rows
from scaseg.system import usable_cores
from scaseg.training.run_folder import METRICS
from scaseg.training.trainer import WorkError

Progress = Callable[[int, int], None]


def train_side_by_side(
    runs: Mapping[str, RunConfig], folder: Path, *, progress: Progress | None = None
) -> None:
    """Train each run in a process of its own, into folder/NAME, by the command that a user types.

    progress hears of epochs: how many are done, of how many. WorkError where one fails; the
    others are ended then, and on Ctrl-C.
    """
    threads = max(1, usable_cores() // len(runs))
    total = sum(run.training.epochs for run in runs.values())
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, run in runs.items():
            started[name] = _start(run, folder, name, threads)
        while any(process.poll() is None for process in started.values()):
            for name, process in started.items():
                _require_success(name, process, folder)
            if progress is not None:
                progress(sum(_epochs(folder / name) for name in runs), total)
            time.sleep(0.3)
        for name, process in started.items():
            _require_success(name, process, folder)
    finally:
        for process in started.values():
            if process.poll() is None:
                process.terminate()
        for process in started.values():
            process.wait()


def _start(run: RunConfig, folder: Path, name: str, threads: int) -> subprocess.Popen[str]:
    if (folder / name / METRICS).is_file():
        (folder / name / METRICS).unlink()  # an earlier demo's is not this one's progress
    recipe = folder / f"{name}.yaml"
    save_recipe(run, recipe)
    command = [sys.executable, "-m", "scaseg.cli", "train", str(recipe)]
    command += ["--out", str(folder / name), "--quiet", "--overwrite"]
    # threads that wait for each other on a busy core would wait most of the time
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
        )


def _epochs(folder: Path) -> int:
    return len(read_rows(folder / METRICS)) if (folder / METRICS).is_file() else 0


def _require_success(name: str, process: subprocess.Popen[str], folder: Path) -> None:
    if process.poll() in (None, 0):
        return
    log = folder / f"{name}.log"
    said = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    last = said[-1].removeprefix("error: ") if said else f"exit code {process.returncode}"
    raise WorkError(f"training {name}: {last} (all that it said is in {log})")
