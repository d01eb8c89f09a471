"""scaseg predict when files, disks or devices fail, and when it is killed."""

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path, PurePath

import pytest
import torch
from PIL import Image

from scaseg.data.decode.image import read_labels
from scaseg.inference.inputs import InputFile, Inputs
from scaseg.inference.outputs import Outputs
from scaseg.io.atomic import LEFTOVER
from tests.inference.command import predict, refused, written
from tests.inference.models import picture
from tests.processes import wait_until


def hostile(folder):
    """Files that are not what they say."""
    (folder / "text.jpg").write_text("hello")
    (folder / "empty.png").write_bytes(b"")
    Image.fromarray(picture(300, 300)).save(folder / "whole.png")
    (folder / "cut.png").write_bytes((folder / "whole.png").read_bytes()[:2000])
    Image.new("1", (5000, 5000)).save(folder / "huge.png")
    (folder / "dangling.jpg").symlink_to("nothing")
    return ["cut.png", "dangling.jpg", "empty.png", "huge.png", "text.jpg"]


def test_bad_files_are_counted_and_the_rest_is_done(photos, model, tmp_path, capsys):
    bad = hostile(photos)
    out = tmp_path / "out"
    predict(photos, "--skip-bad", "--max-pixels", 1_000_000, model=model, out=out)
    said = capsys.readouterr()
    assert written(out) == ["a/b/three.png", "a/two.png", "one.png", "whole.png"]
    assert f"{len(bad)} bad ones skipped" in said.out
    lines = said.err.splitlines()
    assert [Path(line.split(": ")[1]).name for line in lines] == bad
    assert "5000 x 5000 pixels; at most 1000000 are taken" in said.err


def test_the_first_bad_file_stops_the_work(photos, model, tmp_path, capsys):
    hostile(photos)
    out = tmp_path / "out"
    said = refused(capsys, photos, model=model, out=out, code=1)
    assert "cut.png: cannot be read" in said
    assert all(read_labels(out / name).ndim == 2 for name in written(out))
    assert written(out)  # of those before it: a fault during work


def test_a_bad_file_before_any_good_one_is_bad_input(photos, model, tmp_path, capsys):
    (photos / "a" / "a.jpg").write_text("hello")
    for images in (photos / "a" / "a.jpg", photos):
        said = refused(capsys, images, model=model, out=tmp_path / "out", code=2)
        assert "a.jpg: not an image" in said
        assert not (tmp_path / "out").exists()


def test_nothing_but_bad_files(tmp_path, model, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "text.jpg").write_text("hello")
    with pytest.raises(SystemExit) as ended:
        predict(tmp_path / "photos", "--skip-bad", model=model, out=tmp_path / "out")
    assert ended.value.code == 2
    assert "IMAGES: none of 1 images could be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_nothing_but_bad_files_left_to_do(photos, model, tmp_path, capsys):
    """Started again, a job that skipped bad files ends as it did at first."""
    hostile(photos)
    options = ("--skip-bad", "--skip-existing", "--max-pixels", 1_000_000)
    for there in ("", "4 existed already"):
        predict(photos, *options, model=model, out=tmp_path / "out")
        said = capsys.readouterr().out
        assert there in said
        assert "5 bad ones skipped" in said


def test_a_photograph_that_cannot_fit_is_told_of_windows(
    photos, model, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("scaseg.system.available_memory", lambda device: 1000)
    monkeypatch.setattr("scaseg.inference.pipeline.ALWAYS_FREE", 0)
    said = refused(capsys, photos / "one.jpg", model=model, out=tmp_path / "out")
    assert "41 x 30 pixels take about" in said
    assert "use --window 512" in said
    predict(photos / "one.jpg", "--window", "16", model=model, out=tmp_path / "out")


@pytest.mark.parametrize("fault", [RuntimeError("CUDA out of memory.\nmore"), MemoryError()])
def test_faults_of_the_device_are_one_line(fault, photos, model, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise fault

    monkeypatch.setattr("scaseg.inference.predict.score_maps", fail)
    said = refused(capsys, photos, model=model, out=tmp_path / "out", code=1)
    assert "predicting: out of memory; use --window 512" in said


def test_a_full_disk_leaves_no_torn_file(photos, model, tmp_path, capsys, monkeypatch):
    real = os.replace

    def replace(source, target):
        if str(target).endswith("two.png"):
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr("os.replace", replace)
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        predict(photos, "--scores", model=model, out=out)
    assert ended.value.code == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not (out / "a" / "two.png").exists()
    assert not [name for name in written(out) if LEFTOVER in name]


def test_probabilities_that_are_cut_off_leave_no_file(tmp_path):
    file = InputFile(tmp_path / "a.jpg", PurePath("a"))
    scores = Outputs(tmp_path).open_scores(("sky", "road"), file, (4, 3))
    with suppress(KeyboardInterrupt), scores as write:
        write(torch.zeros(2, 2, 3))
        assert written(tmp_path)
        raise KeyboardInterrupt
    assert written(tmp_path) == []


def test_leftovers_of_a_killed_run_are_cleared(photos, model, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (out / f"{LEFTOVER}{platform.node()}-{gone}-0123abcd").write_bytes(b"half")
    living = out / f"{LEFTOVER}{platform.node()}-{os.getpid()}-0123abcd"
    living.write_bytes(b"being written")
    old = out / f"{LEFTOVER}elsewhere-{os.getpid()}-0123abcd"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    predict(photos, model=model, out=out)
    assert [name for name in written(out) if LEFTOVER in name] == [living.name]


def test_names_are_kept_as_they_are(model, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    names = ["a.b.jpg", "mit Leerzeichen.png", "日本.jpg", "line\nbreak.png"]
    for name in names:
        Image.fromarray(picture(9, 9)).save(photos / name)
    odd = os.path.join(os.fsencode(photos), b"\xff\xfe.png")
    os.replace(photos / names.pop(), odd)
    predict(photos, "--json", model=model, out=tmp_path / "out")
    found = os.listdir(os.fsencode(tmp_path / "out"))
    for name in (*map(os.fsencode, names), b"\xff\xfe.png"):
        stem = os.path.splitext(name)[0]
        assert stem + b".png" in found
        json.loads((Path(os.fsdecode(tmp_path / "out")) / os.fsdecode(stem + b".json")).read_text())


# the command, which goes no further than its 40th file, and so cannot end before it is killed
STALLING = """
import os, sys, time
from scaseg.cli import main
replace, done = os.replace, []
def stalling(*names):
    done.append(names)
    while len(done) > 40:
        time.sleep(1)
    replace(*names)
os.replace = stalling
main(sys.argv[1:])
"""


def test_kill_and_restart(model, tmp_path):
    """Killed and started again, it ends with every file, none torn and none made twice."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for index in range(80):
        Image.fromarray(picture(16, 24, seed=index)).save(photos / f"{index:02}.png")
    command = [
        *("predict", str(photos), "--model", model, "--out", str(out)),
        *("--json", "--skip-existing", "--device", "cpu", "--quiet"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([sys.executable, "-c", STALLING, *command], env=environment)
    wait_until(lambda: len(list(out.glob("*.png"))) >= 5, running)
    running.send_signal(signal.SIGKILL)
    running.wait()
    for path in out.glob("*.png"):
        assert read_labels(path).shape == (16, 24)
        json.loads(path.with_suffix(".json").read_text())  # where the PNG is, all is
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.png")}
    subprocess.run([sys.executable, "-m", "scaseg.cli", *command], check=True)
    assert written(out) == sorted(f"{i:02}{s}" for i in range(80) for s in (".json", ".png"))
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_many_files_need_no_list(tmp_path, monkeypatch):
    """The listing is a stream: the first photograph is there before the last folder is opened."""
    opened = []
    scandir = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: opened.append(str(path)) or scandir(path))
    for folder in range(5):
        (tmp_path / "photos" / str(folder)).mkdir(parents=True)
        for name in ("b.jpg", "a.jpg"):
            (tmp_path / "photos" / str(folder) / name).touch()
    found = iter(Inputs([tmp_path / "photos"], tmp_path / "out"))
    assert str(next(found).name) == os.path.join("0", "a")
    assert len(set(opened)) == 2
    rest = [str(one.name) for one in found]
    assert rest == sorted(rest)
    assert len(rest) == 9
