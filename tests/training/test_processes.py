"""1, 2 and 4 processes take the same steps; a run goes on after one is killed, on any number."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scaseg.errors import UserError
from scaseg.io.table import read_rows
from scaseg.io.tensors import read_tensors
from scaseg.training.run import train
from tests.processes import wait_until
from tests.scenes import write_scenes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def launch():
    """Start a training on so many processes; gives their ids, and waits for all."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.training.processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )

    def ask(text):
        driver.stdin.write(text + "\n")
        driver.stdin.flush()
        return json.loads(driver.stdout.readline())

    def start(processes, *, slurm=False, held=None, **arguments):
        devices, nodes = (1, processes) if slurm else (processes, 1)
        machine = {"machine.devices": str(devices), "machine.nodes": str(nodes)}
        arguments["overrides"] = {**arguments.get("overrides", {}), **machine}
        task = {"processes": processes, "slurm": slurm, "held": held, "arguments": arguments}
        pids = ask(json.dumps(task))
        return pids, lambda: ask("end")

    with driver:
        yield start
        driver.stdin.close()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Eight scenes to train on, of which each has another share of labelled pixels."""
    scenes = write_scenes(tmp_path_factory.mktemp("scenes"), 14, size=(24, 24))
    for index, path in enumerate(sorted((scenes / "labels").iterdir())):
        with Image.open(path) as image:
            labels, palette = np.array(image), image.getpalette()
        labels[: index + 3] = 255
        changed = Image.fromarray(labels)
        if palette:
            changed.putpalette(palette)
        changed.save(path)
    keys = {"data.root": str(scenes), "data.val": "train", "machine.device": "cpu"}
    keys |= {"model.backbone": "tiny", "model.head": "pointwise", "model.context": "sca"}
    keys |= {"augment.crop": "null", "augment.scale": "null", "augment.fit": "null"}
    keys |= {"machine.workers": "0", "model.backbone_weights": "null"}
    keys["training.pictures"] = "0"
    keys["training.batch_norm"] = "frozen"  # norms that learn see the images of a process alone
    return keys | {"training.epochs": "3", "training.optimizer": "SGD", "training.lr": "0.001"}


def weights(out):
    return read_tensors(out / "model" / "model.safetensors")[0]


def assert_same(out, other, tolerance):
    rows, others = (read_rows(folder / "metrics.csv") for folder in (out, other))
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for name in ("loss", "val_loss", "mIoU", "lr"):
        values = [[float(row[name]) for row in both] for both in (rows, others)]
        np.testing.assert_allclose(*values, rtol=tolerance, err_msg=name)
    own, theirs = weights(out), weights(other)
    for name, value in own.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-3, atol=20 * tolerance)


def test_any_number_of_processes_takes_the_same_steps(launch, settings, tmp_path):
    """The same images in each step: equal losses, rows and weights, to rounding."""
    for processes in (1, 2, 4):
        keys = settings | {"training.batch_size": str(4 // processes)}
        _, end = launch(processes, out=str(tmp_path / str(processes)), overrides=keys)
        assert end() == [0] * processes
    losses = [float(row["loss"]) for row in read_rows(tmp_path / "1" / "metrics.csv")]
    assert len(set(losses)) == 3  # it learns
    for processes in (2, 4):
        assert_same(tmp_path / "1", tmp_path / str(processes), 1e-5)


def test_a_run_goes_on_after_a_kill_on_another_number_of_processes(launch, settings, tmp_path):
    """The same command again, as a launcher gives it: from the last state, as if nothing was."""
    keys = settings | {"training.batch_size": "2", "training.epochs": "10"}
    keys["training.checkpoint_every"] = "1"
    _, end = launch(2, out=str(tmp_path / "whole"), overrides=dict(keys))
    assert end() == [0, 0]
    out, hold = tmp_path / "killed", tmp_path / "hold"
    options = {"out": str(out), "overrides": dict(keys), "auto_resume": True}
    hold.touch()
    pids, end = launch(2, held=(2, str(hold)), **options)
    wait_until(lambda: len(read_rows(out / "metrics.csv")) == 2)
    os.kill(pids[1], signal.SIGKILL)
    hold.unlink()
    assert end() == [256, signal.SIGKILL]  # the other one ends too, with an error
    _, end = launch(2, out=str(out), overrides=dict(keys) | {"training.lr": "1"}, auto_resume=True)
    assert 0 not in end()  # refused by both
    hold.touch()
    pids, end = launch(2, held=(5, str(hold)), **options)
    wait_until(lambda: len(read_rows(out / "metrics.csv")) == 5)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert end() == [signal.SIGKILL] * 2
    _, end = launch(4, out=str(out), resume=True)  # on four, one image on each
    assert end() == [0] * 4
    assert_same(tmp_path / "whole", out, 1e-4)
    sessions = json.loads((out / "environment.json").read_text())["sessions"]
    assert len(sessions) == 3
    _, end = launch(3, out=str(out), resume=True)
    assert 0 not in end()


def test_slurm_says_who_is_who_and_when_to_stop(launch, settings, tmp_path):
    """Two nodes by SLURM's variables alone; told to end, queued again: as if nothing was."""
    keys = settings | {"training.batch_size": "2", "training.epochs": "6"}
    _, end = launch(1, out=str(tmp_path / "one"), overrides=keys | {"training.batch_size": "4"})
    assert end() == [0]
    hold = tmp_path / "hold"
    hold.touch()
    options = {"slurm": True, "out": str(tmp_path / "two"), "auto_resume": True}
    pids, end = launch(2, held=(2, str(hold)), overrides=dict(keys), **options)
    wait_until(lambda: len(read_rows(tmp_path / "two" / "metrics.csv")) == 2)
    for pid in pids:  # both, before one of them ends the other by obeying
        os.kill(pid, signal.SIGUSR1)
    hold.unlink()
    assert end() == [143 << 8] * 2  # what the example's script queues again
    _, end = launch(2, overrides=dict(keys), **options)
    assert end() == [0, 0]
    assert_same(tmp_path / "one", tmp_path / "two", 1e-4)


def test_shares_of_the_network_take_the_same_steps(launch, settings, tmp_path):
    """FSDP is DDP but for what each process keeps; a state is whole, and serves both."""
    keys = settings | {"training.epochs": "2", "training.ema": "0.9", "training.batch_size": "2"}
    keys |= {"training.gradient_clip": "0.1", "training.batch_norm": "train"}
    keys["training.optimizer"] = "AdamW"

    def go(name, strategy, processes=2, **more):
        own = {"machine.strategy": strategy, **more.pop("overrides", keys)}
        _, end = launch(processes, out=str(tmp_path / name), overrides=own, **more)
        assert end() == [0] * processes

    go("ddp", "ddp")
    go("fsdp", "fsdp")
    assert_same(tmp_path / "ddp", tmp_path / "fsdp", 1e-5)
    shutil.copytree(tmp_path / "ddp", tmp_path / "moved")
    for name, strategy in (("ddp", "ddp"), ("fsdp", "fsdp"), ("moved", "fsdp")):
        go(name, strategy, resume=True, overrides={"training.epochs": "3"})
    assert_same(tmp_path / "ddp", tmp_path / "fsdp", 1e-5)
    assert_same(tmp_path / "ddp", tmp_path / "moved", 1e-5)


@pytest.mark.parametrize(
    ("key", "value"),
    [("machine.precision", "16"), ("machine.channels_last", "true"), ("training.on_nan", "skip:3")],
)
def test_what_does_not_go_with_fsdp(settings, tmp_path, key, value):
    keys = settings | {"machine.strategy": "fsdp", key: value}
    problem = f"--{key}: {value} does not go with --machine.strategy fsdp; "
    with pytest.raises(UserError, match=re.escape(problem)):
        train(None, tmp_path / "out", overrides=keys, quiet=True)
    assert not (tmp_path / "out").exists()
