"""compare --engine ray: jobs with half a (pretended) GPU each, a worker and a node killed."""

import _thread
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from scaseg.comparison import compare as module
from scaseg.comparison import process, queue
from scaseg.config.recipe import load_recipe
from scaseg.errors import UserError
from tests.clusters import add_node, remove_node
from tests.comparison.queues import ROOT, keys, open_gate, read_diary
from tests.comparison.test_queue_killed import FAKE
from tests.processes import is_alive, wait_until
from tests.scenes import write_scenes


@pytest.fixture
def nodes(ray_cluster):
    """Two nodes with a GPU each, which nothing here computes on."""
    import ray

    made = [add_node(ray_cluster, num_cpus=2, num_gpus=1) for _ in range(2)]
    ray.init(ray_cluster.address, log_to_driver=False)
    yield made
    ray.shutdown()
    for node in made:
        remove_node(ray_cluster, node)


@pytest.mark.filterwarnings("ignore")  # of Ray about itself
def test_a_worker_and_a_node_are_killed(ray_cluster, nodes, tmp_path, monkeypatch, capsys):
    """Told to stop, continued, killed twice: every row once, what was lost is done again."""
    monkeypatch.setattr(queue, "WORKER", FAKE)
    monkeypatch.setattr(queue, "GRACE", 240)
    monkeypatch.setattr(module, "_try_out", lambda *_: None)
    monkeypatch.chdir(ROOT)
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(24, 24)), tmp_path / "out"
    run = load_recipe(None, {"data.root": str(scenes), "data.folds": "3", "model.backbone": "tiny"})
    diary, gate, said, progress = tmp_path / "diary", tmp_path / "gate", [], []
    open_gate(gate, 2)

    def compare(seconds, **options):
        orders = {"seconds": seconds, "diary": str(diary), "gate": str(gate)}
        (tmp_path / "orders.json").write_text(json.dumps(orders))
        options |= {"engine": "ray", "gpus": 0.5, "seeds": 2, "log": said.append}
        found = module.compare(
            run, ["none", "sca"], out=out, progress=lambda *at: progress.append(at), **options
        )
        assert not found.failed
        return found

    def of(what):
        return [name for said, name, *_ in read_diary(diary) if said == what]

    def working():
        """The processes of jobs that run, as they began."""
        ended = [pid for what, _, pid, _ in read_diary(diary) if what == "ended"]
        began = [pid for what, _, pid, _ in read_diary(diary) if what == "began"]
        return [pid for pid in began if pid not in ended and is_alive(pid)]

    def stopper():
        wait_until(lambda: len(of("began")) == 4)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stopper)
    thread.start()
    with pytest.raises(SystemExit):
        compare(600)
    thread.join()
    assert said == ["12 of 12 trainings to do, 4 at once"]  # half a GPU each
    assert sorted(of("stopped")) == sorted(of("began"))  # each was asked to save
    assert not working()
    diary.unlink()

    counts = []

    def killer():
        # all that are at work wait at the gate, so nothing is over before it is killed
        wait_until(lambda: len(of("ended")) >= 2 and len(working()) == 4)
        job = Path(f"/proc/{working()[-1]}/stat").read_text()
        os.kill(int(job.rpartition(")")[2].split()[1]), signal.SIGKILL)  # the worker that waits
        counts.append(len(keys(out)))
        open_gate(gate, 4)
        wait_until(lambda: len(of("ended")) >= 4 and len(working()) == 4)
        remove_node(ray_cluster, nodes[1])
        counts.append(len(keys(out)))
        open_gate(gate, 1000)

    thread = threading.Thread(target=killer)
    thread.start()
    assert not compare(0.7).remaining
    thread.join()
    rows = keys(out)
    assert len(rows) == len(set(rows)) == 12
    assert counts[1] < 12
    begun = Counter(of("began"))
    again = sum(begun.values()) - 12
    assert len(begun) == 12
    assert 1 <= again <= 3  # one of the worker, two at most of the node
    assert progress[-1][0] == progress[-1][1]
    assert not working()
    with capsys.disabled():
        print(f"\nworker killed at {counts[0]}, node at {counts[1]} of 12 trainings: 12 rows, "
              f"0 lost, 0 doubled; {again} trainings begun again")  # fmt: skip


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["usual", "ignored"])
def interrupts(request):
    """What a process does at SIGINT; it is ignored in the background of a script."""
    usual = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, usual)


def test_a_job_that_is_told_twice_to_stop_saves_all_the_same(interrupts, tmp_path, monkeypatch):
    """Ray may ask again while a job saves, and may have been started in the background."""
    diary, place = tmp_path / "diary", tmp_path / "out" / "runs" / "one"
    place.parent.mkdir(parents=True)
    orders = {"seconds": 600, "saved": str(tmp_path / "saved"), "diary": str(diary)}
    monkeypatch.setenv("FAKE_JOB", json.dumps(orders))
    monkeypatch.setattr(process, "GRACE", 240)
    monkeypatch.chdir(ROOT)  # and back
    facts = {"variant": "none", "seed": 0, "fold": None}

    def stopper():
        wait_until(lambda: read_diary(diary))
        _thread.interrupt_main()
        wait_until(lambda: len(read_diary(diary)) == 2)
        _thread.interrupt_main()
        (tmp_path / "saved").touch()

    thread = threading.Thread(target=stopper)
    thread.start()
    task = json.dumps({"place": str(place), "facts": facts})
    code = process.run_process(FAKE, task, str(tmp_path / "log"), 1, str(ROOT))
    thread.join()
    assert (code, [what for what, *_ in read_diary(diary)]) == (143, ["began", "told", "stopped"])
    assert signal.getsignal(signal.SIGINT) == interrupts


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "dask"}, "--engine: 'dask'"),
        ({"gpus": 0.5}, "--gpus: came without --engine ray"),
        ({"engine": "ray", "shared": True}, "--shared: came with --engine ray"),
        ({"engine": "ray", "gpus": 1.5}, "--gpus: 1.5; give a share of a GPU"),
    ],
)
def test_what_does_not_go_together(tmp_path, options, problem):
    with pytest.raises(UserError, match=problem):
        module.compare(load_recipe(None, {}), out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
