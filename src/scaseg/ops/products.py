"""Matrix products on a CPU, by the kernels that suit the processor."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

# torch 2.13 gives maps of no more numbers to MKL, whatever the convolution
FEW = 20480


@cache
def prefers_convolutions() -> bool:
    """Whether a convolution's kernels are faster at a matrix product than a product's.

    On a CPU torch takes MKL for products, which gives processors that are not Intel's its AVX2
    kernels, and oneDNN for convolutions, which asks what the processor has: 250 instead of 108
    GFLOP/s by one core of an AMD EPYC with AVX512.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkl.is_available():
        return False
    return torch.backends.mkldnn.is_available() and "Intel" not in _processor()


def pointwise(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.conv2d of a 1x1 kernel, by oneDNN however many threads there are.

    With a single thread torch leaves it to MKL, unless the kernel is dilated. One tap has nothing
    to dilate, so that is the same convolution.
    """
    dilation = 2 if x.numel() > FEW and prefers_convolutions() else 1
    return F.conv2d(x, weight, bias, dilation=dilation)


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.mT for left (n, K) and right (M, K): (n, M). Float32, on a CPU, no gradients."""
    if left.numel() <= FEW or len(right) == 0 or not prefers_convolutions():
        return left @ right.mT
    neurons = left.reshape(1, 1, *left.shape).permute(0, 3, 1, 2)  # (1, K, 1, n), channels last
    found = pointwise(neurons, right[:, :, None, None])
    return found.permute(0, 2, 3, 1).reshape(len(left), len(right))


def _processor() -> str:
    capabilities = getattr(torch.cpu, "get_capabilities", None)  # torch 2.11 may lack it
    return "" if capabilities is None else str(capabilities().get("cpu_name", ""))
