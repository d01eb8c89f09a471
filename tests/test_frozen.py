"""benchmarks/frozen.py without its data: batches, mirrors, judging, a training on maps of noise."""

import importlib

import numpy as np
import pytest
import torch

from scaseg.models.build import create_model
from tests.docs.pages import ROOT

CLASSES, PHOTOGRAPHS = 3, 40


@pytest.fixture
def frozen(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("frozen")


@pytest.fixture
def split(frozen):
    """Maps whose first channels say the class of each neuron; 16 stand, 24 lie."""
    random = np.random.default_rng(0)
    is_upright = np.arange(PHOTOGRAPHS) % 5 < 2
    truth = random.integers(0, CLASSES, (PHOTOGRAPHS, 300)).astype(np.uint8)
    features = random.normal(0, 0.1, (PHOTOGRAPHS, 320, 300)).astype(np.float16)
    for index in range(CLASSES):
        features[:, index] += 2 * (truth == index)
    shapes = [(20, 15) if upright else (15, 20) for upright in is_upright]
    labels = [
        own.reshape(shape).repeat(2, 0).repeat(2, 1)
        for own, shape in zip(truth, shapes, strict=True)
    ]
    mirrored = np.stack(
        [
            own.reshape(320, *shape)[:, :, ::-1].reshape(320, 300)
            for own, shape in zip(features, shapes, strict=True)
        ]
    )
    return frozen.Split(features, mirrored, labels, is_upright)


@pytest.fixture
def trained():
    classes = [f"class {index}" for index in range(CLASSES)]
    options = {"stride": 16}
    return create_model("mobilenet_v2", "none", "light", classes=classes, backbone_options=options)


def test_batches_have_one_shape_and_each_photograph_once(frozen, split):
    found = list(frozen.batches(split.is_upright, np.random.default_rng(1)))
    assert sorted(split.is_upright[own].tolist() for own in found) == [[False] * 16, [True] * 16]
    assert len(set(np.concatenate(found).tolist())) == 32  # 8 that lie fill no batch


def test_a_mirrored_map_is_that_of_the_mirrored_photograph(split):
    for chosen in (np.array([0, 6]), np.array([2, 3])):
        whole, some = split.maps(chosen), split.maps(chosen, np.array([True, False]))
        assert torch.equal(some[0], whole[0].flip(2))
        assert torch.equal(some[1], whole[1])


@pytest.mark.parametrize("context", ["average", "object"])  # object has an auxiliary loss
def test_it_learns_without_changing_the_backbone(frozen, split, trained, context, monkeypatch):
    monkeypatch.setattr(frozen, "WARMUP", 5)
    before = {name: one.clone() for name, one in trained.backbone.state_dict().items()}
    settings = frozen.Settings(channels=16, width=16, epochs=20, lr=1e-2, precision="32")
    model = frozen.build(trained, context, 0, split, settings)
    frozen.train(model, split, 0, settings)
    for name, one in model.backbone.trained.state_dict().items():
        assert torch.equal(one, before[name]), name
    confusion = frozen.judge(model, split)
    assert int(confusion.counts.sum()) == PHOTOGRAPHS * 4 * 300
    assert confusion.scores().pixel_accuracy > 0.6  # chance is 0.33; scores are enlarged smoothly


def test_contexts_start_alike_around_them(frozen, split, trained):
    settings = frozen.Settings(channels=16, width=16)
    one, other = (frozen.build(trained, name, 5, split, settings) for name in ("none", "sca"))
    for part in ("head", "backbone"):
        for weight, twin in zip(
            getattr(one, part).parameters(), getattr(other, part).parameters(), strict=True
        ):
            assert torch.equal(weight, twin)
