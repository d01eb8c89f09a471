"""Jobs of one process, one after the other, and the last of them in a process of its own."""

import json

from scaseg.comparison.jobs import Job
from scaseg.comparison.process import Workers
from scaseg.comparison.queue import Queue
from scaseg.comparison.results import Results
from scaseg.config.recipe import load_recipe
from tests.scenes import write_scenes

MEASURED = "seconds", "milliseconds", "mebibytes"


def after_another_and_alone(folder, device):
    """The row of `sca` after `dot`, and that of `sca` alone: without, and what is measured."""
    scenes = write_scenes(folder / "scenes", 12, size=(40, 48))
    keys = {"data.root": str(scenes), "model.backbone": "tiny", "machine.device": device}
    keys |= {"machine.workers": "0", "training.epochs": "1", "model.head": "pointwise"}
    keys |= {"augment.fit": "null", "augment.crop": "null", "training.pictures": "0"}
    run, processes, rows = load_recipe(None, keys), set(), []
    for name, jobs in {"after": ["dot", "sca"], "alone": ["sca"]}.items():
        (folder / name / "runs").mkdir(parents=True)
        workers, used = Workers(), set()
        for job in jobs:
            turn = Queue(run, Results(folder / name), launch=workers.start).start(Job(job, 0))
            turn.wait(600)
            turn.communicate()
            assert turn.returncode == 0
            used.add(turn._process)
        workers.close()
        (process,) = used
        assert process.returncode == 0  # in order: none was killed beside others on a GPU
        processes.add(process.pid)
        rows.append(json.loads((folder / name / "runs/sca-seed0/result.json").read_text()))
    assert len(processes) == 2
    return rows, [{name: row.pop(name) for name in MEASURED} for row in rows]
