"""The paper, literally: replicate, concatenate, convolve, average. Slow and obvious.

This is the ground truth of every test. It shares no code with the operators it judges, and holds
n x n x 2K numbers: keep n small.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GUARD = 1e-3  # the same promise as in dense.py, written down a second time on purpose


def replicate_and_concatenate(target_features: Tensor, source_features: Tensor) -> Tensor:
    """Build the map that stores [f_i ; f_j] at place (i, j): the paper's V- and H-replicate.

    (B, target, K), (B, source, K) -> (B, 2K, target, source)
    """
    rows = target_features.shape[1]
    columns = source_features.shape[1]
    along_columns = target_features.transpose(1, 2).unsqueeze(3).expand(-1, -1, -1, columns)
    along_rows = source_features.transpose(1, 2).unsqueeze(2).expand(-1, -1, rows, -1)
    return torch.cat([along_columns, along_rows], dim=1)


def pair_scores(
    target_features: Tensor, source_features: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Predict the score of every pair by a 1x1 convolution: w . [f_i ; f_j] + b.

    weight (R, 2K), bias (R,) -> (B, target, source, R)
    """
    pairs = replicate_and_concatenate(target_features, source_features)
    return F.conv2d(pairs, weight[:, :, None, None], bias).permute(0, 2, 3, 1)


def activate(scores: Tensor, activation: str, channel_weight: Tensor) -> Tensor:
    """Return a_ij = sum_r w_r phi(score_ijr), each row times a constant of its own.

    A weighted mean does not see such a constant; without it e^1000 would be infinite and
    sigmoid(-1000) zero. (B, target, source, R), (R,) -> (B, target, source)
    """
    if activation == "identity":
        return (scores * channel_weight).sum(-1)
    if activation == "relu":
        return (F.relu(scores) * channel_weight).sum(-1)
    log_phi = {"exp": lambda z: z, "sigmoid": F.logsigmoid, "softplus": _log_softplus}[activation]
    logs = log_phi(scores)
    counts = (channel_weight > 0).expand_as(logs)
    # only channels of weight 0 can exceed the largest that counts: keep inf * 0 out of the sum
    most = math.log(torch.finfo(logs.dtype).max) - 20
    scaled = torch.exp((logs - _largest(logs, counts)).clamp(max=most))
    return (scaled * channel_weight).sum(-1)


def _log_softplus(z: Tensor) -> Tensor:
    # log(1 + e^z) is e^z to within rounding below -40, and underflows later
    return torch.where(z < -40, z, torch.log(F.softplus(z.clamp(min=-40), threshold=50)))


def _largest(logs: Tensor, counts: Tensor) -> Tensor:
    """The largest log coefficient of each row that counts (0 if none does)."""
    largest = logs.detach().masked_fill(~counts, -torch.inf).amax((2, 3), keepdim=True)
    return largest.masked_fill(largest == -torch.inf, 0)


def weighted_mean(values: Tensor, coefficients: Tensor, counts: Tensor) -> Tensor:
    """Average the sources that count for each target (the paper's eq. 2, second term).

    values (B, source, M), coefficients and counts (B, target, source) -> (B, target, M). A row
    that sums to zero gives zero; one that nearly cancels is guarded as dense.reciprocal says.
    """
    coefficients = torch.where(counts, coefficients, torch.zeros_like(coefficients))
    total = coefficients.sum(-1, keepdim=True)
    floor = GUARD * coefficients.detach().abs().sum(-1, keepdim=True)
    unsafe = total.abs() <= floor
    one = torch.ones_like(total)
    guarded = total / torch.where(floor == 0, one, floor) ** 2
    inverse = torch.where(unsafe, guarded, one / torch.where(unsafe, one, total))
    used = torch.where(counts.any(1).unsqueeze(-1), values, torch.zeros_like(values))
    return (coefficients * inverse) @ used


def reference_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: str = "sigmoid",
    channel_weight: Tensor | None = None,
    exclude_self: bool = True,
    source_mask: Tensor | None = None,
) -> Tensor:
    """Compute `selective_context` the long way; the same arguments, no backend.

    >>> import torch
    >>> context = reference_context(torch.tensor([[[1.0], [3.0], [5.0]]]), torch.zeros(1, 3),
    ...                             torch.zeros(1, 3))
    >>> context.flatten().tolist()  # the mean of the other two
    [4.0, 3.0, 2.0]
    """
    if target_score.dim() == 2:
        target_score, source_score = target_score.unsqueeze(-1), source_score.unsqueeze(-1)
    channels = target_score.shape[-1]
    counts = values.new_ones(len(values), target_score.shape[1], values.shape[1], dtype=torch.bool)
    if exclude_self:
        counts = counts & ~torch.eye(values.shape[1], dtype=torch.bool, device=values.device)
    if source_mask is not None:
        counts = counts & source_mask.unsqueeze(1)
        source_score = source_score.masked_fill(~source_mask.unsqueeze(-1), 0)
    # features are the scores themselves: channel r of a pair is 1 * s_ir + 1 * t_jr
    weight = torch.eye(channels, dtype=values.dtype, device=values.device).repeat(1, 2)
    scores = pair_scores(target_score, source_score, weight)
    if channel_weight is None:
        channel_weight = values.new_ones(channels)
    scores = _hide(scores, counts, activation)
    return weighted_mean(values, activate(scores, activation, channel_weight), counts)


def _hide(scores: Tensor, counts: Tensor, activation: str) -> Tensor:
    """Keep what does not count from setting the scale of its row."""
    if activation in ("identity", "relu"):
        return scores
    return scores.masked_fill(~counts.unsqueeze(-1), -torch.inf)


def gradient_of_features(
    grad: Tensor, coefficients: Tensor, identity_weight: Tensor, context_weight: Tensor
) -> Tensor:
    """The paper's eq. 3: the loss gradient with respect to every x_i, coefficients held fixed.

    grad (B, n, M): dL/dh. coefficients (B, n, n), the diagonal is a_ii. W_d, W_c (M, C) ->
    (B, n, C).
    """
    n = grad.shape[1]
    gradients = []
    for i in range(n):
        total = torch.einsum("b,mn,bm->bn", coefficients[:, i, i], identity_weight, grad[:, i])
        for k in range(n):
            if k == i:
                continue
            row_sum = coefficients[:, k].sum(-1) - coefficients[:, k, k]
            share = coefficients[:, k, i] / row_sum
            total = total + torch.einsum("b,mn,bm->bn", share, context_weight, grad[:, k])
        gradients.append(total)
    return torch.stack(gradients, dim=1)


def gradient_of_coefficients(
    grad: Tensor, coefficients: Tensor, features: Tensor, context_weight: Tensor
) -> Tensor:
    """The paper's eq. 4: the loss gradient with respect to every a_ij, j != i (0 on the diagonal).

    grad (B, n, M): dL/dh. features x (B, n, C), W_c (M, C) -> (B, n, n).
    """
    n = grad.shape[1]
    context_features = features @ context_weight.T  # W_c x_j
    result = torch.zeros_like(coefficients)
    for i in range(n):
        others = [k for k in range(n) if k != i]
        row_sum = coefficients[:, i, others].sum(-1, keepdim=True)  # (B, 1)
        for j in others:
            difference = context_features[:, j : j + 1] - context_features[:, others]
            numerator = (coefficients[:, i, others].unsqueeze(-1) * difference).sum(1)  # (B, M)
            result[:, i, j] = (grad[:, i] * numerator / row_sum**2).sum(-1)
    return result
