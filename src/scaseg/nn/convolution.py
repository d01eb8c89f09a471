"""Wide dilated convolutions that train fast."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.ops.convolution import TapConvolution


class WideConv2d(nn.Conv2d):
    """nn.Conv2d of stride 1 and one group; on CUDA its weight gradient avoids cuDNN's.

    Weights, results and what is saved are nn.Conv2d's.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or not self.weight.requires_grad or not torch.is_grad_enabled():
            return super().forward(x)
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        padding, dilation = self.padding, self.dilation
        assert not isinstance(padding, str)
        with torch.autocast("cuda", enabled=False):
            return TapConvolution.apply(x, weight, bias, padding, dilation)
