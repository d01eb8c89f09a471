"""The block and the operator on a CPU that others use too: CPU time, least of many calls.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/cpu_block.py --threads 2
    python benchmarks/cpu_block.py --threads 1 --sizes 3136

The contenders of `scaseg bench`, one call of each in turn, so that all of a size meet the same
machine. Counted is what all threads work (threads that wait asleep, by OMP_WAIT_POLICY, count
nothing), not what passes until they get a core. With one thread torch 2.13 gives 1x1 convolutions
to MKL, with two to oneDNN: on an AMD processor the first takes twice as long.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from scaseg.bench.contenders import Convolutions, NonLocal, Setting, on_map
from scaseg.nn.selective_context import SelectiveContext
from scaseg.ops.dispatch import selective_context

CHANNELS, HEADS, NEURONS = 256, 4, 8192
# calls of contenders that take seconds, at the largest size
FEW = 2


def main() -> None:
    """Print a table of blocks and one of operators."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3136, 8192, 32768])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"ms of CPU time, least of {options.rounds} calls, {options.threads} threads", flush=True)
    blocks(options.sizes, options.rounds)
    operators(options.rounds)


def blocks(sizes: list[int], rounds: int) -> None:
    """SelectiveContext(256) beside a non-local block and its own five convolutions."""
    cpu = torch.device("cpu")
    setting = Setting(1, CHANNELS, CHANNELS, "", "32", compiled=False, device=cpu)
    made = {
        "sca": SelectiveContext(CHANNELS, hidden=CHANNELS),
        "non-local": NonLocal(CHANNELS, CHANNELS // 2),
        "convolutions": Convolutions(CHANNELS, CHANNELS),
    }
    for neurons in sizes:
        contender = on_map(neurons, setting)
        contenders = {name: contender(name, block) for name, block in made.items()}
        forward = {name: without_gradients(one.forward) for name, one in contenders.items()}
        both = {name: one.both for name, one in contenders.items()}
        few = {"non-local": FEW} if neurons > 16384 else {}
        report(f"n = {neurons}, forward", in_turn(forward, rounds, few), "sca")
        report(f"n = {neurons}, both passes", in_turn(both, rounds, few), "sca")


def operators(rounds: int) -> None:
    """The operator alone beside attention with four heads of 64."""
    values = torch.randn(1, NEURONS, CHANNELS, requires_grad=True)
    scores = [torch.randn(1, NEURONS, requires_grad=True) for _ in range(2)]
    parts = [torch.randn(1, NEURONS, CHANNELS, requires_grad=True) for _ in range(3)]
    grad = torch.randn(1, NEURONS, CHANNELS)

    def ours() -> None:
        context = selective_context(values, *scores, backend="linear")
        torch.autograd.grad(context, [values, *scores], grad)

    def attention() -> None:
        heads = [part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts]
        context = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        torch.autograd.grad(context, parts, grad)

    found = in_turn({"linear": ours, "attention": attention}, rounds, {"attention": FEW + 1})
    report(f"operator, n = {NEURONS}, both passes", found, "linear")


def without_gradients(work: Callable[[], object]) -> Callable[[], None]:
    """The same with no graph kept."""

    def run() -> None:
        with torch.no_grad():
            work()

    return run


def in_turn(
    works: dict[str, Callable[[], object]], rounds: int, few: dict[str, int]
) -> dict[str, float]:
    """Milliseconds of CPU time of one call each, the least of all rounds."""
    least: dict[str, float] = {}
    for work in works.values():
        work()
    for number in range(rounds):
        for name, work in works.items():
            if number < few.get(name, rounds):
                start = time.process_time()
                work()
                taken = 1000 * (time.process_time() - start)
                least[name] = min(taken, least.get(name, taken))
    return least


def report(title: str, least: dict[str, float], best: str) -> None:
    """Print a line: each time, and how many times that of the best it is."""
    cells = [f"{name} {taken:.1f} ({taken / least[best]:.2f} x)" for name, taken in least.items()]
    print(f"{title}: {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
