"""Keeping padding what it is for a single image: zeros beyond the edge, at every layer.

A padded batch must give what single images give. A convolution pads a single image with zeros;
in a batch the pixels beyond a smaller image become something else after the first bias. So they
are set back to zero wherever a layer may have filled them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def real_pixels(sizes: Tensor, height: int, width: int) -> Tensor:
    """Mark the pixels of each image of a padded batch: sizes (B, 2) -> bool (B, height, width)."""
    rows = torch.arange(height, device=sizes.device) < sizes[:, :1]  # (B, height)
    columns = torch.arange(width, device=sizes.device) < sizes[:, 1:]
    return rows.unsqueeze(2) & columns.unsqueeze(1)


def keep_real(x: Tensor, real: Tensor | None) -> Tensor:
    """Set what is not real to zero: x (B, C, H, W), real (B, H, W)."""
    return x if real is None else x.masked_fill(~real.unsqueeze(1), 0)  # NaN * 0 is NaN


def pooled(real: Tensor | None) -> Tensor | None:
    """What a 2x2 pool leaves: windows wholly inside the image, as for a single image."""
    if real is None:
        return None
    height, width = real.shape[-2] // 2 * 2, real.shape[-1] // 2 * 2
    real = real[:, :height, :width]
    return real[:, ::2, ::2] & real[:, 1::2, ::2] & real[:, ::2, 1::2] & real[:, 1::2, 1::2]


def strided(real: Tensor | None) -> Tensor | None:
    """What a 3x3 convolution of stride 2 and padding 1 leaves: windows centred in the image."""
    return None if real is None else real[:, ::2, ::2]
