"""The scripts of examples/ run as a reader would run them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scaseg
from scaseg.io.table import read_rows
from tests.scenes import write_scenes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "said"),
    [("plain_loop.py", "pixels of the first image"), ("own_lightning.py", "mIoU")],
)
def test_a_loop_of_ones_own(script, said, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / script, "made"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert said in done.stdout
    assert scaseg.load_model(tmp_path / "made").classes == ("red", "green", "blue")


@pytest.mark.filterwarnings("ignore")  # of Ray about itself
def test_a_worker_of_ray_train(tmp_path):
    """Alone, as Ray Train would start it; with two, and one killed, it was tried by hand."""
    pytest.importorskip("ray.train", reason="Ray is not installed: pip install 'scaseg[ray]'")
    script = load("ray_train")
    scenes = write_scenes(tmp_path / "scenes", 14, size=(24, 24))
    keys = {"data.root": str(scenes), "training.epochs": "1", "machine.device": "cpu"}
    keys |= {"model.backbone": "tiny", "model.backbone_weights": "null", "machine.workers": "0"}
    script.work({"recipe": "own_folder", "out": str(tmp_path / "run"), "keys": keys})
    assert len(read_rows(tmp_path / "run" / "metrics.csv")) == 1
    script.work({"recipe": "own_folder", "out": str(tmp_path / "run"), "keys": keys})  # no more


def load(name):
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("name", ["own", "smp", "torchvision", "segformer", "mmseg"])
@pytest.mark.filterwarnings("ignore")  # of other libraries
def test_inside_other_networks(name):
    script = load("other_networks")
    torch.manual_seed(0)
    try:
        network = getattr(script, name)()
    except (ImportError, RuntimeError) as fault:
        pytest.skip(f"{name} cannot be imported here: {fault}")
    first, last = script.learn(network)
    assert last < first
    contexts = [part for part in network.modules() if isinstance(part, scaseg.SelectiveContext)]
    assert len(contexts) == 1
    assert all(weight.grad.abs().sum() > 0 for weight in contexts[0].context.parameters())
