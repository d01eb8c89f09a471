"""Losses over scores (B, classes, H, W) and labels (B, H, W), and weights of the classes in them.

Every loss leaves unlabelled pixels out; a batch without a labelled pixel costs 0 and has zero
gradients. Scores are converted to float32 first, which a log of a sum of exponentials needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scaseg.errors import UserError

IGNORE = 255  # ignore_index: the label of an unlabelled pixel
FREQUENT_SHARE = 0.85
Loss = Callable[..., Tensor]


def cross_entropy(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean of -log p(true class), each pixel weighted by its class, as in the paper."""
    cost = F.cross_entropy(
        scores.float(), labels, weight=weights, ignore_index=IGNORE, reduction="sum"
    )
    return cost / _total_weight(labels, weights)


def focal(
    scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, gamma: float = 2.0
) -> Tensor:
    """Cross-entropy with each pixel scaled by (1 - p)^gamma, so that easy pixels count less.

    Lin et al., "Focal loss for dense object detection".
    """
    log_p = -_pixel_costs(scores, labels)  # (B, H, W); 0 where unlabelled
    # never 0: below gamma = 1 the power has no slope there, and one certain pixel would give NaN
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
    """1 - the Dice overlap of each class in the batch, averaged, mixed with cross-entropy.

    Milletari et al., "V-Net". Alone (cross_entropy_share=0) it starts slowly: its gradient is
    small where the scores are far off.
    """
    labelled = labels != IGNORE
    truth = F.one_hot(labels.masked_fill(~labelled, 0), scores.shape[1]).movedim(-1, 1)
    truth = (truth * labelled.unsqueeze(1)).float()  # (B, classes, H, W)
    p = scores.float().softmax(1) * labelled.unsqueeze(1)
    both, size = (p * truth).sum((0, 2, 3)), (p + truth).sum((0, 2, 3))
    present = truth.sum((0, 2, 3)) > 0
    missing = _mean_of_present(1 - 2 * both / size.clamp(min=1e-6), present, weights)
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
    """Cross-entropy over hard pixels only: those whose true class has p below `threshold`.

    `keep`: the share of the labelled pixels that counts in any case, the hardest first.
    Shrivastava et al., "Training region-based object detectors with online hard example mining".
    """
    labelled = labels != IGNORE
    cost = _pixel_costs(scores, labels)
    with torch.no_grad():
        hardness = cost.masked_fill(~labelled, -torch.inf).flatten()
        least = (min(keep, 1) * labelled.sum()).ceil().long()
        # the cost of the easiest pixel that counts in any case
        # (by take: an index that is a tensor would be read, and a GPU waited for)
        border = hardness.sort(descending=True).values.take((least - 1).clamp(min=0))
        easy = -torch.full_like(border, threshold).log()
        hard = labelled & (cost >= torch.minimum(border, easy))
        share = hard.float() if weights is None else hard * _pixel_weights(labels, weights)
    return (share * cost).sum() / share.sum().clamp(min=1e-6)


def lovasz(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    cross_entropy_share: float = 0.5,
) -> Tensor:
    """1 - the IoU of each class in the batch, made continuous, averaged, mixed with cross-entropy.

    Berman, Triki and Blaschko, "The Lovász-Softmax loss", 2018. Of every fourth row and column of
    pixels: each class sorts all of them.
    """
    sparse = labels[:, ::4, ::4]
    classes, labelled = scores.shape[1], (sparse != IGNORE).flatten()
    p = scores[..., ::4, ::4].float().softmax(1).transpose(0, 1).flatten(1)  # (classes, pixels)
    truth = (torch.arange(classes, device=p.device).unsqueeze(1) == sparse.flatten()).float()
    error = (truth - p).abs().masked_fill(~labelled, -1)  # unlabelled ones come last
    error, order = error.sort(1, descending=True)
    truth = truth.gather(1, order)
    count = truth.sum(1, keepdim=True)
    # 1 - IoU of a class where the first so many pixels are wrong, and what each of them adds
    missed = 1 - (count - truth.cumsum(1)) / (count + (1 - truth).cumsum(1))
    added = missed.diff(dim=1, prepend=missed.new_zeros(classes, 1))
    costs = (error.clamp(min=0) * added).sum(1)
    missing = _mean_of_present(costs, (count > 0).squeeze(1), weights)
    smooth = cross_entropy(scores, labels, weights)
    return (1 - cross_entropy_share) * missing + cross_entropy_share * smooth


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "focal": focal,
    "dice": dice,
    "ohem": ohem,
    "lovasz": lovasz,
}


AVERAGED = ("cross_entropy", "focal")  # means over pixels: parts of a batch add up


def _pixel_costs(scores: Tensor, labels: Tensor) -> Tensor:
    """-log p(true class) of each pixel (B, H, W); 0 where unlabelled."""
    return F.cross_entropy(scores.float(), labels, ignore_index=IGNORE, reduction="none")


def _mean_of_present(costs: Tensor, present: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of the costs (classes,) of the classes that occur, weighted."""
    share = present.float() if weights is None else present * weights
    return (share * costs).sum() / share.sum().clamp(min=1e-6)


def _pixel_weights(labels: Tensor, weights: Tensor) -> Tensor:
    labelled = labels != IGNORE
    return weights[labels.masked_fill(~labelled, 0)] * labelled


def _total_weight(labels: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of all pixels' weights, never 0: 0 / 0 would turn the network's weights into NaN."""
    return total_weight(labels, weights).clamp(min=1 if weights is None else 1e-6)


def total_weight(labels: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of the weights of all labelled pixels: what the losses of AVERAGED divide by."""
    if weights is None:
        return (labels != IGNORE).sum()
    return _pixel_weights(labels, weights).sum()


class ClassWeights(NamedTuple):
    """The weight of each class in the loss, and the frequency below which a class is rare."""

    weights: tuple[float, ...]
    eta: float


def paper_class_weights(pixels: Sequence[int]) -> ClassWeights:
    """Weigh classes by w_i = 2^ceil(log10(eta / f_i)), f_i their share of the labelled pixels.

    eta by the 85 % / 15 % rule, in our reading: sort the classes by frequency; the frequent ones
    are those that together make 85 % of the labelled pixels (the one that crosses 85 % counts as
    frequent), and eta is the frequency of the last of them. So frequent classes weigh 1 or less,
    rare ones 2, 4, ... Classes that never occur weigh 0.

    >>> paper_class_weights([600, 300, 90, 9, 1])  # the second class crosses 85 %: eta = 0.3
    ClassWeights(weights=(1.0, 1.0, 2.0, 4.0, 8.0), eta=0.3)
    """
    total = _total(pixels)
    reached = eta_count = 0
    for eta_count in sorted(pixels, reverse=True):
        reached += eta_count
        if reached >= FREQUENT_SHARE * total:
            break
    weights = tuple(0.0 if count == 0 else 2.0 ** _ceil_log10(eta_count, count) for count in pixels)
    return ClassWeights(weights, eta_count / total)


def inverse_class_weights(pixels: Sequence[int]) -> tuple[float, ...]:
    """Weigh classes by 1 / f_i, scaled so that a labelled pixel weighs 1 on average; 0 if absent.

    >>> inverse_class_weights([600, 300, 100, 0])
    (0.5555555555555556, 1.1111111111111112, 3.3333333333333335, 0.0)
    """
    total, present = _total(pixels), sum(count > 0 for count in pixels)
    return tuple(total / (present * count) if count else 0.0 for count in pixels)


def class_weights(
    kind: str, pixels: Sequence[int], clamp: tuple[float, float] | None = None
) -> tuple[float, ...] | None:
    """The weight of each class in the loss: "paper" or "inverse", clamped; None: all the same.

    Training uses these, and `scaseg data check` shows them.

    >>> class_weights("paper", [600, 300, 90, 9, 1, 0], (1.0, 4.0))
    (1.0, 1.0, 2.0, 4.0, 4.0, 0.0)
    """
    if kind == "none":
        return None
    found = inverse_class_weights(pixels) if kind == "inverse" else paper_class_weights(pixels)[0]
    if clamp is None:
        return found
    low, high = clamp
    return tuple(min(max(weight, low), high) if weight else 0.0 for weight in found)


def _total(pixels: Sequence[int]) -> int:
    if any(count < 0 for count in pixels):
        raise UserError("pixels", f"a negative count ({min(pixels)})", "count labelled pixels")
    if not any(pixels):
        raise UserError("pixels", "no labelled pixel at all", "there is nothing to weigh")
    return sum(pixels)


def _ceil_log10(numerator: int, denominator: int) -> int:
    """ceil(log10(numerator / denominator)) in whole numbers: 1000 / 1 must give 3, not 4."""
    exponent = 0
    while numerator > denominator:  # above 10^0: the smallest power that is not exceeded
        denominator, exponent = 10 * denominator, exponent + 1
    while 10 * numerator <= denominator:  # at or below the power before
        numerator, exponent = 10 * numerator, exponent - 1
    return exponent
