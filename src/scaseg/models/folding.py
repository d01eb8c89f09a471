"""A model as prediction runs it: fewer passes over each map, and the kernels that suit a CPU.

A norm that does not learn multiplies and shifts each channel, which the convolution before it can
do itself. Scores change by rounding (1e-5 of the built-in model's).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from scaseg.models.padding import AddsUp
from scaseg.models.segmenter import Segmenter
from scaseg.nn.convolution import PointwiseConv2d
from scaseg.ops.products import prefers_convolutions


def for_prediction(model: Segmenter) -> None:
    """Make a model fast, in place: one that nobody trains, saves or exports any more."""
    fold_batch_norms(model)
    for module in model.modules():
        if isinstance(module, AddsUp):
            module.overwrites = True
    if model.device.type != "cpu" or not prefers_convolutions():
        return
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Conv2d) and PointwiseConv2d.able(layer):
                setattr(module, name, PointwiseConv2d.of(layer))


def fold_batch_norms(model: Segmenter) -> int:
    """Fold norms in place, and return how many: of a model that nobody trains or saves any more.

    Maps are laid out with the channels side by side where that is faster: on a CPU where there were
    norms, on a GPU where the backbone says so.
    """
    model.eval()
    folded = 0
    for layers in model.modules():
        if not isinstance(layers, nn.Sequential):
            continue
        for (first, layer), (second, norm) in pairwise(list(layers.named_children())):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(layers, first, fuse_conv_bn_eval(layer, norm))
                setattr(layers, second, nn.Identity().eval())
                folded += 1
    if folded if model.device.type == "cpu" else model.backbone.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return folded
