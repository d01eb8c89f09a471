"""How much memory a stretch of work took at its peak."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class MemoryPeak:
    """Within `with`, the largest memory in use: of the GPU that is worked on, else of the process.

    `mebibytes` is what came on top of what was in use before; None where nobody knows.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.on_gpu = device == "cuda"
        self.mebibytes: float | None = None

    def __enter__(self) -> MemoryPeak:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self._before: float | None = torch.cuda.memory_allocated() / 2**20
            return self
        try:
            CLEAR.write_text("5")  # Linux: forget the peak so far
            self._before = _status("VmRSS")
        except OSError:
            self._before = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is None:
            return
        peak = torch.cuda.max_memory_allocated() / 2**20 if self.on_gpu else _status("VmHWM")
        self.mebibytes = max(0.0, peak - self._before)


def _status(name: str) -> float:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"{STATUS} has no {name}")
