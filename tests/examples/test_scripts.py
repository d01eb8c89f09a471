"""The scripts of examples/ run as a reader would run them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scaseg

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "said"),
    [("plain_loop.py", "pixels of the first image"), ("own_lightning.py", "mIoU")],
)
def test_a_loop_of_ones_own(script, said, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / script, "made"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert said in done.stdout
    assert scaseg.load_model(tmp_path / "made").classes == ("red", "green", "blue")


@pytest.mark.parametrize("name", ["own", "smp", "torchvision", "segformer", "mmseg"])
@pytest.mark.filterwarnings("ignore")  # of other libraries
def test_inside_other_networks(name):
    path = ROOT / "examples" / "other_networks.py"
    spec = importlib.util.spec_from_file_location("other_networks", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
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
