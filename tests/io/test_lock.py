import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from scaseg.io import lock as module
from scaseg.io.lock import LOCK, folder_lock

HOLD = """
import sys, time
from scaseg.io.lock import folder_lock
with folder_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""
FORK = """
import os, sys, time
from scaseg.io.lock import folder_lock
with folder_lock(sys.argv[1]):
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    print(child, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_told_who_has_the_folder(tmp_path, holder):
    said = (
        f"--out: {tmp_path / 'out'}: is in use by process {holder.pid} on {platform.node()}; wait"
    )
    with pytest.raises(ValueError, match="--out") as caught, folder_lock(tmp_path / "out"):
        pass
    assert str(caught.value) == f"{said} for it or give another folder"


def test_a_killed_holder_holds_nothing(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / "out" / LOCK).is_file()
    with folder_lock(tmp_path / "out"):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_forks_of_a_killed_holder_hold_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        with folder_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_same_process_is_refused_too_and_keeps_its_lock(tmp_path):
    with folder_lock(tmp_path):
        with pytest.raises(ValueError, match=f"process {os.getpid()} on"), folder_lock(tmp_path):
            pass
        done = subprocess.run(
            [sys.executable, "-c", HOLD, str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert f"process {os.getpid()} on" in done.stderr
    with folder_lock(tmp_path):
        pass


def test_other_folders_are_free(tmp_path):
    with folder_lock(tmp_path / "one"), folder_lock(tmp_path / "two"):
        pass


def test_the_lock_is_taken_away_and_so_is_a_folder_that_stayed_empty(tmp_path):
    with folder_lock(tmp_path / "new" / "folder"):
        assert (tmp_path / "new" / "folder" / LOCK).is_file()
    assert not (tmp_path / "new").exists()
    with folder_lock(tmp_path / "kept"):
        (tmp_path / "kept" / "result").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["result"]


def test_a_fault_inside_frees_the_folder(tmp_path):
    with pytest.raises(KeyError), folder_lock(tmp_path):
        raise KeyError
    assert not (tmp_path / LOCK).exists()


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    said = r"--model: .*file: cannot be written \(.*\); give another place"
    with pytest.raises(ValueError, match=said), folder_lock(tmp_path / "file", "--model"):
        pass


def test_a_lock_on_a_file_that_was_just_removed_is_no_lock(tmp_path, monkeypatch):
    """The last holder may remove the file after the next one has opened it."""
    take, taken = module._take, []

    def removed_first(file, shared=False):
        if not taken:
            (tmp_path / LOCK).unlink()
        taken.append(file)
        return take(file)

    monkeypatch.setattr(module, "_take", removed_first)
    with folder_lock(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()} on {platform.node()}\n"
    assert len(taken) == 2


def _count_up(folder, times):
    for _ in range(times):
        while True:
            try:
                with folder_lock(folder):
                    number = int((folder / "number").read_text())
                    (folder / "number").write_text(str(number + 1))
                break
            except ValueError:
                time.sleep(0.0001)


def test_nobody_gets_in_beside_another(tmp_path):
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("spawn")
    crowd = [context.Process(target=_count_up, args=(tmp_path, 100)) for _ in range(3)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert (tmp_path / "number").read_text() == "300"
