"""What a comparison measures of each model."""

import json

import pytest

from scaseg import create_model
from scaseg.comparison.jobs import Job
from scaseg.comparison.process import Workers
from scaseg.comparison.queue import Queue
from scaseg.comparison.results import Results
from scaseg.comparison.worker import measure_maps
from scaseg.config.recipe import load_recipe
from scaseg.data.datasets.context_scenes import ContextScenesGlobal
from tests.scenes import write_scenes


@pytest.mark.parametrize(("context", "measured"), [("none", 0), ("psp", 0), ("ccnet", 1)])
def test_maps_are_measured_where_there_are_some(context, measured):
    data = ContextScenesGlobal("val")
    data.scenes = data.scenes[:2]
    model = create_model("tiny", context, "pointwise", classes=data.classes).eval()
    row = measure_maps(model, data)
    assert (row["entropy"] is not None) == bool(measured)
    assert measured or not any(row.values())


def test_a_second_job_of_a_process_is_that_of_a_fresh_one(tmp_path):
    """Nothing of a training stays behind that another would notice: to the bit."""
    scenes = write_scenes(tmp_path / "scenes", 12, size=(40, 48))
    keys = {"data.root": str(scenes), "model.backbone": "tiny", "machine.device": "cpu"}
    keys |= {"machine.workers": "0", "training.epochs": "1", "model.head": "pointwise"}
    keys |= {"augment.fit": "null", "augment.crop": "null", "training.pictures": "0"}
    run, workers = load_recipe(None, keys), Workers()

    def rows_of(folder, names):
        (folder / "runs").mkdir(parents=True)
        for name in names:
            queue = Queue(run, Results(folder), launch=workers.start)
            turn = queue.start(Job(name, 0))
            turn.wait(600)
            turn.communicate()
            assert turn.returncode == 0
        text = (folder / "runs" / f"{names[-1]}-seed0" / "result.json").read_text()
        return turn._process.pid, json.loads(text)

    first, after = rows_of(tmp_path / "after", ["dot", "sca"])
    workers.close()
    second, alone = rows_of(tmp_path / "alone", ["sca"])
    workers.close()
    assert first != second
    for row in (after, alone):
        for measured in ("seconds", "milliseconds", "mebibytes"):
            row.pop(measured)
    assert after == alone
