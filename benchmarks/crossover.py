"""Find the size from which `linear` is faster than `dense`: DENSE_UP_TO in ops/dispatch.py.

python benchmarks/crossover.py
"""

from __future__ import annotations

import torch

from scaseg import selective_context
from scaseg.bench.measure import seconds


def both(backend: str, n: int, channels: int) -> float:
    torch.manual_seed(0)
    leaves = [torch.randn(1, n, channels), torch.randn(1, n), torch.randn(1, n)]
    for leaf in leaves:
        leaf.requires_grad_()
    grad = torch.randn(1, n, channels)

    def work() -> None:
        torch.autograd.grad(selective_context(*leaves, backend=backend), leaves, grad)

    return seconds(work, 7, torch.device("cpu"))


def main() -> None:
    print("forward + backward, sigmoid, ms (dense / linear)")
    for channels in (64, 256, 512):
        for n in (64, 128, 256, 384, 512, 768, 1024):
            dense, linear = (1000 * both(name, n, channels) for name in ("dense", "linear"))
            better = "dense" if dense < linear else "linear"
            print(f"M = {channels:4}  n = {n:5}  {dense:7.2f} / {linear:6.2f}  {better}")


if __name__ == "__main__":
    main()
