"""Heads: from features to the scores of the classes, at the same resolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from scaseg.nn.auxiliary import keep_rows
from scaseg.nn.convolution import WideConv2d


class HeadShape(NamedTuple):
    """What distinguishes one head from another. Names: `scaseg.registry.HEADS`."""

    width: int
    kernel: int
    dilation: int
    dropout: float = 0.5


# VGG16's fc6 and fc7 as convolutions, the paper's. fc6 stood behind two pools that are gone: with
# dilation 4 its 7 x 7 window spans what it spanned.
FCN = HeadShape(4096, 7, 4)
# DeepLab's LargeFOV variant
COMPACT = HeadShape(1024, 3, 12)
# the same at a quarter of the weights, for laptops
LIGHT = HeadShape(512, 3, 12, dropout=0.1)
# reads nothing but its own neuron, so that all context comes from the context module
POINTWISE = HeadShape(128, 1, 1, dropout=0.0)


class SegmentationHead(nn.Module):
    """(B, in_channels, h, w) -> (B, classes, h, w): a wide convolution, a 1x1, the scores."""

    def __init__(self, in_channels: int, classes: int, *, shape: HeadShape) -> None:
        super().__init__()
        padding = shape.dilation * (shape.kernel // 2)
        self.fc6 = WideConv2d(
            in_channels, shape.width, shape.kernel, padding=padding, dilation=shape.dilation
        )
        self.fc7 = nn.Conv2d(shape.width, shape.width, kernel_size=1)
        self.score = nn.Conv2d(shape.width, classes, kernel_size=1)
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(shape.dropout)
        for layer in (self.fc6, self.fc7):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        _init_score(self.score)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.relu(self.fc6(x)))
        x = self.dropout(self.relu(self.fc7(x)))
        return self.score(x)

    def replace_classes(self, kept: Sequence[int | None]) -> None:
        """Take a new last layer; each class has the row of an old one, or a fresh one for None."""
        old = self.score
        weight = old.weight
        new = nn.Conv2d(
            old.in_channels, len(kept), kernel_size=1, device=weight.device, dtype=weight.dtype
        )
        _init_score(new)
        keep_rows(new, old, kept)
        self.score = new


def _init_score(layer: nn.Conv2d) -> None:
    """All classes start equally likely, whatever the width before."""
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
