"""Time selective context against the alternatives, side by side in one run."""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.errors import UserError
from scaseg.ops.dispatch import selective_context
from scaseg.ops.reference import activate, pair_scores, weighted_mean
from scaseg.system import MemoryPeak, available_memory, choose_device, in_words

REFERENCE_UP_TO = 1024  # the literal form holds n x n x 2K numbers

Contender = Callable[..., Tensor]  # takes leaf tensors, returns (1, n, M)
HEAD = (
    f"{'n':>6}  {'context':<20} {'forward':>10} {'fwd + bwd':>10} {'memory':>8}"
    f"  {'linear is faster':>16}"
)


@dataclass
class Measurement:
    """One contender at one size: seconds, and bytes beyond what its inputs hold."""

    contender: str
    neurons: int
    forward: float
    both: float
    forward_memory: int | None
    both_memory: int | None


def run(
    sizes: Sequence[int], *, channels: int, hidden: int, repeats: int, device: str, as_json: bool
) -> None:
    """Measure every contender at every size and print a table, or JSON."""
    place = torch.device(choose_device(device))
    # inputs and outputs, forward and backward: it cannot be less
    needed, free = 16 * max(sizes) * channels, available_memory(place)
    if free is not None and needed > free:
        problem = f"{max(sizes)} with --channels {channels} take more than {in_words(needed)}"
        raise UserError("--sizes", f"{problem}, but {in_words(free)} are free", "give less")
    cpu = f"{platform.machine()}, {torch.get_num_threads()} threads"
    machine = torch.cuda.get_device_name(place) if place.type == "cuda" else cpu
    machine = f"{machine}, torch {torch.__version__}"
    measured = (
        [_measure(*one, repeats, place) for one in _contenders(neurons, channels, hidden, place)]
        for neurons in sizes
    )
    if as_json:
        plain = [asdict(row) for rows in measured for row in rows]
        print(json.dumps({"machine": machine, "channels": channels, "rows": plain}))
        return
    print(machine)
    print(f"M = {channels}, float32, one image, median of {repeats}; memory of both passes\n")
    print(HEAD)
    for rows in measured:
        _print_rows(rows)


def _contenders(
    neurons: int, channels: int, hidden: int, device: torch.device
) -> Iterator[tuple[str, Contender, list[Tensor]]]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    values = normal(1, neurons, channels)
    scores = [normal(1, neurons), normal(1, neurons)]
    if neurons <= REFERENCE_UP_TO:
        features, weight = normal(1, neurons, hidden), normal(1, 2 * hidden) / hidden
        yield f"reference (K={hidden})", _reference, [values, features, weight]
    yield "dense", lambda *args: selective_context(*args, backend="dense"), [values, *scores]
    yield "linear", lambda *args: selective_context(*args, backend="linear"), [values, *scores]
    yield "attention (SDPA)", _attention, [values, normal(1, neurons, channels), values.clone()]
    kernels = [normal(channels, channels) / channels**0.5 for _ in range(2)]
    yield "two 1x1 convolutions", _convolutions, [values, *kernels]


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
    feature_map = values.transpose(1, 2).unsqueeze(-1)  # (1, M, n, 1)
    kernels = (identity[:, :, None, None], context[:, :, None, None])
    out = F.conv2d(feature_map, kernels[0]) + F.conv2d(feature_map, kernels[1])
    return out.squeeze(-1).transpose(1, 2)


def _measure(
    name: str, contender: Contender, inputs: list[Tensor], repeats: int, device: torch.device
) -> Measurement:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    grad = torch.randn_like(inputs[0])

    def forward() -> None:
        with torch.no_grad():
            contender(*inputs)

    def both() -> None:
        torch.autograd.grad(contender(*leaves), leaves, grad)

    memory = _peak(forward, device), _peak(both, device)  # also a warm-up
    times = seconds(forward, repeats, device), seconds(both, repeats, device)
    return Measurement(name, inputs[0].shape[1], *times, *memory)


def seconds(work: Callable[[], None], repeats: int, device: torch.device) -> float:
    """Return the median time of one call; short calls are repeated until they can be timed."""
    calls, elapsed = 1, _elapsed(work, 1, device)
    while elapsed < 0.02:
        calls *= 2
        elapsed = _elapsed(work, calls, device)
    return statistics.median(_elapsed(work, calls, device) for _ in range(repeats)) / calls


def _elapsed(work: Callable[[], None], calls: int, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return time.perf_counter() - start


def _peak(work: Callable[[], None], device: torch.device) -> int | None:
    """Return how many bytes more than before were in use at the peak; None if unknown."""
    gc.collect()
    work()  # libraries keep scratch space from their first call: it is theirs, not ours
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
    with MemoryPeak(device.type) as peak:
        work()
    return None if peak.mebibytes is None else round(peak.mebibytes * 2**20)


def _print_rows(rows: list[Measurement]) -> None:
    linear = next(row for row in rows if row.contender == "linear")
    for row in rows:
        memory = "n/a" if row.both_memory is None else in_words(row.both_memory)
        faster = ""
        if row is not linear:
            faster = f"{row.forward / linear.forward:6.1f} x {row.both / linear.both:5.1f} x"
        times = (f"{1000 * one:.{1 if one > 0.1 else 2}f} ms" for one in (row.forward, row.both))
        cells = " ".join(f"{time:>10}" for time in times) + f" {memory:>8}  {faster:>16}"
        print(f"{row.neurons:>6}  {row.contender:<20} {cells}".rstrip())
    print(flush=True)
