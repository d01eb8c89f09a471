"""Classifiers within a network that are trained with a loss of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class AuxiliaryClassifier(nn.Conv2d):
    """Scores of the classes from some features of a network: (B, C, h, w) -> (B, classes, h, w).

    In training, its scores are compared with the labels too, and `loss_share` times that loss is
    added to the network's: the part that uses the scores need not learn classes by itself.
    """

    def __init__(self, in_channels: int, classes: int, *, loss_share: float = 0.4) -> None:
        super().__init__(in_channels, classes, kernel_size=1)
        self.loss_share = loss_share


@contextmanager
def auxiliary_scores(network: nn.Module) -> Iterator[list[tuple[float, Tensor]]]:
    """Gather (loss_share, scores) of every auxiliary classifier that is called meanwhile."""
    gathered: list[tuple[float, Tensor]] = []

    def keep(module: AuxiliaryClassifier, _: object, scores: Tensor) -> None:
        gathered.append((module.loss_share, scores))

    # only for now: a hook that stays would be copied with the network
    handles = [
        module.register_forward_hook(keep)
        for module in network.modules()
        if isinstance(module, AuxiliaryClassifier)
    ]
    try:
        yield gathered
    finally:
        for handle in handles:
            handle.remove()
