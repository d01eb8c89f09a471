"""The same numbers whatever divides the work, and the same weights from the same seed."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scaseg
from scaseg.cli import main
from scaseg.io.tensors import read_tensors, write_tensors
from tests.faults.catalogue import LIGHT
from tests.processes import free_port

ROOT = Path(__file__).parents[2]


# evaluates one list after the other; Lightning starts the other processes with the same script
SCRIPT = """
import json, sys
import scaseg
from scaseg.training.distributed import is_rank_zero

model, data, processes, *splits = sys.argv[1:]
machine = {"machine.device": "cpu", "machine.workers": "0", "machine.devices": processes}
for split in splits:
    found = scaseg.evaluate(model, data, split=split, overrides=machine, quiet=True)
    if is_rank_zero():
        print(json.dumps(found.to_dict()))
"""


@pytest.fixture(scope="module")
def evaluated(built_world, tmp_path_factory):
    """What 1, 2 (by command) and 3 processes (from Python) find on 7 images, and 1 and 3 on 2."""
    lists = {"seven": range(7), "two": range(2)}
    for name, chosen in lists.items():
        lines = [f"scene{index:02}" for index in chosen]
        (built_world / "data" / f"{name}.txt").write_text("\n".join(lines))
    script = tmp_path_factory.mktemp("script") / "evaluate.py"
    script.write_text(SCRIPT)
    model, data = built_world / "model", built_world / "data"
    where = ("--model", model, "--data", data, "--split", "seven", "--device", "cpu")
    commands = {
        2: ("-m", "scaseg.cli", "evaluate", *where, "--workers", "0", "--devices", "2", "--json"),
        3: (script, model, data, "3", "seven", "two"),
    }
    splits = {2: ["seven"], 3: ["seven", "two"]}
    started = {
        processes: subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())},
        )
        for processes, command in commands.items()
    }
    found = {}
    for name in lists:  # in this process, meanwhile
        machine = {"machine.device": "cpu", "machine.workers": "0"}
        alone = scaseg.evaluate(model, data, split=name, overrides=machine, quiet=True)
        found[name, 1] = alone.to_dict()
    for processes, process in started.items():
        printed, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        for name, line in zip(splits[processes], printed.splitlines(), strict=True):
            found[name, processes] = json.loads(line)
    return found


@pytest.mark.parametrize("processes", [2, 3])
def test_an_indivisible_data_set(evaluated, processes):
    """7 images: every field is exactly what one process counts."""
    alone = evaluated["seven", 1]
    assert alone["images"] == 7
    assert 0 < alone["mIoU"] < 100
    assert evaluated["seven", processes] == alone


def test_fewer_photographs_than_processes(evaluated):
    assert evaluated["two", 1]["images"] == 2
    assert evaluated["two", 3] == evaluated["two", 1]
    assert evaluated["two", 1] != evaluated["seven", 1]


def test_the_same_seed_gives_the_same_file(built_world, tmp_path):
    """The weights, byte for byte, from two runs of the command; another seed gives others."""

    def digest(name, seed):
        arguments = ["train", "--data", str(built_world / "data"), "--out", str(tmp_path / name)]
        main(
            [
                *arguments,
                *LIGHT,
                "--context",
                "sca",
                "--epochs",
                "2",
                "--seed",
                str(seed),
                "--quiet",
            ]
        )
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
