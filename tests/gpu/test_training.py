"""Runs on a GPU: told to end and continued, in every precision; a loss that is no number."""

import os
import signal
from functools import partial

import numpy as np
import pytest
import torch

import scaseg
from scaseg.config.run import MachineConfig
from scaseg.data.datasets.folder import FolderDataset
from scaseg.training.checkpoint_io import read_state
from scaseg.training.evaluation import evaluate
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train
from scaseg.training.run_folder import LAST
from tests.scenes import CLASSES, write_scenes
from tests.training import quick

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
settings = partial(
    quick.settings,
    training__epochs=3,
    training__ema=0.9,
    machine__device="cuda",
    machine__workers=2,
)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 22, size=(32, 40))  # 12 to train on


@pytest.mark.parametrize("precision", ["32", "bf16", "16", "auto"])
def test_told_to_end_and_continued(scenes, tmp_path, monkeypatch, precision):
    run = settings(scenes, machine__precision=precision)
    whole = train(run, tmp_path / "whole", quiet=True)
    step = SegmentationModule.training_step
    places = [(0, 2), (1, 5)]

    def training_step(self, batch, batch_idx):
        if (self.current_epoch, batch_idx) in places:
            places.remove((self.current_epoch, batch_idx))
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", training_step)
    for resume, reached in ((False, 3), (True, 11)):
        with pytest.raises(SystemExit) as stop:
            train(run, tmp_path / "run", resume=resume, quiet=True)
        assert stop.value.code == 143
        assert read_state(tmp_path / "run" / LAST)["global_step"] == reached
    parts = train(run, tmp_path / "run", resume=True, quiet=True)
    # sums on a GPU have no fixed order: close, not equal
    for one, other in zip(parts.rows, whole.rows, strict=True):
        assert int(one["step"]) == int(other["step"])
        assert float(one["loss"]) == pytest.approx(float(other["loss"]), rel=0.05)


@pytest.mark.parametrize("precision", ["bf16", "16"])
def test_a_batch_that_is_skipped(scenes, precision):
    def poison(sample, random):
        if sample.name == "scene12":
            sample.image = np.full(sample.image.shape, np.nan, np.float32)
        return sample

    run = settings(
        scenes, machine__precision=precision, training__on_nan="skip:3", training__calibrate="false"
    )
    said = []
    result = train(run, None, quiet=True, log=said.append, transforms=[poison])
    assert sum("skipped" in line for line in said) == 3
    assert all(np.isfinite(row["loss"]) for row in result.rows)
    assert all(torch.isfinite(tensor).all() for tensor in result.model.state_dict().values())


@pytest.mark.parametrize(("precision", "tolerance"), [("32", 1e-3), ("bf16", 0.05)])
def test_fsdp_on_one_gpu_takes_the_same_steps(scenes, tmp_path, capsys, precision, tolerance):
    """World size 1, which is what can be tried with one GPU: nothing is divided, all else runs."""
    keys = {"machine__channels_last": "false", "machine__workers": 0, "training__epochs": 2}
    keys |= {"machine__precision": precision, "training__gradient_clip": 1}
    rows = []
    for strategy in ("ddp", "fsdp"):
        run = settings(scenes, machine__strategy=strategy, **keys)
        result = train(run, tmp_path / strategy, quiet=True)
        rows.append([float(row["loss"]) for row in result.rows])
    np.testing.assert_allclose(*rows, rtol=tolerance)
    image = np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)
    plain, sharded = (
        scaseg.load_model(tmp_path / one / "model").predict(image, scores=True).scores
        for one in ("ddp", "fsdp")
    )
    np.testing.assert_allclose(plain, sharded, atol=10 * tolerance)
    with capsys.disabled():
        worst = max(abs(one / other - 1) for one, other in zip(*rows, strict=True))
        print(f"\nfsdp, world size 1, {precision}: losses {rows}, at most {worst:.1e} apart")
    longer = {"training.epochs": "3", "machine.strategy": "ddp"}  # a state is whole
    result = train(out=tmp_path / "fsdp", resume=True, overrides=longer, quiet=True)
    assert len(result.rows) == 3


def test_validation_in_batches(scenes, monkeypatch):
    """Of a similar size: the figures of single images, and of a CPU."""
    torch.manual_seed(0)
    model = scaseg.create_model("mobilenet_v2", "sca", "pyramid", classes=CLASSES).eval()
    data, found = FolderDataset(scenes, "train"), []
    for device, size in (("cpu", None), ("cuda", 1), ("cuda", None)):
        monkeypatch.setattr(SegmentationModule, "validation_batch", size)
        machine = MachineConfig(device=device, workers=0)
        found.append(evaluate(model, data, machine=machine, quiet=True))
    pixels = found[0].confusion.counts.sum()
    for other in found[1:]:
        assert other.confusion.counts.sum(1).equal(found[0].confusion.counts.sum(1))
        moved = (other.confusion.counts - found[0].confusion.counts).abs().sum()
        assert moved <= 0.01 * pixels  # TF32
        assert other.calibration.errors() == pytest.approx(found[0].calibration.errors(), abs=0.01)
        losses = (one.calibration.losses.cpu() for one in (other, found[0]))
        torch.testing.assert_close(*losses, rtol=0.01, atol=0)
