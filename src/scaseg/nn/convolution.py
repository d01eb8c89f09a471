"""Wide dilated convolutions that train fast."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.ops.convolution import TapConvolution, as_products


class WideConv2d(nn.Conv2d):
    """nn.Conv2d of stride 1 and one group; on CUDA it trains by matrix products, not by cuDNN.

    Weights, results and what is saved are nn.Conv2d's. In low precision, with Triton, both passes
    are products. Else the gradient of the weight is, where cuDNN may not search
    (torch.backends.cudnn.benchmark): it then takes 69 ms instead of 4 (7 x 7, 512 to 4096 channels,
    3 maps of 56 x 56; docs/speed.md). Kernels of 3 x 3 need none of it.
    """

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.kernel_size
        trains = self.weight.requires_grad and torch.is_grad_enabled()
        if height * width < 25 or not trains or not x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x)
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        if torch.backends.cudnn.benchmark and not as_products(x):
            return super().forward(x)
        padding, dilation = self.padding, self.dilation
        assert not isinstance(padding, str)
        with torch.autocast("cuda", enabled=False):
            return TapConvolution.apply(x, weight, bias, padding, dilation)
