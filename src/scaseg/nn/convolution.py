"""Convolutions and pools that train fast on a GPU, in low precision, or predict fast on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from scaseg.ops.convolution import TapConvolution, as_products
from scaseg.ops.pooling import MaxPool
from scaseg.ops.products import pointwise
from scaseg.ops.rectified import RectifiedConvolution


class WideConv2d(nn.Conv2d):
    """nn.Conv2d of stride 1 and one group; on CUDA by matrix products where cuDNN is slower.

    Weights, results and what is saved are nn.Conv2d's. In low precision, with Triton, both passes
    are products. Else the gradient of the weight is, where cuDNN may not search
    (torch.backends.cudnn.benchmark): it then takes 69 ms instead of 4 (7 x 7, 512 to 4096 channels,
    3 maps of 56 x 56; docs/speed.md). Kernels of 3 x 3 need none of it.
    """

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.kernel_size
        if height * width < 25 or not x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x)
        x, weight, bias = lowered(self, x)
        trains = self.weight.requires_grad and torch.is_grad_enabled()
        if not as_products(x) and (torch.backends.cudnn.benchmark or not trains):
            return super().forward(x)
        padding, dilation = self.padding, self.dilation
        assert not isinstance(padding, str)
        with torch.autocast("cuda", enabled=False):
            return TapConvolution.apply(x, weight, bias, padding, dilation)


class PointwiseConv2d(nn.Conv2d):
    """nn.Conv2d of 1x1 kernels and stride 1 as a CPU predicts fastest: see `pointwise`."""

    def forward(self, x: Tensor) -> Tensor:
        return pointwise(x, self.weight, self.bias)

    @classmethod
    def able(cls, layer: nn.Module) -> bool:
        """Whether it can take a layer's place."""
        plain = type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding == (0, 0)
        return plain and layer.kernel_size == layer.stride == (1, 1) and not watched(layer)

    @classmethod
    def of(cls, layer: nn.Conv2d) -> PointwiseConv2d:
        """Take a layer's place, with its very weights."""
        shape = layer.in_channels, layer.out_channels, 1
        found = cls(*shape, bias=layer.bias is not None, device="meta")
        found.weight, found.bias = layer.weight, layer.bias
        return found.train(layer.training)


def rectified(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """relu(layer(x)), in one step where that is faster: see `_by_kernels`."""
    low, weight, bias = lowered(layer, x)
    padding = layer.padding
    plain = layer.stride == (1, 1) and layer.groups == 1 and bias is not None
    if not plain or isinstance(padding, str) or not _by_kernels(layer, low):
        found = layer(x)
        return found.relu() if watched(layer) else found.relu_()
    with torch.autocast("cuda", enabled=False):
        return RectifiedConvolution.apply(low, weight, bias, padding, layer.dilation)


def halved(layer: nn.MaxPool2d, x: Tensor) -> Tensor:
    """layer(x), a 2 x 2 max pool, without indices where that is faster: see `_by_kernels`."""
    return MaxPool.apply(x) if _by_kernels(layer, x) else layer(x)


def _by_kernels(layer: nn.Module, x: Tensor) -> bool:
    """In low precision, channels last, on a GPU with Triton; not what somebody watches."""
    if not x.is_cuda or torch.compiler.is_compiling():
        return False
    if watched(layer):
        return False
    return x.is_contiguous(memory_format=torch.channels_last) and as_products(x)


def watched(layer: nn.Module) -> bool:
    """Whether somebody has hooks on it, of any kind: it is then called, and its output kept."""
    own = layer._forward_hooks or layer._forward_pre_hooks
    own = own or layer._backward_hooks or layer._backward_pre_hooks
    return bool(own or _has_any_global_hook())


def lowered(layer: nn.Conv2d, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """A map and a layer's weight and bias as autocast would have them."""
    weight, bias = layer.weight, layer.bias
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    return x, weight, bias
