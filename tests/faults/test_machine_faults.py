"""Faults of the machine while a network trains: a full disk, a folder that is gone, a lost process.

Each is an exit code and one line, and what was saved before stays byte for byte.
"""

import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from scaseg.cli import main
from scaseg.training.checkpoint_io import read_state
from tests.processes import free_port, is_alive, wait_until
from tests.scenes import SMALL, write_scenes

ROOT = Path(__file__).parents[2]
LIGHT = (*SMALL, "--device", "cpu", "--workers", "0", "--batch-size", "2")
LIGHT += ("--context", "sca", "--model.context_options.hidden", "16")
LONG = ("--epochs", "100000")  # never at its end before it is killed or told to end
PATIENCE = 240  # seconds: a guard against hanging, on a busy machine too
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
started = []


@pytest.fixture(autouse=True)
def _nothing_goes_on_after_its_test():
    yield
    while started:
        process = started.pop()
        if process.poll() is None:  # its test has failed
            with suppress(ProcessLookupError):  # it leads no group yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 12, size=(32, 40))


def training(scenes, out, *more, minutes="0"):
    """The arguments of a training that saves after every step, or every so many minutes."""
    often = ("--training.checkpoint_minutes", minutes)
    return ("train", "--data", str(scenes), "--out", str(out), *LIGHT, *often, *more)


def start(*arguments):
    """Start a command in a new Python; where there are several processes, it starts the others."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scaseg.cli", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT | {"MASTER_PORT": str(free_port())},
        process_group=0,
    )
    started.append(process)
    return process


class Forked:
    """A command in a process forked from one that has imported everything: it starts at once."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scaseg.cli", "scaseg.training.run"])

    def __init__(self, folder, *arguments, file_size=None):
        self.log = folder / f"{uuid4()}.log"
        environment, os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS"), "1"
        self.process = self.context.Process(target=run, args=(arguments, self.log, file_size))
        self.process.start()
        self.pid = self.process.pid
        started.append(self)
        if environment is None:
            del os.environ["OMP_NUM_THREADS"]

    @property
    def returncode(self):
        return self.process.exitcode

    poll = lambda self: self.returncode  # noqa: E731

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.process.kill()

    def communicate(self, timeout=None):
        self.process.join(timeout)
        assert self.returncode is not None, "still running"
        return "", self.log.read_text()


def run(arguments, log, file_size):
    """In the forked process, which leads a group of its own."""
    os.setsid()
    for number in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    main(arguments)


@contextmanager
def stopped(process):
    """All threads of a process stand still."""

    def stands_still():
        tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
        with suppress(OSError):  # a thread that has just ended
            return {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}

    process.send_signal(signal.SIGSTOP)
    wait_until(stands_still, process)
    yield
    process.send_signal(signal.SIGCONT)


def one_error(text):
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    assert "Traceback" not in text
    return errors[0]


def states(out):
    return {path.name: path.read_bytes() for path in (out / "checkpoints").glob("*.safetensors")}


def test_a_full_disk(scenes, tmp_path):
    """Files may grow to 100 kB only: the first state does not fit, as on a disk without room."""
    out = tmp_path / "run"
    process = Forked(tmp_path, *training(scenes, out, "--epochs", "2"), file_size=100_000)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert f"{out / 'checkpoints' / 'last.safetensors'}: cannot be written" in one_error(said)
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
    small = ("--training.optimizer", "SGD", "--training.ema", "null", "--training.pictures", "0")
    with small_disk(tmp_path / "disk", "1400k") as disk:
        process = Forked(tmp_path, *training(scenes, disk / "run", "--epochs", "200", *small))
        _, said = process.communicate(timeout=PATIENCE)
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
    process = Forked(tmp_path, *training(scenes, out, *LONG))
    wait_until((place / "previous.safetensors").exists, process)
    bind = ["mount", "--bind", str(place), str(place)]
    try:
        with stopped(process):
            if subprocess.run(bind, capture_output=True, check=False).returncode:
                pytest.skip("needs the right to mount a file system")
            subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
            before = states(out)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, said
        assert str(place) in one_error(said)
        assert "Read-only file system" in one_error(said)
        assert states(out) == before
        read_state(place / "last.safetensors")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_folder_that_vanishes(scenes, tmp_path):
    out = tmp_path / "run"
    process = Forked(tmp_path, *training(scenes, out, *LONG))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)
    # at once: a folder that is emptied file by file has a new one before it can be removed
    out.rename(tmp_path / "elsewhere")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert str(out) in one_error(said)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_to_the_command(scenes, tmp_path, number, code):
    out = tmp_path / "run"
    process = Forked(tmp_path, *training(scenes, out, *LONG))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert f"scaseg train --resume --out {out}" in said
    assert not list(out.rglob(".scaseg-*"))
    assert not list(out.rglob(".lock"))


def test_a_signal_to_one_of_two_processes_is_obeyed_by_both(scenes, tmp_path):
    out = tmp_path / "run"
    process = start(*training(scenes, out, *LONG, "--devices", "2"))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)
    family = descendants(process.pid)
    try:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert said.count("scaseg train --resume --out") == 1
    assert "error" not in said
    wait_for_the_end(family)


def test_a_signal_to_the_whole_group(scenes, tmp_path):
    """As `timeout`, terminals and supervisors send it: loaders' processes must not die of it.

    This process was started by a fork server, so Python would start its loaders' by one too; that
    would die of the signal, and they, without a parent, soon after.
    """
    out = tmp_path / "run"
    more = (*LONG, "--workers", "2")
    process = Forked(tmp_path, *training(scenes, out, *more, minutes="null"))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)

    def workers():
        return [pid for pid in descendants(process.pid) if name(pid) == "pt_data_worker"]

    wait_until(lambda: len(workers()) == 4, process)  # to train, and to validate
    assert [parent(pid) for pid in workers()] == [process.pid] * 4
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, said
    assert f"scaseg train --resume --out {out}" in said
    assert "error" not in said


def test_a_second_run_in_the_same_folder(scenes, tmp_path):
    out = tmp_path / "run"
    first = Forked(tmp_path, *training(scenes, out, *LONG))
    try:
        wait_until((out / "checkpoints" / "last.safetensors").exists, first)
        for more in (("--resume",), ("--overwrite", "--data", str(scenes))):
            second = Forked(tmp_path, "train", "--out", str(out), *more)
            _, said = second.communicate(timeout=PATIENCE)
            assert second.returncode == 2, said
            assert re.search(rf"{out}: is in use by process {first.pid} on ", one_error(said))
            assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("victim", ["first", "other"])
def test_a_lost_process_takes_the_others_along(scenes, tmp_path, victim):
    """kill -9 of one of two processes: soon neither is there, and the state is whole."""
    out = tmp_path / "run"
    process = start(*training(scenes, out, *LONG, "--devices", "2"))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)
    family = descendants(process.pid)
    other = next(pid for pid in family if is_training(pid))
    os.kill(process.pid if victim == "first" else other, signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE)
    wait_for_the_end(family)
    if victim == "other":
        assert process.returncode == 1
        assert f"process {other} of this run was lost (signal 9)" in one_error(said)
    read_state(out / "checkpoints" / "last.safetensors")


def test_two_processes_stop_together_at_a_loss_that_is_no_number(scenes, tmp_path):
    rates = ("--lr", "1e30", "--head-lr", "1e30")
    process = start(*training(scenes, tmp_path / "run", *rates, "--devices", "2"))
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    # both have their own images, and both are named
    assert re.search(r"the loss is not finite on scene\d+, scene\d+", one_error(said))


def test_a_fault_of_the_first_process_is_one_line(scenes, tmp_path):
    """The other one sees a broken connection; it neither says so nor writes over the traceback."""
    out = tmp_path / "run"
    process = start(*training(scenes, out, *LONG, "--devices", "2"))
    wait_until((out / "checkpoints" / "last.safetensors").exists, process)
    with stopped(process):  # else it may make the folder again in between
        (out / "checkpoints").rename(tmp_path / "elsewhere")
        (out / "checkpoints").write_text("no folder")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert str(out / "checkpoints") in one_error(said)
    assert "Connection closed" not in (out / "traceback.txt").read_text()


def descendants(pid):
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            for child in path.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def name(pid):
    with suppress(OSError):  # it has just ended
        return Path(f"/proc/{pid}/comm").read_text().strip()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_training(pid):
    with suppress(OSError):  # it has just ended
        return b"scaseg" in Path(f"/proc/{pid}/cmdline").read_bytes()


def wait_for_the_end(family):
    """Processes close their files a moment before they are gone."""
    wait_until(lambda: not any(is_alive(pid) for pid in family))
