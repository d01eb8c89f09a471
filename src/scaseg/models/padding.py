"""Padding that stays what it is for a single image: zeros beyond the edge, at every layer.

A padded batch must give what single images give. A convolution pads a single image with zeros;
in a batch the pixels beyond a smaller image, which lie to the right and below, become something
else after the first bias. So they are set back to zero wherever a layer may have filled them, and
batch norms leave them out of their statistics.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def real_pixels(sizes: Tensor, height: int, width: int) -> Tensor:
    """Mark the pixels of each image of a padded batch: sizes (B, 2) -> bool (B, height, width)."""
    rows = torch.arange(height, device=sizes.device) < sizes[:, :1]  # (B, height)
    columns = torch.arange(width, device=sizes.device) < sizes[:, 1:]
    return rows.unsqueeze(2) & columns.unsqueeze(1)


def keep_real(x: Tensor, real: Tensor | None) -> Tensor:
    """Set what is not real to zero: x (B, C, H, W), real (B, H, W)."""
    # not x * real: NaN * 0 is NaN; not masked_fill: it would undo channels_last
    return x if real is None else torch.where(real.unsqueeze(1), x, 0)


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
        out, mean, variance, count = _BatchNorm.apply(x, real, self.weight, self.bias, self.eps)
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
        return out


class _BatchNorm(torch.autograd.Function):
    """Normalize by the real pixels' mean and variance; return these and their number too.

    Its gradient is written out: autograd would keep four maps instead of one, and go through each.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, real: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = x if x.dtype == torch.float64 else x.float()  # a sum wants more than half precision
        share = real.unsqueeze(1).to(wide.dtype)  # (B, 1, H, W)
        count = share.sum().clamp(min=2)
        mean = (wide * share).sum((0, 2, 3)) / count
        centered = (wide - _map(mean)).mul_(share)
        variance = centered.square_().sum((0, 2, 3)) / count
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(x, share, weight, mean, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        factor = scale * weight
        out = (wide * _map(factor)).add_(_map(bias - mean * factor))
        return out.to(x.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, share, weight, mean, scale, count = ctx.saved_tensors
        push = gradients[0].to(mean.dtype)
        normal = (x - _map(mean)).mul_(_map(scale))
        bias_grad, weight_grad = push.sum((0, 2, 3)), (push * normal).sum((0, 2, 3))
        # by way of the statistics, which only real pixels move
        shared = normal.mul_(_map(weight_grad / count)).add_(_map(bias_grad / count)).mul_(share)
        grad = torch.sub(push, shared, out=shared).mul_(_map(scale * weight))
        return grad.to(x.dtype), None, weight_grad.to(weight), bias_grad.to(weight), None


def _map(values: Tensor) -> Tensor:
    """One value a channel, to be broadcast over a map."""
    return values.view(1, -1, 1, 1)


def apply_layers(layers: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply layers one after the other, telling norms what is real of the last map."""
    for layer in layers.children():
        x = layer(x, real) if isinstance(layer, PaddedBatchNorm2d) else layer(x)
    return x
