"""The same numbers whatever divides the work, and the same weights from the same seed."""

import hashlib
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from scaseg.cli import main
from scaseg.io.tensors import read_tensors, write_tensors
from tests.faults.catalogue import LIGHT

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def judged(built_world):
    """What 2 and 3 processes print of 7 photographs and of 2, side by side, and what one does."""
    lists = {"seven": range(7), "two": range(2)}
    for name, chosen in lists.items():
        lines = [f"scene{index:02}" for index in chosen]
        (built_world / "data" / f"{name}.txt").write_text("\n".join(lines))
    model = ("--model", built_world / "model", "--data", built_world / "data")
    command = ["evaluate", *map(str, model), "--json", "--device", "cpu", "--workers", "0"]
    python = (sys.executable, "-m", "scaseg.cli")
    started = {
        (name, processes): subprocess.Popen(
            [*python, *command, "--split", name, "--devices", str(processes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for name, processes in (("seven", 2), ("seven", 3), ("two", 3))
    }
    found = {}
    for name in lists:  # in this process, meanwhile
        printed = StringIO()
        with redirect_stdout(printed):
            main([*command, "--split", name])
        found[name, 1] = json.loads(printed.getvalue())
    for key, process in started.items():
        printed, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
        found[key] = json.loads(printed)
    return found


@pytest.mark.parametrize("processes", [2, 3])
def test_an_indivisible_data_set(judged, processes):
    """7 photographs: every field is exactly what one process counts."""
    alone = judged["seven", 1]
    assert alone["images"] == 7
    assert 0 < alone["mIoU"] < 100
    assert judged["seven", processes] == alone


def test_fewer_photographs_than_processes(judged):
    assert judged["two", 1]["images"] == 2
    assert judged["two", 3] == judged["two", 1]
    assert judged["two", 1] != judged["seven", 1]


def test_the_same_seed_gives_the_same_file(built_world, tmp_path):
    """The weights, byte for byte, from two runs of the command; another seed gives others."""

    def digest(name, seed):
        arguments = ["train", "--data", str(built_world / "data"), "--out", str(tmp_path / name)]
        main([*arguments, *LIGHT, "--epochs", "2", "--seed", str(seed), "--quiet"])
        file = tmp_path / name / "model" / "model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()

    first = digest("first", 3)
    assert digest("second", 3) == first
    assert digest("third", 4) != first


def test_the_same_tensors_are_the_same_bytes(tmp_path):
    """Notes too, which safetensors writes in another order every time."""
    notes = {"format": "pt", "one": "é\n", "two": '"\\', "three": ""}
    found = set()
    for _ in range(8):
        write_tensors(tmp_path / "w.safetensors", {"w": torch.arange(5.0)}, notes)
        found.add((tmp_path / "w.safetensors").read_bytes())
    assert len(found) == 1
    assert read_tensors(tmp_path / "w.safetensors", signed=True)[1] == notes
