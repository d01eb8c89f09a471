"""Channels that stand for classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.auxiliary import AuxiliaryClassifier
from scaseg.nn.contexts.factored import FactoredContext, neurons
from scaseg.ops.checks import check_whole_number


class ObjectContext(FactoredContext):
    """Each source counts by how much a target wants its class: a_ij ~ sum_r exp(u_ir) p(r | j).

    p(r | j) comes from an auxiliary classifier with a loss of its own, so what a channel gathers
    is not left to the segmentation loss, and the map of a class can be read. u_ir = q_i . k_r /
    sqrt(d), where k_r is the key of the mean of class r in this image. With u = 0 this is the
    average: selection starts there. A class that is not in the image has no share. O(n R M), R =
    classes.

    Yuan, Chen and Wang, "Object-contextual representations for semantic segmentation", 2020: there
    every class has the same say, in the image or not, and the context passes two more transforms.
    """

    reference = "Yuan et al. 2020 (object-contextual representations)"

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        classes: int,
        key_channels: int = 64,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("classes", classes, 1, 2**16)
        check_whole_number("key_channels", key_channels, 1)
        self.classifier = AuxiliaryClassifier(in_channels, classes)
        self.query = nn.Conv2d(in_channels, key_channels, kernel_size=1)
        self.key = nn.Conv2d(in_channels, key_channels, kernel_size=1, bias=False)

    def factors(
        self, x: Tensor, source: Tensor | None, source_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        there = x if source is None else source
        query, key = neurons(self.query(x)), neurons(self.key(there))
        belongs = neurons(self.classifier(there)).softmax(-1)  # (B, source, R)
        if source_mask is not None:
            hidden = ~source_mask.unsqueeze(-1)
            belongs, key = belongs.masked_fill(hidden, 0), key.masked_fill(hidden, 0)
        with torch.autocast(x.device.type, enabled=False):
            size = belongs.sum(1, keepdim=True).clamp(min=torch.finfo(belongs.dtype).tiny)
            source_share = belongs / size
            region = source_share.mT @ key  # (B, R, d)
            wanted = query @ region.mT * query.shape[-1] ** -0.5
            return (wanted + size.log()).softmax(-1), source_share
