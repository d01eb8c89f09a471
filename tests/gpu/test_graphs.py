"""Steps that are replayed as CUDA graphs are the steps that they would be otherwise."""

import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scaseg.data.transforms import RandomCrop
from scaseg.models.padding import enlarge
from scaseg.training import callbacks
from scaseg.training.graphs import GraphedLoss
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training import quick

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
LIGHT = {"model__backbone": "mobilenet_v2", "model__context": "object", "model__head": "pyramid"}
LIGHT |= {"model__backbone_options": "{stride: 16}", "augment__crop": "[64, 64]"}
LIGHT |= {"training__batch_norm": "train"}
CASES = {
    "dropout and sca": {},  # the paper's head of the smallest backbone has 0.5 of it
    "learning norms and an auxiliary loss": LIGHT,
    "bf16": LIGHT | {"machine__precision": "bf16"},
    "16": {"machine__precision": "16"},
    "gradients of two batches, clipped": {"training__accumulate": 2, "training__gradient_clip": 1},
    "activation checkpointing": LIGHT | {"machine__activation_checkpointing": "true"},
    "channels_last": LIGHT | {"machine__channels_last": "true", "training__optimizer": "AdamW"},
    "frozen backbone, ohem": {"training__freeze_backbone": "true", "training__loss": "ohem"},
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 26, size=(48, 56))  # 14 to train on


@pytest.fixture(autouse=True)
def same_algorithms(monkeypatch):
    """A search of cuDNN may find another one each time, with other rounding."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr("scaseg.training.run.cudnn_search", lambda wanted: nullcontext())
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)


@pytest.fixture
def replays(monkeypatch):
    """How many graphs were replayed."""
    found = []
    replay = torch.cuda.CUDAGraph.replay

    def count(self):
        found.append(self)
        replay(self)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", count)
    return found


def outcome(scenes, graphs, **keys):
    """Weights, statistics and losses of a run; what it said."""
    keys = {"augment__crop": "[32, 32]", "augment__scale": "[0.5, 1.5]"} | keys
    keys |= {"machine__device": "cuda", "machine__workers": 0, "machine__cuda_graphs": graphs}
    keys |= {"augment__fill": "mirror", "training__ema": 0.9, "training__batch_size": 4}
    more = keys.pop("more", {})
    run = quick.settings(scenes, training__epochs=4, **keys)
    said = []
    result = train(run, None, quiet=True, log=said.append, **more)
    return result.model.state_dict(), [row["loss"] for row in result.rows], said


def assert_alike(one, other, rtol=2e-3):
    """Sums on a GPU have no fixed order: close, not equal."""
    assert one[1] == pytest.approx(other[1], rel=rtol)
    for name, expected in other[0].items():
        found, expected = one[0][name].double(), expected.double()
        if "num_batches" in name:
            assert torch.equal(found, expected), name
            continue
        off = (found - expected).norm() / expected.norm().clamp(min=1e-3)
        assert off <= rtol, f"{name}: {float(off):.2g}"


@pytest.mark.parametrize("case", CASES)
def test_the_same_weights(scenes, replays, case):
    """Four epochs of 4 steps: 3 full batches that are replayed, and a smaller one that is not."""
    plain = outcome(scenes, "false", **CASES[case])
    assert not replays
    assert not any("CUDA graphs" in line for line in plain[2])
    found = outcome(scenes, "true", **CASES[case])
    assert any(line.endswith("CUDA graphs") for line in found[2]), found[2]
    assert not any("no CUDA graphs" in line for line in found[2]), found[2]
    assert len(replays) == 2 * 4 * 3
    low = CASES[case].get("machine__precision", "32") != "32"
    assert_alike(found, plain, 5e-2 if low else 2e-3)


def test_a_batch_that_is_skipped(scenes, replays):
    """The loss is known before any weight moves, and statistics are put back."""

    def poison(sample, random):
        if sample.name == "scene20":
            sample.image = np.full(sample.image.shape, np.nan, np.float32)
        sample.image = sample.image.astype(np.float32) / 255
        return sample

    chain = {"transforms": [poison, RandomCrop(64, 64, mirrors=True)]}
    keys = LIGHT | {"training__on_nan": "skip:9", "training__calibrate": "false", "more": chain}
    plain, found = (outcome(scenes, graphs, **keys) for graphs in ("false", "true"))
    assert replays
    skips = [[line for line in one[2] if "skipped" in line] for one in (plain, found)]
    assert skips[0] == skips[1] != []
    assert_alike(found, plain)


def test_padded_batches_are_computed_as_they_are(scenes, replays):
    keys = {"augment__crop": "[96, 96]", "augment__scale": "[0.5, 1]"}
    run = {"machine__device": "cuda", "augment__fill": "mask", "training__epochs": 2} | keys
    said = []
    train(quick.settings(scenes, **run), None, quiet=True, log=said.append)
    assert sum("no CUDA graphs for padded batches" in line for line in said) == 1
    assert not replays


class Net(nn.Module):
    """A convolution, a norm, and something that may not be recorded."""

    def __init__(self, trouble=lambda x: None):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.trouble = trouble
        self.cuda()

    def loss(self, images, labels):
        x = self.norm(self.layer(images.float() / 255))
        self.trouble(x)
        return x.square().mean() * (labels != 255).float().mean()


def replace_buffer(net):
    return lambda x: setattr(net.norm, "running_mean", net.norm.running_mean + 0)


TROUBLES = {
    "waits for the GPU": (lambda x: x.detach().sum().item(), "synchroniz"),
    "fails while it is recorded": (lambda x: torch.cuda.synchronize(), ""),
    "draws on the host": (lambda x: random.random(), "random numbers on the host"),
    "draws on the host, by torch": (lambda x: torch.rand(()), "random numbers on the host"),
    "draws on the host, by numpy": (lambda x: np.random.random(), "random numbers on the host"),
}


def batch(seed):
    torch.manual_seed(seed)
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, device="cuda")
    return images, torch.randint(0, 9, (2, 16, 16), dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_cannot_be_recorded_runs_as_it_is(trouble):
    """One line says why; statistics, random numbers and later recordings are as without."""
    cause, words = TROUBLES[trouble]
    said, net, plain = [], Net(cause), Net()
    graphed = GraphedLoss(net.loss, net, batch=2, size=(16, 16), notify=said.append)
    state = torch.cuda.get_rng_state(), torch.cuda.current_stream()
    for seed in range(3):
        found, expected = graphed(*batch(seed)), plain.loss(*batch(seed))
        found.backward()
        expected.backward()
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(net.layer.weight.grad, plain.layer.weight.grad)
    torch.testing.assert_close(net.state_dict(), plain.state_dict())
    [line] = said
    assert line.startswith("no CUDA graphs: ")
    assert words in line
    assert torch.cuda.current_stream() == state[1]
    again = Net()
    graphed = GraphedLoss(again.loss, again, batch=2, size=(16, 16), notify=said.append)
    for seed in range(3):
        graphed(*batch(seed)).backward()
    assert len(said) == 1
    assert graphed.is_usable


def test_a_network_that_replaces_its_buffers():
    said, net = [], Net()
    net.trouble = replace_buffer(net)
    graphed = GraphedLoss(net.loss, net, batch=2, size=(16, 16), notify=said.append)
    graphed(*batch(0))
    assert said == ["no CUDA graphs: the network replaces its buffers"]


@pytest.mark.parametrize("accumulates", [True, False])
def test_gradients(accumulates):
    """Added up over batches, or each batch's own; a scaled loss has scaled ones."""
    net, plain = Net(), Net()
    graphed = GraphedLoss(net.loss, net, batch=2, size=(16, 16), accumulates=accumulates)
    for seed in range(6):
        for compute in (graphed, plain.loss):
            (compute(*batch(seed)) * (1 + seed)).backward()
        if not accumulates or seed % 3 == 2:
            for one, other in zip(net.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad)
                one.grad = other.grad = None
    torch.testing.assert_close(net.state_dict(), plain.state_dict())


def test_the_running_mean_is_on_the_gpu(scenes, monkeypatch):
    """On the CPU, every step would bring all weights there."""
    places = set()
    update = callbacks.ema_update

    def watched(averages, values, count, *, decay):
        places.update(one.device.type for one in (*averages, *values))
        update(averages, values, count, decay=decay)

    monkeypatch.setattr(callbacks, "ema_update", watched)
    outcome(scenes, "true")
    assert places == {"cuda"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_enlarging(dtype):
    """That of F.interpolate, and the same at every call."""
    for size in ((48, 40), (37, 61), (5, 7), (12, 10)):
        x = torch.randn(2, 3, 12, 10, dtype=dtype, device="cuda", requires_grad=True)
        exact = x.detach().double().requires_grad_()
        whole = F.interpolate(exact, size, mode="bilinear", align_corners=False)
        push = torch.randn_like(whole)
        (expected,) = torch.autograd.grad(whole, exact, push)
        found, again = (
            torch.autograd.grad(enlarge(x, size), x, push.to(dtype))[0] for _ in range(2)
        )
        assert torch.equal(found, again)
        error = (found - expected).abs().max() / expected.abs().max()
        assert error < 4 * torch.finfo(dtype).eps


def test_other_memory_is_recorded_anew():
    net, plain = Net(), Net()
    graphed = GraphedLoss(net.loss, net, batch=2, size=(16, 16))
    graphed(*batch(0)).backward()
    plain.loss(*batch(0)).backward()
    for one in (net, plain):
        one.layer.weight.data = one.layer.weight.data * 2
        one.zero_grad()
    graphed.renew()
    found, expected = graphed(*batch(1)), plain.loss(*batch(1))
    torch.testing.assert_close(found, expected)
