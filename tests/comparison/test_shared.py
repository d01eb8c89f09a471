"""compare --shared: several queues in one folder at once, killed as they are; each job by one."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from scaseg.comparison import claims as claiming
from scaseg.comparison import queue
from scaseg.comparison.claims import Claims
from scaseg.comparison.jobs import Job
from scaseg.comparison.results import NUMBERS, Results
from scaseg.config.run import RunConfig
from scaseg.io.lock import folder_lock
from tests.comparison.queues import ROOT, keys, open_gate, read_diary
from tests.comparison.test_queue_killed import DRIVER, FAKE, jobs_marked, kill
from tests.processes import wait_until
from tests.scenes import write_scenes

JOB = Job("sca:pair_channels=4", 0, 2)
# as DRIVER, but it waits for nobody: "end" says how all of its queues ended
SEVERAL = DRIVER.partition("for line in")[0] + (
    """
import traceback
from scaseg.comparison import claims
from tests.processes import is_alive
starting.BEAT, starting.LOOK, claims.STALE = 0.2, 0.2, 5.0
age = claims.Claims._age

def age_of_dead(self, path):  # 5 seconds are soon over where a machine is paused
    try:
        return 0.0 if is_alive(int(path.read_text().split()[0])) else age(self, path)
    except (OSError, IndexError):  # released; not written yet
        return 0.0

claims.Claims._age = age_of_dead
children = []
for line in sys.stdin:
    if line.strip() == "end":
        print(json.dumps([os.waitpid(child, 0)[1] for child in children]), flush=True)
        continue
    task = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            starting.WORKER = task["module"]
            os.environ["FAKE_JOB"] = json.dumps(task["orders"])
            run = load_recipe(None, task["keys"])
            options = {"seeds": 2, "jobs": 2, "shared": True}
            found = module.compare(run, task["contexts"], out=task["out"], **options)
            os._exit(7 if found.failed or found.remaining else 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    children.append(child)
    print(child, flush=True)
"""
)


def test_several_queues_killed_at_any_moment(tmp_path):
    """Three at a time, kill -9 of one of them four times: no row lost, no job done twice."""
    scenes, out = write_scenes(tmp_path / "scenes", 12, size=(24, 24)), tmp_path / "out"
    (tmp_path / "gate").write_text("9")
    task = {
        "module": FAKE,
        "orders": {name: str(tmp_path / name) for name in ("diary", "gate")} | {"seconds": 0.3},
        "keys": {"data.root": str(scenes), "data.folds": "3", "model.backbone": "tiny"},
        "contexts": ["none", "average", "sca"],
        "out": str(out),
    }
    driver = subprocess.Popen(
        [sys.executable, "-c", SEVERAL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    def ask(text):
        driver.stdin.write(text + "\n")
        driver.stdin.flush()
        return json.loads(driver.stdout.readline())

    chance, kept = random.Random(0), []
    with driver:
        queues = [ask(json.dumps(task)) for _ in range(3)]
        wait_until(lambda: len(keys(out)) >= 2)
        for _ in range(4):
            kill(queues.pop(chance.randrange(3)))
            queues.append(ask(json.dumps(task)))
            time.sleep(chance.uniform(0.0, 0.4))
            rows = keys(out)
            assert rows[: len(kept)] == kept  # what was there is there
            kept = rows
        assert len(kept) < 18
        open_gate(tmp_path / "gate", 1000)
        ends = ask("end")
        driver.stdin.close()
    assert sorted(ends) == [0, 0, 0] + [signal.SIGKILL] * 4
    rows = keys(out)
    assert len(rows) == len(set(rows)) == 18
    diary = read_diary(tmp_path / "diary")
    ended = Counter(name for what, name, *_ in diary if what == "ended")
    assert set(ended.values()) == {1}  # none was done twice
    began = Counter(name for what, name, *_ in diary if what == "began")
    assert len(began) == 18
    assert sum(began.values()) <= 18 + 4 * 2  # what a killed queue did is done again, and no more
    wait_until(lambda: not jobs_marked(tmp_path))


def test_of_many_one_gets_the_claim(tmp_path):
    machines = [Claims(tmp_path) for _ in range(16)]

    def taken():
        with ThreadPoolExecutor(16) as pool:
            found = pool.map(lambda one: one.take(JOB), machines)
            return [one for one, mine in zip(machines, found, strict=True) if mine]

    (first,) = taken()
    assert taken() == []
    os.utime(tmp_path / "claims" / "sca_pair_channels_4-seed0-fold2.1", (1, 1))  # it is gone
    machines.remove(first)
    (second,) = taken()
    assert first.is_lost(JOB)
    assert not second.is_lost(JOB)
    first.release(JOB)  # what is the other's stays
    assert taken() == []
    assert not second.is_lost(JOB)
    os.utime(tmp_path / "claims" / "sca_pair_channels_4-seed0-fold2.2", (1, 1))
    second.beat()
    assert not Claims(tmp_path).take(JOB)
    second.close()
    assert Claims(tmp_path).take(JOB)


def test_clocks_of_machines_do_not_matter(tmp_path, monkeypatch):
    Claims(tmp_path).take(JOB)
    monkeypatch.setattr(time, "time", lambda: 1e10)
    assert not Claims(tmp_path).take(JOB)


def test_a_job_that_was_taken_over_is_given_up(tmp_path, monkeypatch):
    """A machine that was asleep finds another's claim: it stops, and waits for the other's row."""
    monkeypatch.setattr(queue, "WORKER", FAKE)
    monkeypatch.setattr(queue, "BEAT", 0.05)
    monkeypatch.setattr(queue, "LOOK", 0.05)
    diary, said = tmp_path / "diary", []
    monkeypatch.setenv("FAKE_JOB", json.dumps({"seconds": 600, "diary": str(diary)}))
    monkeypatch.chdir(ROOT)
    results = Results(tmp_path, shared=True)
    work = queue.Queue(RunConfig(), results, claims=Claims(tmp_path), log=said.append)

    def other():
        wait_until(lambda: read_diary(diary))
        (tmp_path / "claims" / "sca-seed0.2").touch()
        wait_until(lambda: said)
        theirs = Results(tmp_path, shared=True)
        row = {"variant": "sca", "seed": 0, "fold": "", **dict.fromkeys(NUMBERS, 50.0)}
        theirs.rows[Job("sca", 0)] = row
        theirs.write()

    thread = threading.Thread(target=other)
    thread.start()
    work.work([Job("sca", 0)])
    thread.join()
    assert said == ["sca, seed 0: taken over by another machine"]
    assert not work.failed
    assert keys(tmp_path) == [("sca", "0", "")]
    assert not jobs_marked(tmp_path)


def test_a_queue_that_is_alone_stays_alone(tmp_path):
    with folder_lock(tmp_path / "out", shared=True), ThreadPoolExecutor(1) as pool:
        code = "import sys; from scaseg.io.lock import folder_lock\n"
        code += "with folder_lock(sys.argv[1], shared=sys.argv[2] == 'shared'): pass"

        def enter(how):
            command = [sys.executable, "-c", code, str(tmp_path / "out"), how]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        assert pool.submit(enter, "shared").result().returncode == 0
        assert "is in use by process" in pool.submit(enter, "alone").result().stderr
    assert not (tmp_path / "out").exists()
    with folder_lock(tmp_path / "out"):
        assert "is in use by process" in enter("shared").stderr


def test_a_comparison_is_known_before_its_first_job_runs(tmp_path, monkeypatch):
    """Others that come now, or the same command after a kill, must not take it for a stranger's."""
    from scaseg.comparison.compare import _check_folder
    from scaseg.config.recipe import load_recipe, save_recipe

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", killed)
    run = load_recipe(None, {})
    save_recipe(run, tmp_path / "recipe.yaml")
    with pytest.raises(KeyboardInterrupt):
        queue.Queue(run, Results(tmp_path)).start(Job("sca", 0))
    _check_folder(tmp_path, run)


def test_the_first_of_two_settings_is_the_folders(tmp_path):
    from scaseg.comparison.compare import _check_folder
    from scaseg.config.recipe import load_recipe, save_recipe

    (tmp_path / "runs").mkdir()
    runs = [load_recipe(None, {"training.epochs": str(epochs)}) for epochs in (3, 4)]
    for run in runs:
        save_recipe(run, tmp_path / "recipe.yaml", exclusive=True)
    _check_folder(tmp_path, runs[0])
    with pytest.raises(ValueError, match="holds a comparison with other settings"):
        _check_folder(tmp_path, runs[1])
    assert claiming.STALE > 4 * claiming.BEAT  # some touches may come late
