"""benchmarks/peers.py: decoders of other libraries behind our backbone."""

import importlib
import sys

import pytest
import torch
from safetensors.torch import save_file

from scaseg.config.model import ModelConfig
from scaseg.io.table import read_rows
from scaseg.models.build import build_model
from scaseg.training.module import SegmentationModule
from tests.docs.pages import ROOT
from tests.scenes import write_scenes


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("peers")


# as segmentation-models-pytorch 0.6.0 has them for 8 classes: docs/results/own_folder/runs.csv
@pytest.mark.parametrize(("net", "parameters"), [("fpn", 4216328), ("deeplab", 4380312)])
def test_a_peer_is_as_large_as_it_is_there(peers, tmp_path, net, parameters):
    last = peers.LastConvolution(320, None)
    weights = {f"features.18.{name}": 2 * one for name, one in last.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    options = {"stride": peers.STRIDES[net]}
    classes = tuple("abcdefgh")
    config = ModelConfig(classes, "mobilenet_v2", "none", "pyramid", backbone_options=options)
    with peers.built_as(net, tmp_path / "weights.safetensors"):
        model = build_model(config).eval()
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert torch.equal(model.context[0].weight, weights["features.18.0.weight"])
    with torch.no_grad():
        assert model(torch.randn(1, 3, 70, 90)).shape == (1, 8, 70, 90)
    assert type(build_model(config).head) is not type(model.head)


def test_each_network_has_its_row(peers, tmp_path, monkeypatch):
    monkeypatch.setattr(SegmentationModule, "validation_batch", None)
    scenes, out = write_scenes(tmp_path / "scenes", 8, size=(40, 48)), tmp_path / "runs.csv"
    arguments = [str(scenes), "--epochs", "1", "--out", str(out)]
    keys = ["augment.crop=[32, 32]", "machine.workers=0", "training.batch_size=2"]
    arguments += [part for key in keys for part in ("--key", key)]
    monkeypatch.setattr(sys, "argv", ["peers.py", *arguments])
    peers.main()
    rows = read_rows(out)
    assert [row["name"] for row in rows] == ["new", "fpn", "deeplab"]
    assert all(float(row["final_loss"]) > 0 and 0 <= float(row["mIoU"]) <= 100 for row in rows)
