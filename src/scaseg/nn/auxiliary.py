"""Classifiers within a network that are trained with a loss of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AuxiliaryClassifier(nn.Conv2d):
    """Scores of the classes from some features of a network: (B, C, h, w) -> (B, classes, h, w).

    In training, its scores are compared with the labels too, and `loss_share` times that loss is
    added to the network's: the part that uses the scores need not learn classes by itself.
    """

    def __init__(self, in_channels: int, classes: int, *, loss_share: float = 0.4) -> None:
        super().__init__(in_channels, classes, kernel_size=1)
        self.loss_share = loss_share

    def replace_classes(self, kept: Sequence[int | None]) -> None:
        """Take other classes; each has the row of an old one, or a fresh one for None."""
        fresh = nn.Conv2d(self.in_channels, len(kept), kernel_size=1).to(self.weight)
        keep_rows(fresh, self, kept)
        self.weight, self.bias, self.out_channels = fresh.weight, fresh.bias, len(kept)


@torch.no_grad()
def keep_rows(new: nn.Conv2d, old: nn.Conv2d, kept: Sequence[int | None]) -> None:
    """Copy weights and biases of classes from one last layer to another; None: not known there."""
    for name, tensor in new.named_parameters():
        for row, before in enumerate(kept):
            if before is not None:
                tensor[row] = old.get_parameter(name)[before]


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
