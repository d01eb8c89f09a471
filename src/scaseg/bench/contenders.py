"""What is compared: the operator on tensors, the block on a map, a step of the paper's network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.bench.measure import Contender, Work
from scaseg.comparison.jobs import parse_variant
from scaseg.models.build import create_model
from scaseg.nn.build import build_context
from scaseg.nn.contexts.baselines import AverageContext
from scaseg.nn.cost import count_cost
from scaseg.nn.selective_context import SelectiveContext
from scaseg.ops.dispatch import selective_context
from scaseg.ops.kernels.support import unsupported
from scaseg.ops.reference import activate, pair_scores, weighted_mean
from scaseg.registry import CONTEXTS
from scaseg.system import autocast

REFERENCE_UP_TO = 1024  # the literal form holds n x n x 2K numbers
BOUND = 5.0  # of the scores, where kernels need one
CLASSES = 59


@dataclass
class Setting:
    """What all contenders share."""

    batch: int
    channels: int
    hidden: int
    head: str
    precision: str
    compiled: bool
    device: torch.device
    contexts: Sequence[str] = ()  # empty: all

    def normal(self, *shape: int) -> Tensor:
        """Random numbers, the same on every device."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(*shape, generator=generator).to(self.device)


def operators(neurons: int, setting: Setting) -> Iterator[Contender]:
    """The context of n neurons from values and scores."""
    channels, hidden = setting.channels, setting.hidden
    values = setting.normal(setting.batch, neurons, channels)
    keys = setting.normal(setting.batch, neurons, channels + 2)[..., 2:].contiguous()
    scores = [keys[..., 0], keys[..., 1]]

    def contender(name: str, compute: Callable[..., Tensor], *inputs: Tensor) -> Contender:
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        grad = torch.randn_like(inputs[0])

        def forward() -> Tensor:
            return compute(*leaves)

        return Contender(name, forward, lambda: torch.autograd.grad(forward(), leaves, grad))

    if neurons <= REFERENCE_UP_TO:
        features = setting.normal(setting.batch, neurons, hidden)
        weight = setting.normal(1, 2 * hidden) / hidden
        yield contender(f"reference (K={hidden})", _reference, values, features, weight)
    for backend in ("dense", "linear"):
        compute = _selective(backend)
        yield contender(backend, compute, values, *scores)
    device = setting.device.type
    if device == "cuda" and unsupported(device, values.dtype, "sigmoid", BOUND, 1) is None:
        bounded = [score.clamp(-BOUND, BOUND) for score in scores]
        yield contender("triton", _selective("triton", score_bound=BOUND), values, *bounded)
    yield contender("attention (SDPA)", _attention, values, keys, values)
    kernels = [setting.normal(channels, channels) / channels**0.5 for _ in range(2)]
    yield contender("two 1x1 convolutions", _convolutions, values, *kernels)


def map_size(neurons: int) -> tuple[int, int]:
    """The height and width of a map of n neurons, as square as n allows."""
    height = next(side for side in range(math.isqrt(neurons), 0, -1) if neurons % side == 0)
    return height, neurons // height


def on_map(neurons: int, setting: Setting) -> Callable[[str, nn.Module], Contender]:
    """What makes a contender of a block: both passes over one map of n neurons."""
    x = setting.normal(setting.batch, setting.channels, *map_size(neurons))
    with autocast(setting.device.type, setting.precision):
        if torch.is_autocast_enabled(setting.device.type):  # as a convolution before it gives them
            x = x.to(torch.get_autocast_dtype(setting.device.type))
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()

    def contender(name: str, block: nn.Module) -> Contender:
        block.to(setting.device)
        leaves = [x, *block.parameters()]
        grad = torch.randn_like(x)

        def forward() -> Tensor:
            with autocast(setting.device.type, setting.precision):
                return block(x)

        def both() -> None:
            out = forward()
            torch.autograd.grad(out, leaves, grad.to(out.dtype))

        return Contender(name, forward, both)

    return contender


def contexts(neurons: int, setting: Setting) -> Iterator[Contender]:
    """Every context of the registry, or those that were asked for, on a map of n neurons."""
    contender = on_map(neurons, setting)
    for name in setting.contexts or CONTEXTS:
        context, own = parse_variant(name)
        options = {"hidden": setting.hidden, **own}
        block = build_context(context, setting.channels, classes=CLASSES, options=options)
        made = contender(name, block)
        # known without computing it: a process on a CPU would be killed, a GPU refuses
        if getattr(block, "order", "") == "n^2" and setting.device.type == "cpu":
            size = map_size(neurons)
            _, needed = count_cost(context, setting.channels, *size, classes=CLASSES, options=own)
            made.needs = setting.batch * needed
        yield made


def blocks(neurons: int, setting: Setting) -> Iterator[Contender]:
    """A context block on a map of n neurons."""
    channels, hidden = setting.channels, setting.hidden
    contender = on_map(neurons, setting)

    def sca(activation: str) -> Callable[[], nn.Module]:
        return lambda: SelectiveContext(channels, hidden=hidden, activation=activation)

    made: dict[str, Callable[[], nn.Module]] = {
        "sca": sca("sigmoid"),
        **{f"sca, {name}": sca(name) for name in ("exp", "relu", "identity")},
        "average": lambda: AverageContext(channels),
        "non-local (SDPA)": lambda: NonLocal(channels, max(1, channels // 2)),
        "non-local, 4 heads": lambda: NonLocal(channels, channels, heads=4),
        "its 1x1 convolutions": lambda: Convolutions(channels, hidden),
    }
    on_gpu = setting.device.type == "cuda"
    for name, make in made.items():
        eager = contender(name, make())
        yield eager
        if setting.compiled and name in ("sca", "non-local (SDPA)"):
            if on_gpu:
                yield _recorded(eager)
            torch.compiler.reset()
            mode = "reduce-overhead" if on_gpu else "default"
            compiled = torch.compile(make(), dynamic=False, mode=mode)
            assert isinstance(compiled, nn.Module)
            yield contender(f"{name}, compiled", compiled)


def _recorded(eager: Contender) -> Contender:
    """The same as CUDA graphs, one of each pass: what the GPU takes, without the host."""

    def record(work: Work) -> Work:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # what is made at first calls
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    with torch.no_grad():
        forward = record(eager.forward)
    return Contender(f"{eager.name}, graph", forward, record(eager.both))


def steps(side: int, setting: Setting) -> Iterator[Contender]:
    """A training step of the paper's network on square images: SGD included."""
    images = setting.normal(setting.batch, 3, side, side)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (setting.batch, side, side), device=setting.device)

    def contender(context: str) -> Contender:
        model = create_model("vgg16", context, setting.head, classes=CLASSES)
        model = model.to(setting.device).train()
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        run = torch.compile(model) if setting.compiled else model
        fused = setting.device.type == "cuda"
        optimizer = torch.optim.SGD(
            model.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4, fused=fused
        )

        def forward() -> Tensor:
            with autocast(setting.device.type, setting.precision):
                return run(images)

        def step() -> None:
            loss = F.cross_entropy(forward().float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return Contender(context, forward, step)

    for context in ("none", "average", "sca"):
        yield contender(context)


class NonLocal(nn.Module):
    """The non-local block of embedded Gaussians: PyTorch's attention over `width` channels."""

    def __init__(self, channels: int, width: int, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads if width % heads == 0 else 1
        self.query, self.key, self.value = (nn.Conv2d(channels, width, 1) for _ in range(3))
        self.out = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.query(x), self.key(x), self.value(x))
        # (B, heads, n, width / heads)
        rows = [
            part.flatten(2).transpose(1, 2).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in parts
        ]
        mixed = F.scaled_dot_product_attention(*rows).transpose(1, 2).flatten(2).transpose(1, 2)
        return x + self.out(mixed.unflatten(2, x.shape[-2:]))


class Convolutions(nn.Module):
    """The 1x1 convolutions of a selective context block, and nothing else."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.identity, self.context = (
            nn.Conv2d(channels, channels, 1, bias=False) for _ in range(2)
        )
        widths = (channels, hidden, hidden, hidden)
        self.features = nn.ModuleList(
            nn.Conv2d(width, hidden, 1) for width in widths[: len(widths) - 1]
        )

    def forward(self, x: Tensor) -> Tensor:
        features = x
        for layer in self.features:
            features = torch.relu(layer(features))
        # what is not used must not be left out
        return self.identity(x) + self.context(x) + features.mean(1, keepdim=True)


def _selective(backend: str, score_bound: float | None = None) -> Callable[..., Tensor]:
    return lambda values, s, t: selective_context(
        values, s, t, backend=backend, score_bound=score_bound
    )


def _reference(values: Tensor, features: Tensor, weight: Tensor) -> Tensor:
    scores = pair_scores(features, features, weight)
    coefficients = activate(scores, "sigmoid", weight.new_ones(1))
    others = ~torch.eye(values.shape[1], dtype=torch.bool, device=values.device)
    return weighted_mean(values, coefficients, others.unsqueeze(0))


def _attention(query: Tensor, key: Tensor, values: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(
        query.unsqueeze(1), key.unsqueeze(1), values.unsqueeze(1)
    ).squeeze(1)


def _convolutions(values: Tensor, identity: Tensor, context: Tensor) -> Tensor:
    feature_map = values.transpose(1, 2).unsqueeze(-1)  # (B, M, n, 1)
    kernels = (identity[:, :, None, None], context[:, :, None, None])
    out = F.conv2d(feature_map, kernels[0]) + F.conv2d(feature_map, kernels[1])
    return out.squeeze(-1).transpose(1, 2)
