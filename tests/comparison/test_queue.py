"""The queue behind scaseg compare: side by side, killed, stopped, continued; no row lost or double.

Most jobs here train nothing (fake_job); what is real says so.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from scaseg.cli import main
from scaseg.comparison import process, queue
from scaseg.comparison.jobs import Job
from scaseg.comparison.results import Results
from scaseg.config.run import RunConfig
from scaseg.io.lock import folder_lock
from scaseg.io.table import read_rows, write_rows
from tests.comparison.queues import ROOT, keys, read_diary
from tests.processes import is_alive
from tests.scenes import SMALL, write_scenes

LIGHT = (*SMALL, "--device", "cpu", "--workers", "0", "--epochs", "1")


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Run the command with fake jobs; gives exit code, stdout and stderr."""
    monkeypatch.setattr(queue, "WORKER", "tests.comparison.fake_job")
    monkeypatch.setattr(queue, "GRACE", 240)
    monkeypatch.setattr("scaseg.comparison.compare._try_out", lambda *_: None)
    monkeypatch.chdir(ROOT)
    scenes = write_scenes(tmp_path / "scenes", 12, size=(40, 48))
    out, diary = tmp_path / "out", tmp_path / "diary"

    def run(*arguments, **orders):
        monkeypatch.setenv("FAKE_JOB", json.dumps({"diary": str(diary), **orders}))
        command = ["compare", "--data", str(scenes), "--out", str(out), *LIGHT, *arguments]
        monkeypatch.setattr(sys, "argv", ["scaseg", *command])
        code = 0
        try:
            main(command)
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return code, said.out, said.err

    run.out, run.diary = out, diary
    return run


@pytest.fixture
def over_when_two_began(compare, monkeypatch):
    """A --time-limit of 900 is over when two jobs have begun, however long that takes."""

    def now():
        began = [what for what, *_ in read_diary(compare.diary)].count("began")
        return time.monotonic() + (1000 if began >= 2 else 0)

    clock = SimpleNamespace(monotonic=now, time=time.time, sleep=time.sleep)
    monkeypatch.setattr(queue, "time", clock)


def test_the_whole_matrix_side_by_side(compare):
    code, out, err = compare(
        *("--contexts", "none", "sca", "--seeds", "2", "--folds", "3", "--jobs", "3"),
        seconds=0.3,
        beside=3,
    )
    assert code == 0
    recipe, *lines = err.splitlines()
    assert recipe.startswith("no recipe: own_folder")
    assert len(lines) == 13
    assert lines[0] == "12 of 12 trainings to do, 3 at once"
    assert lines[-1].startswith("12 of 12: ")
    assert "left" in lines[5]
    every = {(name, str(seed), str(fold)) for name in ("none", "sca") for seed in (0, 1)
             for fold in (1, 2, 3)}  # fmt: skip
    assert len(keys(compare.out)) == 12
    assert set(keys(compare.out)) == every
    together, most = 0, 0
    for what, *_ in sorted(read_diary(compare.diary), key=lambda line: line[3]):
        together += 1 if what == "began" else -1
        most = max(most, together)
    assert most == 3
    # sca has 30 + seed + fold, none 40 + seed + fold: the same difference everywhere
    assert "| sca | 3 | -10.00 [-10.00, -10.00] |" in out
    assert "| none | 6 | 44.50 ± 0.58 | 43.50 ± 0.58 | 42.50 ± 0.58 |" in out
    assert compare(*("--contexts", "none", "sca", "--seeds", "2", "--folds", "3"))[1] == out
    assert len(read_diary(compare.diary)) == 24  # nothing ran again


def test_a_job_that_fails_is_named_and_the_others_go_on(compare):
    arguments = ("--contexts", "none", "dot", "sca", "--seeds", "2", "--jobs", "2")
    code, out, err = compare(*arguments, fail=["dot"])
    assert code == 1
    assert "failed: dot, seed 0: epoch 1, step 3: no such luck (its log is" in err
    last = err.splitlines()[-1]
    assert last.startswith("error: dot, seed ")
    assert last.endswith("(and 1 more); the same command tries again")
    assert Counter(variant for variant, *_ in keys(compare.out)) == {"none": 2, "sca": 2}
    assert "| sca | 2 |" in out
    assert "much was said" in (compare.out / "logs" / "dot-seed0.log").read_text()
    code, out, err = compare(*arguments)
    assert code == 0
    assert "| dot | 2 |" in out
    assert not (compare.out / "logs").exists()


def test_the_time_limit_stops_what_runs_and_the_same_command_goes_on(compare, over_when_two_began):
    arguments = ("--contexts", "none", "sca", "--seeds", "1", "--jobs", "2")
    code, out, err = compare(*arguments, "--time-limit", "900", seconds=600)
    assert code == 0
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("2 jobs (none, seed 0, ...) still to do; go on with: scaseg compare ")
    assert last.endswith("--time-limit 900")
    assert [what for what, *_ in read_diary(compare.diary)].count("stopped") == 2
    assert not any(is_alive(pid) for _, _, pid, _ in read_diary(compare.diary))
    assert compare(*arguments)[0] == 0
    assert len(keys(compare.out)) == 2


def test_what_is_kept_stays_whatever_is_kept_later(compare):
    compare("--contexts", "none", "--seeds", "1", "--keep", "all")
    compare("--contexts", "none", "--seeds", "2", "--keep", "nothing")
    assert (compare.out / "runs" / "none-seed0" / "checkpoints").is_dir()
    assert not (compare.out / "runs" / "none-seed1").exists()
    code, _, err = compare("--contexts", "none", "--seeds", "2", "--split", "val")
    assert code == 2
    assert "--split: none, seed 1 was evaluated on the split test, not the split val; its" in err


def test_one_that_does_not_stop_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(queue, "GRACE", 0.5)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{deaf}; time.sleep(600)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    process.stdout.readline()

    def start(job):
        if job.seed == 1:
            raise KeyboardInterrupt
        return process

    work = queue.Queue(RunConfig(), Results(tmp_path), parallel=2)
    monkeypatch.setattr(work, "start", start)
    with pytest.raises(KeyboardInterrupt):
        work.work([Job("none", seed) for seed in range(2)])
    assert process.returncode == -signal.SIGKILL
    assert work.running == []


def test_a_second_queue_is_refused(compare):
    with folder_lock(compare.out):
        code, out, err = compare("--contexts", "none", "--seeds", "1")
    assert (code, out) == (2, "")
    assert f"error: --out: {compare.out}: is in use by process {os.getpid()} on " in err
    assert not compare.out.exists()


@pytest.mark.parametrize(
    ("keep", "left"),
    [("models", {"model"}), ("all", {"model", "checkpoints"}), ("nothing", None)],
)
def test_what_is_kept_of_a_finished_run(compare, keep, left):
    code, _, _ = compare("--contexts", "none", "--seeds", "1", "--keep", keep)
    place = compare.out / "runs" / "none-seed0"
    assert code == 0
    assert (None if not place.exists() else {path.name for path in place.iterdir()}) == left


def test_contexts_by_spaces_or_commas_and_the_recipe_last(compare, tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("data: {folds: 2}")
    code, out, _ = compare(
        "--seeds", "1", "--contexts", "none,average", "sca:layers=2", str(recipe)
    )
    assert code == 0
    variants = ("none", "average", "sca:layers=2")
    assert sorted(keys(compare.out)) == sorted((v, "0", f) for v in variants for f in ("1", "2"))
    assert "| sca:layers=2 | 2 |" in out


def test_one_fold_first_and_the_others_later(compare):
    common = ("--contexts", "none", "--seeds", "1", "--folds", "3")
    assert compare(*common, "--data.fold", "2")[0] == 0
    assert keys(compare.out) == [("none", "0", "2")]
    assert compare(*common)[0] == 0
    assert sorted(keys(compare.out)) == [("none", "0", "1"), ("none", "0", "2"), ("none", "0", "3")]
    code, _, err = compare("--contexts", "none", "--folds", "4")
    assert code == 2
    assert "holds a comparison with other settings" in err


def test_what_a_killed_queue_had_not_taken_over_is_taken_over_once(compare):
    """Killed after a job wrote its result, or after its row was written: neither runs again."""
    common = ("--contexts", "none", "sca", "--seeds", "1")
    compare(*common, "--keep", "all")
    rows = read_rows(compare.out / "results.csv")
    for row in rows:
        place = compare.out / "runs" / f"{row['variant']}-seed0"
        (place / "result.json").write_text(json.dumps(row))
    write_rows(compare.out / "results.csv", rows[:1])
    ran = len(read_diary(compare.diary))
    assert compare(*common)[0] == 0
    assert read_rows(compare.out / "results.csv") == rows
    assert len(read_diary(compare.diary)) == ran
    for row in rows:
        place = compare.out / "runs" / f"{row['variant']}-seed0"
        assert [path.name for path in place.iterdir()] == ["model"]


def test_json(compare):
    code, out, _ = compare("--contexts", "none", "sca", "--seeds", "2", "--json", "--quiet")
    found = json.loads(out)
    assert code == 0
    assert [row["context"] for row in found["contexts"]] == ["none", "sca"]
    assert found["contexts"][1]["mIoU_difference"] == -10
    assert found["contexts"][1]["mIoU_difference_n"] == 2
    assert (found["failed"], found["remaining"]) == ([], [])


@pytest.fixture
def on_a_gpu(monkeypatch):
    """As there, processes take one job after the other."""
    monkeypatch.setattr("scaseg.comparison.compare.choose_accelerator", lambda machine: "cuda")


MATRIX = ("--contexts", "none", "dot", "sca", "--seeds", "3", "--jobs", "2")


def test_processes_take_one_job_after_the_other(compare, on_a_gpu):
    assert compare(*MATRIX)[0] == 0
    rows = keys(compare.out)
    assert len(rows) == len(set(rows)) == 9
    pids = {pid for what, _, pid, _ in read_diary(compare.diary) if what == "began"}
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
    assert not (compare.out / "logs").exists()


def test_a_process_ends_with_the_first_job_that_fails(compare, on_a_gpu):
    """And every job has a log of its own."""
    code, _, err = compare(*MATRIX, fail=["dot"])
    assert code == 1
    assert err.count("failed: dot, seed ") == 3
    assert "failed: dot, seed 2: epoch 1, step 3: no such luck (its log is" in err
    assert Counter(variant for variant, *_ in keys(compare.out)) == {"none": 3, "sca": 3}
    for seed in range(3):
        log = (compare.out / "logs" / f"dot-seed{seed}.log").read_text()
        assert log == "much was said\nerror: epoch 1, step 3: no such luck\n"
    diary = read_diary(compare.diary)
    assert not any(is_alive(pid) for _, _, pid, _ in diary)
    for pid in {pid for _, name, pid, _ in diary if name.startswith("dot")}:
        assert [name for _, name, one, _ in diary if one == pid][-1].startswith("dot")


def test_processes_with_more_to_do_stop_in_time(compare, on_a_gpu, over_when_two_began):
    code, _, err = compare(*MATRIX, "--time-limit", "900", seconds=600)
    assert code == 0
    assert "9 jobs (" in err.splitlines()[-1]
    assert [what for what, *_ in read_diary(compare.diary)].count("stopped") == 2
    assert not any(is_alive(pid) for _, _, pid, _ in read_diary(compare.diary))


def task_of(folder, variant):
    """What the queue tells a process."""
    facts = {"variant": variant, "seed": 0, "fold": None}
    task = {"run": {"data": {"folds": None}}, "side_by_side": 1, "facts": facts}
    return json.dumps({**task, "place": str(folder / "runs" / "out" / variant)})


def test_a_job_that_does_not_stop_ends_with_its_process(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JOB", json.dumps({"seconds": 600, "saved": str(tmp_path / "never")}))
    workers = process.Workers()
    turn = workers.start(
        "tests.comparison.fake_job", task_of(tmp_path, "none"), tmp_path / "log", 1
    )
    turn.terminate()
    process.end(turn)
    assert turn.returncode in (-signal.SIGKILL, -signal.SIGTERM)  # the latter as it was starting
    assert not is_alive(turn._process.pid)
    workers.close()


def test_a_process_that_was_killed_while_it_waited_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JOB", "{}")
    workers = process.Workers()

    def run(name):
        task = task_of(tmp_path, name)
        turn = workers.start("tests.comparison.fake_job", task, tmp_path / f"{name}.log", 1)
        turn.wait(240)
        turn.communicate()
        assert turn.returncode == 0
        return turn._process

    first = run("none")
    assert run("average") is first
    first.kill()
    first.wait()
    last = run("sca")
    assert last is not first
    workers.close()
    assert not is_alive(first.pid)
    assert not is_alive(last.pid)


def test_a_process_that_does_not_end_in_order_is_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JOB", json.dumps({"stays": True}))
    monkeypatch.setattr(process, "GRACE", 0.5)
    workers = process.Workers()
    turn = workers.start(
        "tests.comparison.fake_job", task_of(tmp_path, "none"), tmp_path / "log", 1
    )
    turn.wait(240)
    turn.communicate()
    workers.close()
    assert turn._process.returncode == -signal.SIGKILL


def test_a_list_may_be_an_option(compare):
    assert compare("--contexts", "none,psp:bins=[1,2]", "aspp:rates=[2, 4]", "--seeds", "1")[0] == 0
    assert [key[0] for key in keys(compare.out)] == ["none", "psp:bins=[1,2]", "aspp:rates=[2, 4]"]


def test_rows_of_other_data_are_not_mixed_in(compare):
    """The same command after images were added: what is finished would stand beside what is not."""
    common = ("--contexts", "none", "--seeds", "1")
    compare(*common)
    (row,) = read_rows(compare.out / "results.csv")
    for images, expected in [("3", 0), ("4", 2)]:
        write_rows(compare.out / "results.csv", [row | {"images": images}])
        code, _, err = compare(*common)
        assert code == expected
    assert "none, seed 0 was evaluated on 4 images of the split test, now 3" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace(",", ";"), "'variant'"),
        (lambda text: text + text, "invalid literal for int() with base 10: 'seed'"),
        (lambda text: text.replace("4.0,", "n/a,"), "could not convert string to float: 'n/a'"),
        (lambda text: text.replace("4.0,", ""), "not a table of ours"),
    ],
)
def test_results_that_were_edited_are_refused_and_kept(compare, change, said):
    common = ("--contexts", "none", "--seeds", "1")
    compare(*common)
    results = compare.out / "results.csv"
    good = results.read_text(encoding="utf-8")
    results.write_text(change(good), encoding="utf-8")
    code, _, err = compare(*common)
    assert code == 2
    assert f"not as compare wrote it ({said}); undo the change" in err
    assert results.read_text(encoding="utf-8") == change(good)
    results.write_text(good, encoding="utf-8-sig")  # as Excel saves it
    assert compare(*common)[0] == 0
