"""Steps that are replayed as CUDA graphs are the steps that they would be otherwise."""

import random
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scaseg.data.transforms import RandomCrop
from scaseg.models.padding import enlarge
from scaseg.training import callbacks, graphs
from scaseg.training.graphs import GraphedLoss
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train
from tests.scenes import write_scenes
from tests.training import quick

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
LIGHT = {"model__backbone": "mobilenet_v2", "model__context": "object", "model__head": "pyramid"}
LIGHT |= {"model__backbone_options": "{stride: 16, stages: 4}", "augment__crop": "[64, 64]"}
# at the usual rates it is chaotic: where weights differ by 1e-7, losses do by 5 % 16 steps later
LIGHT |= {"training__batch_norm": "train", "training__lr": 1e-5, "training__head_lr": 1e-4}
SCA = {"model__head": "compact"}  # half of its features are dropped
CASES = {
    "dropout and sca": SCA,
    "learning norms and an auxiliary loss": LIGHT,
    "contiguous": LIGHT | {"machine__channels_last": "false"},
    "bf16": LIGHT | {"machine__precision": "bf16"},
    "16": SCA | {"machine__precision": "16"},
    "gradients of two batches, clipped": SCA
    | {"training__accumulate": 2, "training__gradient_clip": 1},
    "activation checkpointing": LIGHT | {"machine__activation_checkpointing": "true"},
    "AdamW": LIGHT | {"training__optimizer": "AdamW"},
    "frozen backbone, ohem": SCA | {"training__freeze_backbone": "true", "training__loss": "ohem"},
}
CALM = 0.01  # share of what a training moves that rounding may move elsewhere


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 26, size=(48, 56))  # 14 to train on


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """The same algorithms, whose rounding is the same each time; random numbers of its own."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr("scaseg.training.run.cudnn_search", lambda wanted: nullcontext())
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    torch.cuda.init()
    torch.cuda.default_generators[0].graphsafe_set_state(torch.Generator("cuda"))


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


class Outcome(NamedTuple):
    """What a run has moved, its counters and losses, and what it said."""

    moves: dict[str, torch.Tensor]  # of weights, of statistics
    counters: list[int]
    losses: list[float]
    said: list[str]

    def off(self, other):
        """How far from another, as a share of what that one has moved."""
        return {
            name: float((self.moves[name] - moves).norm() / moves.norm().clamp(min=1e-6))
            for name, moves in other.moves.items()
        }


def outcome(scenes, graphs, **keys):
    usual = {"augment__crop": "[32, 32]", "training__lr": 1e-4, "training__head_lr": 1e-3}
    # not left to the backbone: MobileNetV2 has one layout with graphs and another without
    keys = usual | {"augment__scale": "[0.5, 1.5]", "machine__channels_last": "true"} | keys
    keys |= {"machine__device": "cuda", "machine__workers": 0, "machine__cuda_graphs": graphs}
    keys |= {"augment__fill": "mirror", "training__ema": 0.9, "training__batch_size": 4}
    more, said, start = keys.pop("more", {}), [], {}
    begin = SegmentationModule.on_train_start

    def keep(self):
        begin(self)
        start.update({name: one.cpu().clone() for name, one in self.model.state_dict().items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentationModule, "on_train_start", keep)
        run = quick.settings(scenes, training__epochs=2, **keys)
        result = train(run, None, quiet=True, log=said.append, **more)
    weights = dict(result.model.named_parameters())
    moves, counters = {"weights": [], "statistics": []}, []
    for name, value in result.model.state_dict().items():
        if value.is_floating_point():
            kind = "weights" if name in weights else "statistics"
            moves[kind].append((value.cpu() - start[name]).flatten().double())
        else:
            counters.append(int(value))
    whole = {kind: torch.cat(parts) for kind, parts in moves.items()}
    return Outcome(whole, counters, [row["loss"] for row in result.rows], said)


def assert_alike(found, plain, again):
    """again: a control, the same without graphs; where it is far off itself, nothing is told."""
    assert found.counters == plain.counters == again.counters
    noise, off = again.off(plain), found.off(plain)
    assert all(one <= CALM for one in noise.values()), f"without graphs, twice: {noise}"
    for name, allowed in noise.items():
        assert off[name] <= CALM + 4 * allowed, f"with graphs {off}, without, twice: {noise}"
    assert found.losses == pytest.approx(plain.losses, rel=CALM)


@pytest.mark.parametrize("case", CASES)
def test_the_same_weights(scenes, replays, case):
    """Two epochs of 4 steps: 3 full batches that are replayed, and a smaller one that is not."""
    plain, again = (outcome(scenes, "false", **CASES[case]) for _ in range(2))
    assert not replays
    assert not any("CUDA graphs" in line for line in plain.said)
    found = outcome(scenes, "true", **CASES[case])
    assert any(line.endswith("CUDA graphs") for line in found.said), found.said
    assert not any("no CUDA graphs" in line for line in found.said), found.said
    assert len(replays) == 2 * 2 * 3
    assert_alike(found, plain, again)


@pytest.mark.parametrize("case", ["dropout and sca", "learning norms and an auxiliary loss"])
def test_a_recording_that_leaves_a_trace_is_seen(scenes, monkeypatch, case):
    """What the tests above would say if it did: steps before a recording move statistics."""
    monkeypatch.setattr(graphs, "_no_trace", lambda network: nullcontext())
    plain, again, found = (
        outcome(scenes, one, **CASES[case]) for one in ("false", "false", "true")
    )
    with pytest.raises(AssertionError):
        assert_alike(found, plain, again)
    off = found.off(plain)
    assert off["statistics"] > 5 * CALM, off


def test_a_batch_that_is_skipped(scenes, replays):
    """The loss is known before any weight moves, and statistics are put back."""

    def poison(sample, random):
        if sample.name == "scene20":
            sample.image = np.full(sample.image.shape, np.nan, np.float32)
        sample.image = sample.image.astype(np.float32) / 255
        return sample

    chain = {"transforms": [poison, RandomCrop(64, 64, mirrors=True)]}
    keys = LIGHT | {"training__on_nan": "skip:9", "training__calibrate": "false", "more": chain}
    plain, again, found = (outcome(scenes, one, **keys) for one in ("false", "false", "true"))
    assert replays
    skips = [[line for line in one.said if "skipped" in line] for one in (plain, found)]
    assert skips[0] == skips[1] != []
    assert_alike(found, plain, again)


def test_padded_batches_are_computed_as_they_are(scenes, replays):
    keys = {"augment__crop": "[96, 96]", "augment__scale": "[0.5, 1]", "augment__fill": "mask"}
    run = {"machine__device": "cuda", "machine__cuda_graphs": "true", "training__epochs": 2} | keys
    said = []
    train(quick.settings(scenes, **run), None, quiet=True, log=said.append)
    assert sum("no CUDA graphs for padded batches" in line for line in said) == 1
    assert not replays


class Net(nn.Module):
    """A convolution, a norm, dropout, and something that may not be recorded."""

    def __init__(self, trouble=lambda x: None):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.trouble = trouble
        self.cuda()

    def loss(self, images, labels):
        x = F.dropout(self.norm(self.layer(images.float() / 255)))
        self.trouble(x)
        return x.square().mean() * (labels != 255).float().mean()


def replace_buffer(net):
    return lambda x: setattr(net.norm, "running_mean", net.norm.running_mean + 0)


TROUBLES = {
    "waits for the GPU": (lambda x: x.detach().sum().item(), "synchroniz"),
    "fails while it is recorded": (lambda x: torch.cuda.synchronize(), ""),
    "holds too much memory": (lambda x: None, "GiB, and less is left"),
    "draws on the host": (lambda x: random.random(), "random numbers on the host"),
    "draws on the host, by torch": (lambda x: torch.rand(()), "random numbers on the host"),
    "draws on the host, by numpy": (lambda x: np.random.random(), "random numbers on the host"),
}


def batch(seed):
    torch.manual_seed(seed)
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, device="cuda")
    return images, torch.randint(0, 9, (2, 16, 16), dtype=torch.uint8, device="cuda")


def assert_steps_are_alike(found, expected, seeds=range(3)):
    """Losses, and the numbers drawn after them."""
    for seed in seeds:
        losses, drawn = [], []
        for compute in (found, expected):
            losses.append(compute(*batch(seed)))
            losses[-1].backward()
            drawn.append(torch.rand(4, device="cuda"))
        torch.testing.assert_close(*losses)
        assert torch.equal(*drawn)


def active_bytes():
    return torch.cuda.memory_stats()["active_bytes.all.current"]


def assert_memory_comes_back():
    """What another stream has used is free again after it; not while anything is recorded."""
    stream, before = torch.cuda.Stream(), active_bytes()
    block = torch.empty(1 << 22, device="cuda")
    block.record_stream(stream)
    del block
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # the allocator looks then
    assert active_bytes() <= before


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_cannot_be_recorded_runs_as_it_is(trouble):
    """One line says why; statistics, random numbers, memory and later recordings are as without."""
    cause, words = TROUBLES[trouble]
    said, net, plain = [], Net(cause), Net()
    graphed = GraphedLoss(net.loss, net, batch=2, size=(16, 16), notify=said.append)
    stream = torch.cuda.current_stream()
    with pytest.MonkeyPatch.context() as patch:
        if trouble == "holds too much memory":
            patch.setattr(torch.cuda, "mem_get_info", lambda: (0, 1))
        assert_steps_are_alike(graphed, plain.loss)
    torch.testing.assert_close(net.layer.weight.grad, plain.layer.weight.grad)
    torch.testing.assert_close(net.state_dict(), plain.state_dict())
    [line] = said
    assert line.startswith("no CUDA graphs: ")
    assert words in line
    assert torch.cuda.current_stream() == stream
    assert_memory_comes_back()
    again, plain = Net(), Net()
    graphed = GraphedLoss(again.loss, again, batch=2, size=(16, 16), notify=said.append)
    assert_steps_are_alike(graphed, plain.loss)
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
