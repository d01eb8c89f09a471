"""Heads: from features to the scores of the classes, at the same resolution or a finer one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.models.backbones.base import Backbone, Level, Map
from scaseg.models.padding import (
    AddsUp,
    PaddedBatchNorm2d,
    apply_layers,
    enlarge,
    keep_real,
    real_sizes,
)
from scaseg.nn.auxiliary import keep_rows
from scaseg.nn.convolution import WideConv2d


class HeadShape(NamedTuple):
    """What distinguishes one head from another. Names: `scaseg.registry.HEADS`."""

    width: int
    kernel: int
    dilation: int
    dropout: float = 0.5


class PyramidShape(NamedTuple):
    """A head that goes down to the backbone's finer maps; dilation: in pixels, at the features."""

    width: int
    dilation: int
    dropout: float = 0.1


# VGG16's fc6 and fc7 as convolutions, the paper's. fc6 stood behind two pools that are gone: with
# dilation 4 its 7 x 7 window spans what it spanned.
FCN = HeadShape(4096, 7, 4)
# DeepLab's LargeFOV variant
COMPACT = HeadShape(1024, 3, 12)
# the same at a quarter of the weights, for laptops
LIGHT = HeadShape(512, 3, 12, dropout=0.1)
# reads nothing but its own neuron, so that all context comes from the context module
POINTWISE = HeadShape(128, 1, 1, dropout=0.0)
# scores at 1/4, with a window as far as that of the two before
PYRAMID = PyramidShape(256, 96)
# the sum of all squared features that its last layer starts with, as training.calibrate has it
SQUARES = 512


class Head(nn.Module):
    """Features in, scores of the classes out; its last layer is `score`."""

    score: nn.Conv2d

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


class SegmentationHead(Head):
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


class PyramidHead(Head, AddsUp):
    """From features at 1/8, 1/16 or 1/32 to scores at the finest map of a backbone, 1/4.

    A wide convolution at the features; then, map by map, the result is enlarged, a 1x1 convolution
    of the finer map is added, and so is what a 3x3 convolution (channel by channel, then 1x1) makes
    of the sum. Norms leave padding out, and padding is what lies beyond the edge of a single image.

    The way down is that of Lin et al., "Feature pyramid networks", 2017; of few channels.
    """

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        stride: int,
        finer: Sequence[Level],
        shape: PyramidShape,
    ) -> None:
        super().__init__()
        width, dilation = shape.width, max(1, shape.dilation // stride)
        # what a finer map adds starts at 0; and Adam moves scores by the rate times the sum of all
        # features, so they start large (a ReLU keeps half of the squares): few steps learn more
        wide = _norm(width, (2 * SQUARES / width) ** 0.5)
        self.wide = nn.Sequential(
            _convolution(in_channels, width, 3, dilation=dilation), wide, nn.ReLU(inplace=True)
        )
        self.lateral = nn.ModuleList(
            nn.Sequential(_convolution(level.channels, width, 1), _norm(width)) for level in finer
        )
        self.merge = nn.ModuleList(
            nn.Sequential(
                _convolution(width, width, 3, groups=width),
                _norm(width),
                nn.ReLU(inplace=True),
                _convolution(width, width, 1),
                _norm(width, 0.0),
            )
            for _ in finer
        )
        self.score = nn.Conv2d(width, classes, kernel_size=1)
        self.dropout = nn.Dropout(shape.dropout)
        _init_score(self.score)

    def forward(self, x: Tensor, real: Tensor | None, finer: Sequence[Map]) -> Map:
        """Score the neurons of the finest map: (B, M, h, w) -> (B, classes, H, W), and its real.

        finer: maps of the backbone, finest first, 0 where padding is.
        """
        x = apply_layers(self.wide, x, real)
        below = list(zip(finer, self.lateral, self.merge, strict=True))
        for (fine, there), lateral, merge in reversed(below):
            sizes = None if there is None else real_sizes(there)
            x = enlarge(x, fine.shape[-2:], sizes, real)
            x, real = self.add_up(x, apply_layers(lateral, fine, there)), there
            merged = apply_layers(merge, keep_real(x, real), real)
            x = torch.relu_(self.add_up(x, merged))
        return self.score(self.dropout(x)), real


def build_head(shape: HeadShape | PyramidShape, backbone: Backbone, classes: int) -> Head:
    """Build a head of that shape for the maps of a backbone."""
    channels, stride = backbone.out_channels, backbone.stride
    if isinstance(shape, HeadShape):
        return SegmentationHead(channels, classes, shape=shape)
    finer = backbone.finer
    if not finer:
        problem = f"pyramid, but {type(backbone).__name__} has no finer maps"
        raise UserError("head", problem, "use light")
    return PyramidHead(channels, classes, stride=stride, finer=finer, shape=shape)


def _convolution(
    channels: int, width: int, kernel: int, *, dilation: int = 1, groups: int = 1
) -> nn.Conv2d:
    """As large a map out as in, without bias: a norm follows."""
    padding = dilation * (kernel // 2)
    layer = nn.Conv2d(channels, width, kernel, 1, padding, dilation, groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _norm(width: int, weight: float = 1.0) -> PaddedBatchNorm2d:
    norm = PaddedBatchNorm2d(width)
    nn.init.constant_(norm.weight, weight)
    return norm


def _init_score(layer: nn.Conv2d) -> None:
    """All classes start equally likely, whatever the width before."""
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
