"""Context by ordinary attention: coefficients exp(q_i . k_j / sqrt(d)), the own entry kept."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def dot_context(
    query: Tensor, key: Tensor, values: Tensor, *, source_mask: Tensor | None = None
) -> Tensor:
    """Give each target the softmax mean of the sources, through PyTorch's fused kernels.

    query (B, target, d), key (B, source, d), values (B, source, M), source_mask (B, source)
    -> (B, target, M). O(n^2 M) time, O(n) memory. An image without any source gives zeros.
    """
    width = query.shape[-1]
    channels = values.shape[-1]
    # a layout that the fused kernels refuse would give the n x n scores room
    query, key, values = query.contiguous(), key.contiguous(), values.contiguous()
    blocked = None
    if source_mask is not None:
        values = values.masked_fill(~source_mask.unsqueeze(-1), 0)
        key = key.masked_fill(~source_mask.unsqueeze(-1), 0)
        nothing = ~source_mask.any(1, keepdim=True)  # (B, 1)
        # softmax over nothing is NaN: give such an image all sources, and drop the result
        blocked = (source_mask | nothing)[:, None, None, :]
    # The fused kernels want values as wide as keys, 256 at most: values go in slices of that
    # width, as heads that share one query and one key.
    heads = -(-channels // width)
    split = F.pad(values, (0, heads * width - channels)).unflatten(2, (heads, width))
    context = F.scaled_dot_product_attention(
        query.unsqueeze(1).expand(-1, heads, -1, -1),
        key.unsqueeze(1).expand(-1, heads, -1, -1),
        split.transpose(1, 2),
        attn_mask=blocked,
    )
    context = context.transpose(1, 2).flatten(2)[..., :channels]
    return context if source_mask is None else context.masked_fill(nothing.unsqueeze(-1), 0)


def dot_coefficients(query: Tensor, key: Tensor, *, source_mask: Tensor | None = None) -> Tensor:
    """Write the coefficients of `dot_context` out, each row summing to 1: (B, target, source)."""
    score = (query @ key.mT) * query.shape[-1] ** -0.5
    if source_mask is None:
        return score.softmax(-1)
    score = score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    nothing = ~source_mask.any(1).view(-1, 1, 1)
    return score.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
