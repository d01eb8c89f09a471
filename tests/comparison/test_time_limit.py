"""scaseg compare --time-limit: what is started, and what is said of the rest."""

import json
import subprocess
import sys
import time

import pytest

from scaseg.cli import main
from scaseg.comparison.compare import Comparison
from scaseg.comparison.jobs import Job
from scaseg.comparison.queue import Queue
from scaseg.comparison.results import Results
from scaseg.config.run import RunConfig


class EmptyJobs(Queue):
    """A queue whose jobs are done as soon as they are started."""

    def start(self, job):
        place = job.run_folder(self.results.folder)
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps({**job._asdict(), "mIoU": 50}))
        return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)


def test_nothing_is_started_that_would_not_end_in_time(tmp_path):
    """Estimated by the job's own variant."""
    results = Results(tmp_path)
    for variant, seconds in (("none", 1.0), ("sca", 5000.0), ("dot", 2.0)):
        row = {"variant": variant, "seed": 0, "fold": None, "seconds": seconds, "side_by_side": 1}
        results.rows[Job.of_row(row)] = row
    work = EmptyJobs(RunConfig(), results, parallel=2, deadline=time.monotonic() + 600)
    work.work([Job(variant, 1) for variant in ("none", "sca", "dot")])
    assert set(results.rows) - {Job(variant, 0) for variant in ("none", "sca", "dot")} == {
        Job("none", 1),
        Job("dot", 1),
    }
    assert (work.waiting, work.failed) == ([Job("sca", 1)], {})
    assert work.problem.startswith("one takes 1:23:20 or more, and ")
    assert work.problem.endswith(" of the time limit were left")


@pytest.mark.parametrize(
    ("before", "at_once", "starts"),
    [("9", 3, True), ("9", 6, False), ("3", 3, False), ("1", 3, False), ("", 3, False)],
)
def test_fewer_at_once_take_less_time(tmp_path, before, at_once, starts):
    """450 s of nine at once are 150 s of three, at best; other variants say less."""
    results = Results(tmp_path)
    for variant, seconds, beside in (("none", "450", before), ("dot", "10", str(at_once))):
        row = {"variant": variant, "seed": "0", "seconds": seconds, "side_by_side": beside}
        results.rows[Job.of_row(row)] = row
    work = Queue(RunConfig(), results, parallel=9, deadline=time.monotonic() + 200)
    work.start = lambda job: None
    work.waiting = [Job("none", seed) for seed in range(1, 1 + at_once)]
    assert work._fill() == starts
    assert (work.problem == "") == starts


def test_what_is_left_of_an_interrupted_training_counts(tmp_path, monkeypatch):
    results = Results(tmp_path)
    results.rows[Job("none", 0)] = {"variant": "none", "seconds": "450", "side_by_side": "1"}
    left = {Job("none", 1): 1.0, Job("none", 2): 0.4}
    monkeypatch.setattr(Queue, "_share_left", lambda self, job: left[job])
    work = Queue(RunConfig(), results, deadline=time.monotonic() + 200)
    work.start = lambda job: None
    work.waiting = list(left)
    work._fill()
    assert [one.job for one in work.running] == [Job("none", 2)]


def test_how_many_run_side_by_side_is_in_the_row(tmp_path):
    """Fewer than --jobs where there is less to do."""
    told = []

    def launch(module, task, log, cores):
        told.append(json.loads(task)["side_by_side"])

    work = Queue(RunConfig(), Results(tmp_path), parallel=9, launch=launch)
    work.waiting = [Job("none", seed) for seed in range(3)]
    work._fill()
    assert told == [3, 3, 3]


def test_why_nothing_was_started_is_said(tmp_path, monkeypatch, capsys):
    why = "one takes 6:40 or more, and 5:10 of the time limit were left"
    found = Comparison([], [], ["none, seed 1", "none, seed 2"], why)
    monkeypatch.setattr("scaseg.comparison.compare.compare", lambda *_, **__: found)
    main(["compare", "--data.name", "context_scenes_global", "--out", f"{tmp_path}/out"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"2 jobs (none, seed 1, ...) still to do: {why}; go on with: ")
