"""What is recorded as CUDA graphs, and why not; the recordings themselves: tests/gpu."""

import weakref
from contextlib import nullcontext

import pytest
import torch

from scaseg import create_model
from scaseg.config.recipe import load_recipe
from scaseg.config.run import TrainingConfig
from scaseg.data.sample import Batch
from scaseg.training import graphs
from scaseg.training.graphs import MANY, GraphedLoss, graph_problem
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training import quick


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"augment.crop": [64, 64]}, None),
        ({"augment.fit": [64, 64]}, None),
        ({"augment.fit": [64, 64], "augment.scale": [0.5, 2], "augment.crop": [48, 48]}, None),
        ({"augment.crop": [64, 64], "machine.activation_checkpointing": True}, None),
        ({}, "images of several sizes; augment.crop gives one"),
        ({"augment.fit": [64, 64], "augment.scale": [0.5, 2]}, "images of several sizes"),
        ({"augment.crop": [64, 64], "machine.devices": 2}, "several processes"),
        ({"augment.crop": [64, 64], "machine.nodes": 2}, "several processes"),
        ({"augment.crop": [64, 64], "model.backbone": "timm:x"}, "not tried with timm:x"),
    ],
)
def test_what_can_be_recorded(keys, problem):
    run = load_recipe(None, keys | {"machine.cuda_graphs": True})
    found = graph_problem(run)
    assert found is None if problem is None else problem in found
    module = SegmentationModule(create_model("tiny", classes=2), TrainingConfig())
    said = module.use_graphs(run)
    assert said == (", CUDA graphs" if problem is None else f"; no CUDA graphs: {found}")
    assert (module.graphs is None) == (problem is not None)
    off = load_recipe(None, keys | {"machine.cuda_graphs": False})
    module = SegmentationModule(create_model("tiny", classes=2), TrainingConfig())
    assert (module.use_graphs(off), module.graphs) == ("", None)


@pytest.mark.parametrize(
    ("backbone", "devices", "said"),
    [
        ("mobilenet_v2", 1, ", CUDA graphs"),
        ("mobilenet_v2", 2, "; no CUDA graphs: several processes"),
        ("resnet50", 1, ""),
        ("tiny", 2, ""),
    ],
)
def test_where_nothing_is_said_the_backbone_decides(backbone, devices, said):
    run = load_recipe("own_folder", {"machine.devices": devices})
    model = create_model(backbone, "none", "light", classes=2)
    assert SegmentationModule(model, run.training).use_graphs(run) == said


@pytest.mark.parametrize(
    ("graphs", "batches", "words"),
    [
        (None, MANY, "float32, channels_last"),
        (None, MANY - 1, "float32"),
        (False, MANY, "float32"),
    ],
)
def test_the_layout_of_long_trainings(graphs, batches, words):
    """MobileNetV2's kernels are faster in channels_last, but take cuDNN long to prepare, and more
    of them have to be launched."""
    run = load_recipe("own_folder", {"machine.cuda_graphs": graphs})
    model = create_model("mobilenet_v2", "none", "light", classes=2)
    module = SegmentationModule(model, run.training)
    module.use_graphs(run)
    assert module.use_gpu("32", run.machine, batches=batches) == f"cuda: {words}, fused AdamW"


@pytest.mark.parametrize(("backbone", "searches"), [("tiny", True), ("mobilenet_v2", False)])
def test_cudnn_searches_where_kernels_are_what_takes_time(
    backbone, searches, tmp_path, monkeypatch
):
    asked = []

    def search(wanted):
        asked.append(wanted)
        return nullcontext()

    monkeypatch.setattr("scaseg.training.run.cudnn_search", search)
    keys = {"model__backbone": backbone, "augment__crop": "[32, 32]", "augment__fill": "mirror"}
    run = quick.settings(write_scenes(tmp_path / "scenes", 8, size=(48, 56)), **keys)
    train(run, None, fast_dev_run=True, quiet=True, log=lambda line: None)
    assert asked == [searches]


@torch.no_grad()
def test_batches_that_are_not_replayed():
    """Smaller, of another size, or padded: computed as they are, and padding is told once."""
    said = []
    model = create_model("tiny", "none", "light", classes=2)
    config = TrainingConfig(batch_size=2, class_weights="none")
    module = SegmentationModule(model, config, notify=said.append).eval()
    keys = {"augment.crop": [32, 40], "training.batch_size": 2, "machine.cuda_graphs": True}
    batches = []
    for shape, real in (((1, 32, 40), 40), ((2, 32, 32), 32), ((2, 32, 40), 33), ((2, 32, 40), 34)):
        images = torch.randint(0, 256, (shape[0], 3, *shape[1:]), dtype=torch.uint8)
        sizes = torch.tensor([[32, real]] * shape[0])
        labels = torch.randint(0, 2, shape, dtype=torch.uint8)
        batches.append(Batch(images, labels, sizes, ["x"] * shape[0]))
    expected = [float(module.batch_loss(batch)) for batch in batches]
    module.use_graphs(load_recipe(None, keys))
    assert [float(module.batch_loss(batch)) for batch in batches] == expected
    [line] = said
    assert "padded batches; --augment.fill mirror" in line


def test_what_failed_is_gone_before_the_loss_is_computed_as_it_is(monkeypatch):
    """Out of memory, for one: what a recording has got so far is held by its error."""
    alive = []

    class Held:
        pass

    def fail(*_):
        held = Held()
        alive.append(weakref.ref(held))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    def loss(images, labels):
        assert alive[0]() is None
        return images.sum()

    said = []
    monkeypatch.setattr(graphs, "_Recording", fail)
    network = torch.nn.Linear(1, 1)
    graphed = GraphedLoss(loss, network, batch=2, size=(4, 4), notify=said.append)
    assert float(graphed(torch.ones(2, 3, 4, 4), torch.ones(2, 4, 4))) == 96
    assert said == ["no CUDA graphs: CUDA out of memory. Tried to allocate 2 GiB"]


def test_without_a_gpu_a_line_says_so_and_the_loss_is_the_same():
    said = []
    graphed = GraphedLoss(
        lambda images, labels: images.sum() + labels.sum(),
        torch.nn.Linear(1, 1),
        batch=2,
        size=(4, 4),
        notify=said.append,
    )
    images, labels = torch.ones(2, 3, 4, 4), torch.ones(2, 4, 4)
    assert float(graphed(images, labels)) == float(graphed(images, labels)) == 128
    [line] = said
    assert line.startswith("no CUDA graphs: ")
