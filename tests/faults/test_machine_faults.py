"""Faults of the machine while a network trains: a full disk, a folder that is gone, a lost process.

Each is an exit code and one line, and what was saved before stays byte for byte.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from scaseg.training.checkpoint_io import read_state
from tests.processes import is_alive
from tests.scenes import write_scenes

ROOT = Path(__file__).parents[2]
LIGHT = ("--backbone", "tiny", "--device", "cpu", "--workers", "0", "--batch-size", "2")
LIGHT += ("--model.context_options.hidden", "16")
OFTEN = ("--training.checkpoint_minutes", "0")  # a save after every step
TRAIN = (sys.executable, "-m", "scaseg.cli", "train")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 12, size=(32, 40))


def start(scenes, out, *more, group=False, minutes="0"):
    often = ("--training.checkpoint_minutes", minutes)
    return subprocess.Popen(
        [*TRAIN, "--data", str(scenes), "--out", str(out), *LIGHT, *often, *more],
        start_new_session=group,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path, process, seconds=90):
    limit = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.02)


def one_error(text):
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    assert "Traceback" not in text
    return errors[0]


def states(out):
    return {path.name: path.read_bytes() for path in (out / "checkpoints").glob("*.safetensors")}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX limits")
def test_a_full_disk(scenes, tmp_path):
    """Files may grow to 100 kB only: the first state does not fit, as on a disk without room."""
    out = tmp_path / "run"
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        "from scaseg.cli import main; main(sys.argv[1:])"
    )
    arguments = ("train", "--data", str(scenes), "--out", str(out), *LIGHT, *OFTEN, "--epochs", "2")
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    said = one_error(done.stderr)
    assert f"{out / 'checkpoints' / 'last.safetensors'}: cannot be written" in said
    assert not list((out / "checkpoints").iterdir())


@contextmanager
def small_disk(folder, size):
    """A file system of its own, where one may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_small_disk_fills_up(scenes, tmp_path):
    """There is room for two states but not for three."""
    with small_disk(tmp_path / "disk", "1400k") as disk:
        process = start(scenes, disk / "run", "--epochs", "200")
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1, said
        assert "No space left on device" in one_error(said)
        assert str(disk / "run" / "checkpoints") in one_error(said)
        assert states(disk / "run")
        for name in states(disk / "run"):
            read_state(disk / "run" / "checkpoints" / name)


def test_a_folder_that_can_only_be_read_any_more(scenes, tmp_path):
    """As systems do with a disk that has failed: what was saved before stays byte for byte."""
    out = tmp_path / "run"
    place = out / "checkpoints"
    process = start(scenes, out, "--epochs", "500")
    wait_for(place / "previous.safetensors", process)
    process.send_signal(signal.SIGSTOP)
    bind = ["mount", "--bind", str(place), str(place)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        process.kill()
        pytest.skip("needs the right to mount a file system")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        before = states(out)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1, said
        assert str(place) in one_error(said)
        assert "Read-only file system" in one_error(said)
        assert states(out) == before
        read_state(place / "last.safetensors")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_folder_that_vanishes(scenes, tmp_path):
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    shutil.rmtree(out, ignore_errors=True)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert str(out) in one_error(said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_to_the_command(scenes, tmp_path, number, code):
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert f"scaseg train --resume --out {out}" in said
    assert not list(out.rglob(".scaseg-*"))
    assert not list(out.rglob(".lock"))


def test_a_signal_to_one_of_two_processes_is_obeyed_by_both(scenes, tmp_path):
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500", "--devices", "2")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    family = descendants(process.pid)
    try:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert said.count("scaseg train --resume --out") == 1
    assert "error" not in said
    wait_for_the_end(family)


def test_a_signal_to_the_whole_group(scenes, tmp_path):
    """As `timeout`, terminals and supervisors send it: loaders' processes must not die of it."""
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500", "--workers", "2", group=True, minutes="null")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert f"scaseg train --resume --out {out}" in said
    assert "error" not in said


def test_a_second_run_in_the_same_folder(scenes, tmp_path):
    out = tmp_path / "run"
    first = start(scenes, out, "--epochs", "500")
    try:
        wait_for(out / "checkpoints" / "last.safetensors", first)
        for more in (("--resume",), ("--overwrite", "--data", str(scenes))):
            second = subprocess.run(
                [*TRAIN, "--out", str(out), *more],
                capture_output=True,
                text=True,
                cwd=ROOT,
                timeout=120,
                check=False,
            )
            assert second.returncode == 2, second.stderr
            said = one_error(second.stderr)
            assert re.search(rf"{out}: is in use by process {first.pid} on ", said)
            assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("victim", ["first", "other"])
def test_a_lost_process_takes_the_others_along(scenes, tmp_path, victim):
    """kill -9 of one of two processes: within a minute neither is there, and the state is whole."""
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500", "--devices", "2")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    family = descendants(process.pid)
    other = next(pid for pid in family if is_training(pid))
    os.kill(process.pid if victim == "first" else other, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    wait_for_the_end(family)
    if victim == "other":
        assert process.returncode == 1
        assert f"process {other} of this run was lost (signal 9)" in one_error(said)
    read_state(out / "checkpoints" / "last.safetensors")


def test_two_processes_stop_together_at_a_loss_that_is_no_number(scenes, tmp_path):
    process = start(
        scenes, tmp_path / "run", "--lr", "1e30", "--head-lr", "1e30", "--devices", "2",
    )  # fmt: skip
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    # both have their own images, and both are named
    assert re.search(r"the loss is not finite on scene\d+, scene\d+", one_error(said))


def test_a_fault_of_the_first_process_is_one_line(scenes, tmp_path):
    """The other one sees a broken connection; it neither says so nor writes over the traceback."""
    out = tmp_path / "run"
    process = start(scenes, out, "--epochs", "500", "--devices", "2")
    wait_for(out / "checkpoints" / "last.safetensors", process)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / "checkpoints").write_text("no folder")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert str(out / "checkpoints") in one_error(said)
    assert "Connection closed" not in (out / "traceback.txt").read_text()


def descendants(pid):
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def is_training(pid):
    return b"scaseg" in Path(f"/proc/{pid}/cmdline").read_bytes()


def wait_for_the_end(family, seconds=60):
    """Processes close their files a moment before they are gone."""
    limit = time.monotonic() + seconds
    while any(is_alive(pid) for pid in family):
        assert time.monotonic() < limit
        time.sleep(0.1)
