"""The machine: cores, device, precision, free and peak memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from scaseg.errors import UserError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["32", "bf16", "16"]  # of activations; weights stay float32
DEVICES: tuple[str, ...] = get_args(Device)
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # docker run --cpus 2: "200000 100000"
ChosenPrecision = Literal["32", "bf16", "16", "auto"]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of glibc's mallopt
PRECISIONS = {"32": "float32", "bf16": "bfloat16", "16": "float16"}  # the names of torch's dtypes


def usable_cores() -> int:
    """How many cores this process may use: containers and clusters give fewer than there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(OSError, ValueError):  # no such file; "max": no quota
        quota, period = CPU_QUOTA.read_text().split()
        return max(1, min(cores or 1, ceil(int(quota) / int(period))))
    return cores or 1


def choose_device(name: str = "auto") -> str:
    """Return the device to compute on; UserError where it is not there."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    there = {"cuda": cuda, "mps": mps, "cpu": True}
    if name == "auto":
        return next(device for device in there if there[device])
    if name not in there:
        raise UserError.choice("--device", name, DEVICES)
    if not there[name]:
        raise UserError("--device", f"{name} is not available here", "use cpu or auto")
    return name


def choose_precision(name: ChosenPrecision, device: str) -> Precision:
    """Return a precision that was asked for; auto: bf16 where a GPU computes in it, else 32."""
    if name != "auto":
        return name
    import torch

    # 16 needs a scaled loss, and a CPU without instructions for bf16 is slower with it
    return "bf16" if device == "cuda" and torch.cuda.is_bf16_supported(False) else "32"


def autocast(device: str, precision: str = "32") -> AbstractContextManager[Any]:
    """Compute activations in a precision, within `with`; weights stay float32."""
    import torch

    if precision not in PRECISIONS:
        raise UserError.choice("precision", precision, PRECISIONS)
    if precision == "32":
        return nullcontext()
    return torch.autocast(device, dtype=getattr(torch, PRECISIONS[precision]))


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Multiply float32 in "highest" or "high" (TF32 on a GPU), within `with` and not after it."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def kept_memory(device: str) -> Iterator[None]:
    """Let glibc keep the memory that tensors on a CPU give back, within `with`.

    Left to itself it maps each large tensor anew, and the system clears it page by page: a third of
    the CPU time of a training step there.
    """
    import ctypes
    import platform

    is_set = any(name.startswith("MALLOC_") for name in os.environ)
    if device != "cpu" or is_set or platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:  # what it comes to by itself in a process with large tensors
        libc.mallopt(M_MMAP_MAX, 1 << 16)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 26)
        libc.malloc_trim(0)


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream in which a GPU does things beside what it computes; None: no GPU.

    `torch.cuda.stream` of it, and then `join_stream`.
    """
    import torch

    return torch.cuda.Stream(device) if device.type == "cuda" else None


def join_stream(stream: torch.cuda.Stream | None, *tensors: torch.Tensor) -> None:
    """Let the current stream wait for another one, and have the tensors that were made there."""
    if stream is None:
        return
    import torch

    current = torch.cuda.current_stream(stream.device)
    current.wait_stream(stream)
    for tensor in tensors:
        tensor.record_stream(current)


def available_memory(device: torch.device) -> int | None:
    """Return the bytes that can still be allocated on a device; None where that is not known."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    with suppress(OSError):
        return _kibibytes("/proc/meminfo", "MemAvailable") * 1024
    with suppress(OSError, ValueError, AttributeError):  # not Linux: all that there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def in_words(size: int) -> str:
    """Write a number of bytes for people.

    >>> in_words(13_200_000_000)
    '12.3 GiB'
    >>> in_words(1_048_000)
    '1023 KiB'
    """
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.{3 if amount < 999.5 else 4}g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


class MemoryPeak:
    """Within `with`, the largest memory in use: of the GPU that is worked on, else of the process.

    `mebibytes` is what came on top of what was in use before; None where that is not known.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.on_gpu = device == "cuda"
        self.mebibytes: float | None = None

    def __enter__(self) -> MemoryPeak:
        self._before: float | None = None
        if self.on_gpu:
            import torch

            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() / 2**20
            return self
        with suppress(OSError):  # Linux only
            Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
            self._before = _kibibytes("/proc/self/status", "VmRSS") / 1024
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            return
        if self.on_gpu:
            import torch

            peak = torch.cuda.max_memory_allocated() / 2**20
        else:
            peak = _kibibytes("/proc/self/status", "VmHWM") / 1024
        self.mebibytes = max(0.0, peak - self._before)


def _kibibytes(path: str, name: str) -> int:
    """Read one line of a file of Linux: `MemAvailable:   1234 kB`."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"{path} has no {name}")
