"""scaseg train and scaseg evaluate, as people type them."""

import json
import os
import subprocess
import sys

import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.io.table import read_rows
from tests.processes import free_port
from tests.scenes import CLASSES, SMALL, write_scenes

LIGHT = (*SMALL, "--device", "cpu", "--workers", "0", "--context", "sca")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 20, size=(40, 48))


@pytest.fixture(scope="module")
def trained(scenes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    main(["train", "--data", str(scenes), "--out", str(folder), *LIGHT, "--epochs", "1", "--quiet"])
    return folder


def fails(capsys, *arguments):
    """Run a command that must be refused: exit code 2 and one line on stderr, nothing else."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    last = printed.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert "; " in last
    return last


def test_a_person_trains_and_evaluates(scenes, tmp_path, capsys):
    out = tmp_path / "my run"
    large = ("--backbone", "mobilenet_v2", "--epochs", "1")
    main(["train", "--data", str(scenes), "--out", str(out), *LIGHT, *large])
    printed = capsys.readouterr()
    assert "10 training images, 3 classes; the split val" in printed.err
    assert "random weights" in printed.err
    assert "  1/1 " in printed.err
    assert "best epoch" in printed.out
    assert f"next:  scaseg evaluate --model '{out}' --data {scenes}" in printed.out
    main(["evaluate", "--model", str(out), "--device", "cpu", "--workers", "0"])
    printed = capsys.readouterr()
    assert "5 images: the split test" in printed.err
    assert [line.split()[0] for line in printed.out.splitlines()[1:4]] == list(CLASSES)
    assert "PPA/aAcc" in printed.out
    main(["train", "--resume", "--out", str(out)])  # finished: says what it came to, again
    printed = capsys.readouterr()
    assert "this run is finished" in printed.err
    assert "best epoch" in printed.out


def test_json_is_all_that_is_printed(trained, scenes, tmp_path, capsys):
    common = ("evaluate", "--model", str(trained), "--data", str(scenes), "--device", "cpu")
    main([*common, "--workers", "0", "--json", "--out", str(tmp_path / "pictures")])
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    calibration = ["ECE", "ECE_uncalibrated", "temperature"]
    assert list(found) == ["PPA", "CAA", "mIoU", *calibration, "per_class", "images"]
    assert list(found["per_class"]) == list(CLASSES)
    assert found["images"] == 5
    assert 0 <= found["mIoU"] <= found["CAA"] <= 100
    written = {path.name for path in (tmp_path / "pictures").iterdir()}
    tables = {"metrics.json", "per_class.csv", "confusion.csv"}
    assert written == {"confusion.png", "per_class.png", *tables}
    again = json.loads((tmp_path / "pictures" / "metrics.json").read_text())
    assert {name: again[name] for name in found} == found
    rows = read_rows(tmp_path / "pictures" / "per_class.csv")
    assert [row["class"] for row in rows] == list(CLASSES)
    ious = [one["IoU"] for one in found["per_class"].values()]
    assert [float(row["IoU"]) for row in rows] == ious
    main([*common, "--workers", "0", "--json", "--out", str(tmp_path / "pictures")])  # ours: again
    (tmp_path / "pictures" / "metrics.json").write_text('{"mine": 1}')
    with pytest.raises(SystemExit):
        main([*common, "--workers", "0", "--json", "--out", str(tmp_path / "pictures")])
    assert "metrics.json: was not made by scaseg" in capsys.readouterr().err


def test_more_looks_at_each_photograph(trained, capsys):
    common = ("evaluate", "--model", str(trained), "--device", "cpu", "--workers", "0", "--json")
    found = []
    image = ("--window", "24", "--context-scope", "image")
    for more in ((), ("--tta",), ("--window", "24"), image, ("--scales", "0.5,1.5")):
        main([*common, *more])
        found.append(json.loads(capsys.readouterr().out)["PPA"])
    assert len(set(found)) > 1


def test_the_test_split_is_not_the_training_split(trained, capsys):
    common = ("evaluate", "--model", str(trained), "--device", "cpu", "--workers", "0", "--json")
    counts = {}
    for split in ("train", "val", "test", "all"):
        main([*common, "--split", split])
        counts[split] = json.loads(capsys.readouterr().out)["images"]
    assert counts == {"train": 10, "val": 5, "test": 5, "all": 20}


def test_nothing_is_lost(trained, scenes, tmp_path, capsys):
    """A folder with a run, or with anything else, is not written into."""
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    common = ("train", "--data", scenes, *LIGHT, "--epochs", "1")
    said = fails(capsys, *common, "--out", trained)
    assert "holds a run already; use --resume to continue, --overwrite to start over" in said
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    assert "holds files already" in fails(capsys, *common, "--out", tmp_path / "notes")
    said = fails(capsys, *common, "--out", tmp_path / "notes", "--overwrite")
    assert "holds thesis.txt, and no run; give another folder" in said
    said = fails(capsys, *common, "--out", tmp_path / "notes" / "thesis.txt")
    assert "thesis.txt: is a file; give a folder" in said
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "years of work"


def test_overwrite_starts_over_and_keeps_what_is_not_its_own(scenes, tmp_path):
    out = tmp_path / "run"
    common = ["train", "--data", str(scenes), "--out", str(out), *LIGHT, "--quiet"]
    main([*common, "--epochs", "2"])
    (out / "notes.txt").write_text("mine")
    main([*common, "--epochs", "1", "--overwrite"])
    assert len((out / "metrics.csv").read_text().splitlines()) == 2
    assert (out / "notes.txt").read_text() == "mine"


def test_a_bad_file_in_the_middle_ends_with_one_line(scenes, tmp_path, capsys):
    """Exit 1, naming the epoch and the file; the rest of the story is kept in the run folder."""
    import shutil

    broken = tmp_path / "scenes"
    shutil.copytree(scenes, broken)
    photograph = next((broken / "images").glob("scene11.png"))
    whole = photograph.read_bytes()
    photograph.write_bytes(whole[: len(whole) // 2])  # its header is in order
    unchecked = ("--data.check", "quick")  # else it is refused before
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", str(broken), "--out", str(tmp_path / "run"), *LIGHT, *unchecked])
    assert stop.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: epoch 1, step ")
    assert "scene11.png: cannot be read" in last
    assert "Traceback" in (tmp_path / "run" / "traceback.txt").read_text()


def test_the_keys_are_listed(capsys):
    main(["train", "--keys"])
    printed = capsys.readouterr().out
    assert "training.poly_power: 0.9\n" in printed
    assert "one of none, average, sca, dot" in printed


def test_two_processes_train_one_model(scenes, tmp_path):
    """That they evaluate to the same numbers: tests/faults/test_same_numbers.py."""
    out = tmp_path / "run"
    arguments = ("train", "--data", scenes, "--out", out, *LIGHT, "--devices", "2", "--epochs", "2")
    command = [sys.executable, "-m", "scaseg.cli", *map(str, arguments)]
    environment = {**os.environ, "MASTER_PORT": str(free_port())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best epoch") == 1
    rows = read_rows(out / "metrics.csv")
    assert len(rows) == 2
    assert all(0 < float(row["val_loss"]) < 10 for row in rows)
    with Image.open(out / "validation.jpg") as picture:
        assert picture.height > 400  # the images of both processes: five of them
