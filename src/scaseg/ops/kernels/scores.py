"""From the predictor's features to bounded scores, and back, in one pass each way.

The scores of a pair are w' . f_i + b and w'' . f_j: thin products, for which a matrix library
wants the features in float32 first, an array twice as large as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.ops.kernels import device_scores
from scaseg.ops.kernels.launch import launch
from scaseg.ops.kernels.tiles import BLOCK, chunks_of, features_of_a_tile, is_split


def score(features: Tensor, weight: Tensor, bias: Tensor, bound: float) -> Tensor:
    """Score features (N, K) by weight (R, 2K) and bias (R,): s then t, (N, 2R) float32.

    bound > 0: they pass through bound * tanh(score / bound).
    """
    count, width = features.shape
    channels = weight.shape[0]
    scores = weight.new_empty((count, 2 * channels))
    padded = max(16, 1 << (2 * channels - 1).bit_length())
    constants = {"R": channels, "QP": padded, "SPLIT": is_split(features), "BLOCK": BLOCK}
    launch(
        device_scores.score,
        (-(-count // BLOCK), 1, 1),
        (scores, features, weight, bias),
        (width, features.stride(0)),
        (count, bound),
        constants | {"BLOCK_K": min(64, features_of_a_tile(width))},
        dtypes=(features.dtype,),
        warps=4,
    )
    return scores


def score_backward(
    grad_s: Tensor,
    grad_t: Tensor,
    scores: Tensor,
    features: Tensor,
    weight: Tensor,
    bound: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the features, past their ReLU, of weight and bias, and column sums.

    grad_s, grad_t (N, R). The column sums (K,) of the first are the gradient of the bias of the
    layer that made the features.
    """
    count, width = features.shape
    channels = weight.shape[0]
    padded = max(16, 1 << (2 * channels - 1).bit_length())
    block = min(64, features_of_a_tile(width))
    tiles = -(-width // block)
    chunks, chunk = chunks_of(count, tiles)
    grad_f = torch.empty((count, width), dtype=features.dtype, device=features.device)
    parts = weight.new_empty((chunks, padded + 1, width + 1))
    constants = {"R": channels, "QP": padded, "SPLIT": is_split(features), "BLOCK": BLOCK}
    launch(
        device_scores.score_backward,
        (chunks, tiles, 1),
        (grad_f, parts, grad_s, grad_t, scores, features, weight),
        (width, features.stride(0), width + 1),
        (count, chunk, bound),
        constants | {"BLOCK_K": block},
        dtypes=(features.dtype,),
        warps=8,
    )
    sums = parts.sum(0)
    both = sums[: 2 * channels, :width].unflatten(0, (2, channels))
    grad_weight = torch.cat([both[0], both[1]], dim=1)
    return grad_f, grad_weight, sums[:channels, width], sums[padded, :width]
