"""Time and memory of a piece of work."""

from __future__ import annotations

import ctypes
import gc
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from scaseg.system import MemoryPeak

Work = Callable[[], object]
LEAST = 1.0  # seconds of a round


@dataclass
class Contender:
    """What is measured: its forward pass alone, and with the backward pass.

    needs: bytes that are known beforehand.
    """

    name: str
    forward: Work
    both: Work
    needs: int = 0


@dataclass
class Measurement:
    """One contender at one size: seconds, and bytes beyond what its inputs hold."""

    contender: str
    size: int
    forward: float
    both: float
    forward_memory: int | None
    both_memory: int | None


def measure(contender: Contender, size: int, repeats: int, device: torch.device) -> Measurement:
    """Measure one contender."""

    def forward() -> None:
        with torch.no_grad():
            contender.forward()

    memory = _peak(forward, device), _peak(contender.both, device)  # also a warm-up
    times = seconds(forward, repeats, device), seconds(contender.both, repeats, device)
    return Measurement(contender.name, size, *times, *memory)


def seconds(work: Work, repeats: int, device: torch.device) -> float:
    """Return the median time of one call; short calls are repeated until they can be timed."""
    calls, elapsed = 1, _elapsed(work, 1, device)
    while elapsed < 0.02:
        calls *= 2
        elapsed = _elapsed(work, calls, device)
    return statistics.median(_elapsed(work, calls, device) for _ in range(repeats)) / calls


def images_per_second(work: Callable[[], int], repeats: int, device: str, warm_up: int) -> float:
    """Return the best of several rounds, of LEAST seconds or one call each.

    work: takes some images through, and returns how many. The best, since a loader's processes
    have their own times, and whatever else a machine does makes a round slower only.
    """
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(warm_up):
        work()
    best = 0.0
    for _ in range(repeats):
        wait()
        start, images = time.perf_counter(), work()
        while time.perf_counter() - start < LEAST:
            images += work()
        wait()
        best = max(best, images / (time.perf_counter() - start))
    return best


def _elapsed(work: Work, calls: int, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return time.perf_counter() - start


def _peak(work: Work, device: torch.device) -> int | None:
    """Return how many bytes more than before were in use at the peak; None if unknown."""
    gc.collect()
    work()  # libraries keep scratch space from their first call: it is theirs, not ours
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
    with MemoryPeak(device.type) as peak:
        work()
    return None if peak.mebibytes is None else round(peak.mebibytes * 2**20)
