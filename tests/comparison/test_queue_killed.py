"""Queues that are killed or told to end, in processes of their own: no row lost, none double."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from scaseg.comparison import queue as starting
from scaseg.io.table import read_rows
from tests.comparison.queues import ROOT, keys, read_diary
from tests.processes import is_alive, wait_until
from tests.scenes import write_scenes

DRIVER = """
import json, os, sys
import scaseg.comparison.compare as module
from scaseg.config.recipe import load_recipe
from scaseg.comparison import queue as starting

module._try_out = lambda *_: None
starting.GRACE = 240
for line in sys.stdin:  # start a queue in a process of its own, and say which
    task = json.loads(line)
    queue = os.fork()
    if queue == 0:
        try:
            starting.WORKER = task["module"]
            os.environ["FAKE_JOB"] = json.dumps(task["orders"])
            run = load_recipe(None, task["keys"])
            module.compare(run, task["contexts"], seeds=task["seeds"], out=task["out"], jobs=3)
            os._exit(0)
        finally:
            os._exit(1)
    print("started", queue, flush=True)
    print("ended", os.waitpid(queue, 0)[1], flush=True)
"""
REAL, FAKE, HELD = starting.WORKER, "tests.comparison.fake_job", "tests.comparison.held_worker"


@pytest.fixture(scope="module")
def start_queue():
    """Start a queue in a process of its own, without its imports; gives its id, and its end."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    def start(**task):
        driver.stdin.write(json.dumps(task) + "\n")
        driver.stdin.flush()
        return read("started"), lambda: read("ended")

    def read(wanted):
        """The number of the next such line; a test that failed may have left others unread."""
        for line in driver.stdout:
            word, number = line.split()
            if word == wanted:
                return int(number)
        raise AssertionError("the driver is gone")

    with driver:
        yield start
        driver.stdin.close()


def kill(pid, number=signal.SIGKILL):
    assert pid > 1  # 0 would be everybody
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def jobs_marked(mark):
    """The processes of jobs that were started with a mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            here = str(mark).encode() in (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
            if here and any(module.encode() in command for module in (REAL, FAKE, HELD)):
                found.append(process.name)
        except OSError:
            continue  # gone, or somebody else's
    return found


def test_killed_at_any_moment_no_row_is_lost_or_double(tmp_path, start_queue):
    """Kill -9 of the queue 12 times, then one that may finish; its jobs go with it every time."""
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(24, 24)), tmp_path / "out"
    task = {
        "module": FAKE,
        "orders": {"seconds": 0.05, "diary": str(tmp_path / "diary")},
        "keys": {"data.root": str(scenes), "data.folds": "3", "model.backbone": "tiny"},
        "contexts": ["none", "average", "sca"],
        "seeds": 4,
        "out": str(out),
    }
    chance, patience = random.Random(0), 0.4
    kept, kills = [], 0
    while kills < 12 or not kept:
        one, ended = start_queue(**task)
        time.sleep(chance.uniform(0.05, patience))
        kill(one)
        ended()
        kills += 1
        rows = keys(out)
        assert rows[: len(kept)] == kept  # what was there is there
        assert len(set(rows)) == len(rows)
        if rows == kept:
            patience *= 1.2  # a busy machine: nothing was finished in that time
        kept = rows
    assert start_queue(**task)[1]() == 0
    rows = keys(out)
    assert len(rows) == len(set(rows)) == 36
    began = [pid for what, _, pid, _ in read_diary(tmp_path / "diary") if what == "began"]
    assert len(began) >= 36
    wait_until(lambda: not jobs_marked(tmp_path))


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_queue_that_is_told_to_end_ends_its_jobs(tmp_path, start_queue, told):
    scenes, diary = write_scenes(tmp_path / "scenes", 12, size=(24, 24)), tmp_path / "diary"
    queue, ended = start_queue(
        module=FAKE,
        orders={"seconds": 600, "diary": str(diary)},
        keys={"data.root": str(scenes)},
        contexts=["none", "average", "sca"],
        seeds=2,
        out=str(tmp_path / "out"),
    )
    wait_until(lambda: len(read_diary(diary)) == 3)
    kill(queue, told)
    assert ended() != 0
    assert [what for what, *_ in read_diary(diary)].count("stopped") == 3
    assert not any(is_alive(pid) for _, _, pid, _ in read_diary(diary))


def test_a_real_training_killed_with_its_queue_goes_on(tmp_path, start_queue):
    """Kill -9 in the middle of a training: it goes on from its last state, and counts once."""
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(24, 24)), tmp_path / "out"
    keys_of_run = {"data.root": str(scenes), "data.folds": "2", "data.fold": "2"}
    keys_of_run |= {"model.backbone": "tiny", "training.epochs": "20", "machine.device": "cpu"}
    task = {"module": HELD, "contexts": ["none"], "seeds": 1, "out": str(out)}
    task["orders"] = {"hold": str(tmp_path / "hold")}  # in the environment of its jobs
    (tmp_path / "hold").touch()
    task["keys"] = keys_of_run | {"machine.workers": "0"}
    queue, ended = start_queue(**task)
    place = out / "runs" / "none-seed0-fold2"
    epochs = place / "metrics.csv"
    wait_until(lambda: len(read_rows(epochs)) >= 2)
    assert jobs_marked(tmp_path)
    kill(queue)
    ended()
    wait_until(lambda: not jobs_marked(tmp_path))
    (tmp_path / "hold").unlink()
    assert len(read_rows(epochs)) == 2
    assert not (out / "results.csv").exists()
    assert start_queue(**task)[1]() == 0
    assert keys(out) == [("none", "0", "2")]
    assert [int(row["epoch"]) for row in read_rows(epochs)] == [*range(1, 21)]
    sessions = json.loads((place / "environment.json").read_text())["sessions"]
    assert len(sessions) == 2  # continued, not started over
    assert not (place / "checkpoints").exists()
    assert read_rows(out / "results.csv")[0]["images"] == "6"
