"""The process of jobs: train, evaluate, write the result. The queue starts it.

The description of a job comes as a line on standard input, which then stays open: when it closes,
the queue is gone, and the job ends too.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import statistics
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from scaseg.comparison.judged import judged
from scaseg.comparison.results import RESULT, epochs_done, is_resumable
from scaseg.comparison.statistics import OCCLUSION, SELECTIVITY
from scaseg.config.reading import read
from scaseg.config.run import RunConfig
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.splits import evaluation_split
from scaseg.errors import UserError, WorkError, one_line
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.atomic import write_json
from scaseg.io.lock import folder_lock
from scaseg.io.model_folder import MODEL
from scaseg.io.table import Row
from scaseg.models.build import load_model
from scaseg.models.segmenter import Segmenter
from scaseg.nn.context import Context
from scaseg.nn.contexts.baselines import NoContext
from scaseg.nn.own import add_context
from scaseg.system import MemoryPeak
from scaseg.training.evaluation import evaluate
from scaseg.training.run import train
from scaseg.training.trainer import choose_accelerator

PATIENCE = 60.0  # seconds for the processes of a killed queue to leave a run folder
IMAGES = 16  # on which maps are measured
DECISIONS, REPEATS = 8, 2  # of the occlusion check, for each image


def run_job(run: RunConfig, place: Path, split: str | None, started: float) -> Row:
    """Train and evaluate one network; a run that was interrupted is resumed.

    started: when the queue started it (time.time), because imports take time too.
    """
    _wait_for(place)
    resume = is_resumable(place)
    if not resume and place.exists():
        shutil.rmtree(place)  # killed before its first state was saved
    before = epochs_done(place)
    device = choose_accelerator(run.machine)
    with MemoryPeak(device) as peak:
        result = train(run, place, resume=resume, overwrite=not resume, quiet=True)
    model = load_model(place / MODEL)
    torch.backends.cudnn.benchmark = False  # images are evaluated at their own sizes
    scores = evaluate_model(model, run, split)
    speed = statistics.median(float(row["images_per_second"]) for row in result.rows)
    earlier = sum(float(row["seconds"]) for row in result.rows[:before])
    return {
        **scores,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "milliseconds": 1000 / speed,
        "mebibytes": None if resume else peak.mebibytes,  # a part of a run says little
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "seconds": round(earlier + time.time() - started, 1),
    }


def evaluate_model(model: Segmenter, run: RunConfig, split: str | None) -> Row:
    """Scores of a model on a split, and how selective its maps are there."""
    dataset, _ = evaluation_split(run.data, split)
    model.to(choose_accelerator(run.machine))  # the maps are measured where the model is
    machine = replace(run.machine, devices=1, nodes=1)
    result = evaluate(model, dataset, machine=machine, check=run.data.check, quiet=True)
    scores = {**result.scores.summary(), **judged(run, split)._asdict()}
    return scores | measure_maps(model, dataset)


def measure_maps(model: Segmenter, dataset: SegmentationDataset) -> Row:
    """Measure the maps of a model on a few images, evenly spread; None where it has no maps."""
    measured: Row = dict.fromkeys((*SELECTIVITY, *OCCLUSION))
    context = model.context
    if isinstance(context, NoContext) or not (isinstance(context, Context) and context.has_maps):
        return measured
    count = min(IMAGES, len(dataset))
    chosen = [index * len(dataset) // count for index in range(count)]
    found = selectivity(model, (dataset[index].image for index in chosen))
    measured |= {name: getattr(found, name).mean for name in SELECTIVITY}
    with suppress(UserError):  # maps of one or two neurons: nothing to take away
        images = (dataset[index].image for index in chosen)
        drops = occlusion(model, images, decisions=DECISIONS, repeats=REPEATS)
        measured |= {name: getattr(drops, name.split("_")[1]).mean for name in OCCLUSION}
    return measured


def main() -> None:
    """Do the jobs described on standard input; exit code 1 and one line where one fails.

    A job that names its log may have others after it: a line says that it is done. An empty one is
    the last.
    """
    tasks = SimpleQueue[dict[str, Any]]()
    if not (task := _read_task()):
        sys.exit("error: no job on standard input; use scaseg compare")
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    says = os.dup(1)
    try:
        while task:
            if "log" in task:
                _write_to(task["log"])
            do(task)
            if "log" not in task:
                return
            gc.collect()
            if torch.cuda.is_initialized():
                # else the next job would find it there, and seem to need less memory of its own
                torch._C._cuda_clearCublasWorkspaces()
                torch.cuda.empty_cache()  # those beside it may want the memory
            os.write(says, b"\n")
            task = tasks.get()
    except Exception as error:
        traceback.print_exc()
        known = isinstance(error, (UserError, WorkError, OSError))
        text = str(error) if known else f"{type(error).__name__}: {error}"
        sys.exit(f"error: {one_line(text)}")


def do(task: dict[str, Any]) -> None:
    """Do one job and write its result; then it is finished."""
    if ":" in (context := task["run"]["model"]["context"]):
        add_context(context)  # the queue's process was asked for it
    place = Path(task["place"])
    row = run_job(read(RunConfig, task["run"]), place, task["split"], task["started"])
    write_json(place / RESULT, {**task["facts"], **row, "side_by_side": task["side_by_side"]})


def _write_to(log: str) -> None:
    """Send what this process prints to the log of a job."""
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _read_task() -> dict[str, Any] | None:
    """Return the next job; None where the queue is gone."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(0, 65536)  # not sys.stdin: its lock would be held as the process ends
        if not part:
            return None
        text += part
    task: dict[str, Any] = json.loads(text)
    return task


def _listen(tasks: SimpleQueue[dict[str, Any]]) -> None:
    """Pass on what else there is to do; with the queue, end this process and all it started."""
    while (task := _read_task()) is not None:
        tasks.put(task)
        if not task:
            return
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _wait_for(place: Path) -> None:
    """Wait until a run folder is free: the processes of a killed queue may just be ending."""
    end = time.monotonic() + PATIENCE
    while place.is_dir():
        try:
            with folder_lock(place, "--out"):
                return
        except UserError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
