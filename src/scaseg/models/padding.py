"""Padding that stays what it is for a single image: zeros beyond the edge, at every layer.

A padded batch must give what single images give. A convolution pads a single image with zeros;
in a batch the pixels beyond a smaller image, which lie to the right and below, become something
else after the first bias. So they are set back to zero wherever a layer may have filled them, and
batch norms leave them out of their statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
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
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            # momentum None: the mean over all batches, as in nn.BatchNorm2d
            rate = self.momentum
            if rate is None:
                assert self.num_batches_tracked is not None
                rate = 1 / int(self.num_batches_tracked)
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


class AddsUp(nn.Module):
    """A part of a network that adds maps; for predictions in the memory of one of them.

    Fresh memory for a large map has to be cleared by the system: on a CPU that takes as long again
    as the sum, and longer. overwrites: nobody else reads what its layers give.
    """

    overwrites = False

    def add_up(self, x: Tensor, other: Tensor) -> Tensor:
        """x + other, both (B, C, H, W); x is a map of its own, which may be overwritten."""
        return x.add_(other) if self.overwrites and x.dtype == other.dtype else x + other


def apply_layers(layers: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Apply layers one after the other, telling norms what is real of the last map."""
    for layer in layers.children():
        x = layer(x, real) if isinstance(layer, PaddedBatchNorm2d) else layer(x)
    return x


def enlarge(
    scores: Tensor, size: Sequence[int], sizes: Tensor | None = None, real: Tensor | None = None
) -> Tensor:
    """Resize the scores of neurons (B, classes, h, w) to images of a size, edges to edges.

    In a padded batch, `sizes` (B, 2) are those of the images and `real` (B, h, w) are their
    neurons: each image is resized by itself, and the scores of padding are 0.
    """
    height, width = size
    if sizes is None:
        if scores.is_cuda and scores.requires_grad:
            return _Enlarge.apply(scores, height, width)
        return F.interpolate(scores, (height, width), mode="bilinear", align_corners=False)
    assert real is not None
    exact = scores if scores.dtype == torch.float64 else scores.float()  # 16 bits place no pixel
    columns = _places(width, sizes[:, 1], real.any(1), exact.dtype).unsqueeze(1)
    rows = _places(height, sizes[:, 0], real.any(2), exact.dtype).unsqueeze(2)
    grid = torch.stack(torch.broadcast_tensors(columns, rows), 3)  # (B, H, W, 2)
    return F.grid_sample(exact, grid, mode="bilinear", align_corners=False).to(scores.dtype)


class _Enlarge(torch.autograd.Function):
    """F.interpolate, whose gradient on a GPU adds every pixel to four neurons, one by one.

    Resizing is linear along each axis, so the gradient is two matrix products: 0.3 instead of 47 ms
    (56 classes, 24 x 24 to 384 x 384, 8 images, bfloat16, H200), and the same at every call.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, height: int, width: int) -> Tensor:
        ctx.size = scores.shape[-2:]
        scores = scores.contiguous()  # a loss would turn the large map round: 59 classes, 1.9 ms
        return F.interpolate(scores, (height, width), mode="bilinear", align_corners=False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradients[0]
        down, across = (
            _resizing(before, after, gradient)
            for before, after in zip(ctx.size, gradient.shape[-2:], strict=True)
        )
        return down.mT @ (gradient @ across), None, None


def _resizing(before: int, after: int, like: Tensor) -> Tensor:
    """The weights (after, before) by which F.interpolate resizes an axis."""
    each = torch.eye(before, dtype=torch.float64, device=like.device).unsqueeze(1)
    weights = F.interpolate(each, after, mode="linear", align_corners=False)
    return weights.squeeze(1).mT.to(like.dtype)


def _places(length: int, own: Tensor, real: Tensor, dtype: torch.dtype) -> Tensor:
    """Where the pixels of each image lie among its neurons, along one axis: (B, length).

    own (B,): the length of each image; real (B, neurons). In grid_sample's numbers: -1 is the edge
    before the first neuron of the map, 1 that after the last; what lies far outside becomes 0.
    """
    pixels = torch.arange(length, dtype=dtype, device=real.device)
    own, cells = own.to(real.device).unsqueeze(1), real.sum(1, keepdim=True)
    place = (pixels + 0.5) * cells / own - 0.5
    place = torch.minimum(place.clamp(min=0), cells - 1.0)
    return ((2 * place + 1) / real.shape[1] - 1).masked_fill(pixels >= own, -9)


def real_sizes(real: Tensor) -> Tensor:
    """Height and width of each image's part of a map, (B, 2), from its real neurons (B, h, w)."""
    return torch.stack([real.any(2).sum(1), real.any(1).sum(1)], 1)
