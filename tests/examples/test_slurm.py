"""examples/slurm.sh: read and run with a stand-in for srun everywhere; by SLURM where it is."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scaseg.cli import build_parser
from scaseg.cli.settings import check_keys, split_keys
from scaseg.config.keys import SECTIONS
from scaseg.io.table import read_rows
from tests.scenes import write_scenes

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "slurm.sh"
SMALL = ("--device", "cpu", "--model.backbone", "tiny", "--model.head", "pointwise")
SMALL += ("--model.backbone_weights", "null", "--machine.workers", "0", "--epochs", "2")


@pytest.mark.parametrize(("code", "again"), [(0, False), (1, False), (143, True)])
def test_a_run_that_was_told_to_end_is_queued_again(tmp_path, code, again):
    """And no other: one that failed would fail for ever."""
    for name in ("srun", "scontrol"):
        program = tmp_path / name
        ending = f"exit {code}" if name == "srun" else ""
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/diary\n{ending}\n')
        program.chmod(0o755)
    env = {"SLURM_NTASKS_PER_NODE": "8", "SLURM_NNODES": "2", "SLURM_JOB_ID": "77"}
    env["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", SCRIPT, "own_folder", "--data", "a b", "--out", "runs/first"]
    assert subprocess.run(command, env=env, check=False).returncode == code
    begun, *rest = (tmp_path / "diary").read_text().splitlines()
    assert rest == (["scontrol requeue 77"] if again else [])
    arguments, keys = split_keys(begun.partition(" scaseg ")[2].replace("a b", "a_b").split())
    options = build_parser("train").parse_args(arguments)
    assert options.auto_resume
    assert (options.data, options.devices, keys["machine.nodes"]) == ("a_b", 8, "2")
    check_keys(keys, SECTIONS)


def test_sbatch_is_asked_for_what_the_script_counts_on():
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", SCRIPT.read_text(), re.MULTILINE))
    assert asked["gpus-per-node"] == asked["ntasks-per-node"]  # a process for each GPU
    assert asked["signal"].startswith("TERM@")  # to the processes, not to the script (B:TERM)
    assert {"nodes", "requeue", "time"} <= asked.keys()


def test_slurm_runs_it(tmp_path):
    if shutil.which("sbatch") is None:
        pytest.skip("SLURM is not installed here: there is no sbatch")
    if subprocess.run(["sinfo"], capture_output=True, check=False).returncode:
        pytest.skip("SLURM does not run here: sinfo fails")
    scenes = write_scenes(tmp_path / "scenes", 14, size=(24, 24))
    asked = ("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=0", "--cpus-per-task=1")
    command = ["sbatch", "--wait", *asked, "--time=10", f"--output={tmp_path}/log", SCRIPT]
    command += ["own_folder", "--data", scenes, "--out", tmp_path / "run", *SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()
    assert len(read_rows(tmp_path / "run" / "metrics.csv")) == 2
    assert (tmp_path / "run" / "model" / "config.json").is_file()
