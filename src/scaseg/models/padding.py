"""Padding that stays what it is for a single image: zeros beyond the edge, at every layer.

A padded batch must give what single images give. A convolution pads a single image with zeros;
in a batch the pixels beyond a smaller image, which lie to the right and below, become something
else after the first bias. So they are set back to zero wherever a layer may have filled them, and
batch norms leave them out of their statistics.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def real_pixels(sizes: Tensor, height: int, width: int) -> Tensor:
    """Mark the pixels of each image of a padded batch: sizes (B, 2) -> bool (B, height, width)."""
    rows = torch.arange(height, device=sizes.device) < sizes[:, :1]  # (B, height)
    columns = torch.arange(width, device=sizes.device) < sizes[:, 1:]
    return rows.unsqueeze(2) & columns.unsqueeze(1)


def keep_real(x: Tensor, real: Tensor | None) -> Tensor:
    """Set what is not real to zero: x (B, C, H, W), real (B, H, W)."""
    return x if real is None else x.masked_fill(~real.unsqueeze(1), 0)  # NaN * 0 is NaN


def pooled(real: Tensor | None) -> Tensor | None:
    """What a 2x2 pool leaves: windows whose last pixel, and so every pixel, is in the image."""
    return None if real is None else real[:, 1::2, 1::2]


def strided(real: Tensor | None) -> Tensor | None:
    """What a 3x3 convolution of stride 2 and padding 1 leaves: windows centred in the image."""
    return None if real is None else real[:, ::2, ::2]


class PaddedBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d that leaves padding out of the statistics while it trains.

    With padding among them, a network would train on other statistics than those that it meets on
    single photographs. Weights, buffers and results without padding are nn.BatchNorm2d's.
    """

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, H, W); real (B, H, W) marks what is not padding, None: all."""
        if real is None or not self.training:
            return super().forward(x)
        wide = x if x.dtype == torch.float64 else x.float()  # a sum wants more than half precision
        share = real.unsqueeze(1).to(wide.dtype)  # (B, 1, H, W)
        count = share.sum().clamp(min=2)
        mean = (wide * share).sum((0, 2, 3)) / count
        centered = (wide - mean.view(1, -1, 1, 1)) * share
        variance = centered.square().sum((0, 2, 3)) / count
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            # momentum None: the mean over all batches, as in nn.BatchNorm2d
            rate = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
            unbiased = variance * count / (count - 1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), rate)
        weight = torch.rsqrt(variance + self.eps) * self.weight
        shift = self.bias - mean * weight
        return (wide * weight.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).to(x.dtype)


def apply_layers(layers: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply layers one after the other, telling norms what is real of the last map."""
    for layer in layers.children():
        x = layer(x, real) if isinstance(layer, PaddedBatchNorm2d) else layer(x)
    return x
