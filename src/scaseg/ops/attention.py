"""Context by ordinary attention: coefficients exp(q_i . k_j / sqrt(d)), the own entry kept."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.ops.checks import is_vmapped
from scaseg.ops.products import product

# targets at once, and their coefficients at most (16 MiB in float32), where they are written out
SLICE, MOST = 512, 1 << 22


def dot_context(
    query: Tensor, key: Tensor, values: Tensor, *, source_mask: Tensor | None = None
) -> Tensor:
    """Give each target the softmax mean of the sources, through PyTorch's fused kernels.

    query (B, target, d), key (B, source, d), values (B, source, M), source_mask (B, source)
    -> (B, target, M). O(n^2 M) time, O(n) memory. An image without any source gives zeros.
    """
    width = query.shape[-1]
    channels = values.shape[-1]
    if _in_slices(query, key, values):
        return _sliced(query, key, values, source_mask)
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


def _in_slices(*tensors: Tensor) -> bool:
    """Whether coefficients are better written out, some targets at a time: for predictions.

    On a CPU, PyTorch's fused attention computes them again for each slice of the values: 7.3
    instead of 2.3 ms (690 neurons, 64 and 320 channels; one core of an AMD EPYC).
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cpu") or any(map(is_vmapped, tensors)):
        return False
    return all(one.device.type == "cpu" and one.dtype == torch.float32 for one in tensors)


def _sliced(query: Tensor, key: Tensor, values: Tensor, source_mask: Tensor | None) -> Tensor:
    """`dot_context` without gradients: never more than MOST coefficients at once."""
    context = values.new_zeros(query.shape[0], query.shape[1], values.shape[2])
    for image, there in enumerate(context):
        known, found = key[image], values[image]
        if source_mask is not None:
            known, found = known[source_mask[image]], found[source_mask[image]]
        if len(known) == 0:
            continue
        scaled, features = query[image] * query.shape[-1] ** -0.5, found.T.contiguous()
        count = max(-(-len(there) // SLICE), -(-len(there) * len(known) // MOST))
        step = -(-len(there) // max(1, count))  # of one size: a small rest is slow
        for first in range(0, len(there), max(1, step)):
            rows = slice(first, first + step)
            there[rows] = product(product(scaled[rows], known).softmax(-1), features)
    return context


def dot_coefficients(query: Tensor, key: Tensor, *, source_mask: Tensor | None = None) -> Tensor:
    """Write the coefficients of `dot_context` out, each row summing to 1: (B, target, source)."""
    score = (query @ key.mT) * query.shape[-1] ** -0.5
    if source_mask is None:
        return score.softmax(-1)
    score = score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    nothing = ~source_mask.any(1).view(-1, 1, 1)
    return score.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
