"""Batch norm for padded batches: statistics of photographs, not of what pads them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PaddedBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d that leaves padding out of the statistics while it trains.

    With padding among them, a network would train on other statistics than those that it meets on
    single photographs. Weights, buffers and results without padding are nn.BatchNorm2d's.
    """

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalise x (B, C, H, W); real (B, H, W) marks what is not padding, None: everything."""
        if real is None or not self.training:
            return super().forward(x)
        wide = x if x.dtype == torch.float64 else x.float()  # a sum wants more than half precision
        share = real.unsqueeze(1).to(wide.dtype)  # (B, 1, H, W)
        count = share.sum().clamp(min=2)
        mean = (wide * share).sum((0, 2, 3)) / count
        centered = (wide - mean.view(1, -1, 1, 1)) * share
        variance = centered.square().sum((0, 2, 3)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        scale = torch.rsqrt(variance + self.eps)
        weight = scale if self.weight is None else scale * self.weight
        shift = -mean * weight if self.bias is None else self.bias - mean * weight
        return (wide * weight.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        # momentum None: the mean over all batches, as in nn.BatchNorm2d
        rate = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(variance.to(self.running_var.dtype), rate)


def apply_layers(layers: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply layers one after the other, telling norms what is real of the last map."""
    for layer in layers.children():
        x = layer(x, real) if isinstance(layer, PaddedBatchNorm2d) else layer(x)
    return x
