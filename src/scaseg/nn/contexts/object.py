"""Channels that stand for classes."""

from __future__ import annotations

import torch
from torch import Tensor

from scaseg.nn.auxiliary import AuxiliaryClassifier
from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import counted, neurons, query_and_key, softmax_over_sources
from scaseg.ops.checks import check_bool, check_whole_number
from scaseg.ops.precision import without_autocast


class ObjectContext(FactoredContext):
    """One channel a class: its mean over the image; a neuron compares itself with all of them.

    k_jr = softmax over j of the scores of an auxiliary classifier, b_ir ~ exp(u_ir), u_ir = q_i .
    k_r / sqrt(d), where k_r is the key of the mean of class r in this image. The classifier has a
    loss of its own, so what a channel gathers is not left to the segmentation loss, and the map of
    a class can be read. O(n R M), R = classes. In the paper the context passes two more transforms.

    by_area: classes count by their area, and one that is not in the image has no share: a_ij ~
    sum_r exp(u_ir) p(r | j), which with u = 0 is the average.
    """

    reference = (
        "Yuan, Chen and Wang, Object-contextual representations for semantic segmentation, "
        "ECCV 2020"
    )
    score_parts = ("query", "key")  # the classifier has a loss of its own

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        classes: int,
        key_channels: int = 64,
        by_area: bool = False,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("classes", classes, 1, 2**16)
        check_bool("by_area", by_area)
        self.by_area = by_area
        self.classifier = AuxiliaryClassifier(in_channels, classes)
        self.query, self.key = query_and_key(in_channels, key_channels)

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        there = x if source is None else source
        query, key = neurons(self.query(x)), counted(neurons(self.key(there)), source_mask)
        class_score = neurons(self.classifier(there))  # (B, source, R)
        with without_autocast(x):
            area: Tensor | None = None
            if self.by_area:
                belongs = counted(class_score.softmax(-1), source_mask)
                area = belongs.sum(1, keepdim=True).clamp(min=torch.finfo(belongs.dtype).tiny)
                source_share = belongs / area
            else:
                source_share = softmax_over_sources(class_score, source_mask)
            region = source_share.mT @ key  # (B, R, d)
            wanted = query @ region.mT * query.shape[-1] ** -0.5
            if area is not None:
                wanted = wanted + area.log()
            return wanted.softmax(-1), source_share
