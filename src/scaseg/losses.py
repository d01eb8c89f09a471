"""What training lowers: losses over scores (B, classes, H, W) and labels (B, H, W).

Every loss leaves unlabelled pixels out, and a batch without a labelled pixel costs 0 and moves
nothing. Scores are taken to float32 first: a log of a sum of exponentials wants it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE = 255
Loss = Callable[..., Tensor]


def cross_entropy(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean of -log p(true class), each pixel weighted by its class: the paper's."""
    cost = F.cross_entropy(
        scores.float(), labels, weight=weights, ignore_index=IGNORE, reduction="sum"
    )
    return cost / _total_weight(labels, weights)


def focal(
    scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, gamma: float = 2.0
) -> Tensor:
    """Cross-entropy in which pixels that are right already count less: (1 - p)^gamma.

    Lin et al., "Focal loss for dense object detection".
    """
    log_p = -_pixel_costs(scores, labels)  # (B, H, W); 0 where unlabelled
    # never 0: below gamma = 1 the power has no slope there, and one sure pixel would make NaN
    cost = (-torch.expm1(log_p)).clamp(min=1e-12).pow(gamma) * -log_p
    if weights is not None:
        cost = cost * _pixel_weights(labels, weights)
    return cost.sum() / _total_weight(labels, weights)


def dice(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    cross_entropy_share: float = 0.5,
) -> Tensor:
    """1 - the overlap of each class that occurs in the batch, mixed with cross-entropy.

    Milletari et al., "V-Net". Alone (cross_entropy_share=0) it starts slowly: far from the truth
    its gradient is small.
    """
    labelled = labels != IGNORE
    truth = F.one_hot(labels.masked_fill(~labelled, 0), scores.shape[1]).movedim(-1, 1)
    truth = (truth * labelled.unsqueeze(1)).float()  # (B, classes, H, W)
    p = scores.float().softmax(1) * labelled.unsqueeze(1)
    both, size = (p * truth).sum((0, 2, 3)), (p + truth).sum((0, 2, 3))
    present = truth.sum((0, 2, 3)) > 0
    share = present.float() if weights is None else present * weights
    missing = (share * (1 - 2 * both / size.clamp(min=1e-6))).sum() / share.sum().clamp(min=1e-6)
    smooth = cross_entropy(scores, labels, weights)
    return (1 - cross_entropy_share) * missing + cross_entropy_share * smooth


def ohem(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    threshold: float = 0.7,
    keep: float = 0.1,
) -> Tensor:
    """Cross-entropy over the hard pixels alone: true class under `threshold`, at least `keep`.

    `keep`: the share of the labelled pixels that count in any case, the hardest first.
    Shrivastava et al., "Training region-based object detectors with online hard example mining".
    """
    labelled = labels != IGNORE
    cost = _pixel_costs(scores, labels)
    with torch.no_grad():
        hardness = cost.masked_fill(~labelled, -torch.inf).flatten()
        least = (min(keep, 1) * labelled.sum()).ceil().long()
        # the hardness of the last pixel that counts in any case
        border = hardness.sort(descending=True).values[(least - 1).clamp(min=0)]
        hard = labelled & (cost >= torch.minimum(border, -torch.tensor(threshold).log().to(border)))
        share = hard.float() if weights is None else hard * _pixel_weights(labels, weights)
    return (share * cost).sum() / share.sum().clamp(min=1e-6)


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "focal": focal,
    "dice": dice,
    "ohem": ohem,
}


def _pixel_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """-log p(true class) of each pixel (B, H, W); 0 where unlabelled."""
    return F.cross_entropy(scores.float(), labels, ignore_index=IGNORE, reduction="none")


def _pixel_weights(labels: Tensor, weights: Tensor) -> Tensor:
    labelled = labels != IGNORE
    return weights[labels.masked_fill(~labelled, 0)] * labelled


def _total_weight(labels: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of all pixels' weights, never 0: 0 / 0 would poison the weights."""
    if weights is None:
        return (labels != IGNORE).sum().clamp(min=1)
    return _pixel_weights(labels, weights).sum().clamp(min=1e-6)
