"""Global pooling, normalized and concatenated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.baselines import EvenContext
from scaseg.ops.exact import uniform_context
from scaseg.ops.precision import without_autocast


class ParsenetContext(EvenContext):
    """h_i = W_d (g * x_i / |x_i|) + W_c (g' * m / |m|), m the mean of all x_j, the own one too.

    A neuron and the image's mean are far from each other in size; both are normalized, and learned
    scales g and g' of each channel give them their size back (from sqrt(C), a mean square of 1).
    W_d and W_c are the two parts of a convolution of the concatenation. The weights of the sources
    are those of `average`; only what is done with their mean differs. O(n).
    """

    exclude_self = False
    reference = (
        "Liu, Rabinovich and Berg, ParseNet: looking wider to see better, arXiv 1506.04579, 2015"
    )

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, share_features: bool = False
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        self.identity_scale = nn.Parameter(torch.empty(in_channels))
        self.context_scale = nn.Parameter(torch.empty(in_channels))
        for scale in (self.identity_scale, self.context_scale):
            nn.init.constant_(scale, in_channels**0.5)

    def values(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)  # averaged first: W_c comes after

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        values = self.values(x if source is None else source)
        return uniform_context(values, exclude_self=False, source_mask=source_mask)

    def combine(self, x: Tensor, context: Tensor | None) -> Tensor:
        if context is not None:
            layer = self.identity if self.context is None else self.context
            scale = self.context_scale.to(context.dtype)
            context = F.linear(F.normalize(context, dim=-1) * scale, layer.weight.flatten(1))
        dtype = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):  # it would make a wide copy of the map
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=dtype)
        length = length.clamp(min=max(1e-12, torch.finfo(x.dtype).tiny)).to(x.dtype)
        scale = self.identity_scale.to(x.dtype).view(-1, 1, 1)
        return super().combine(x / length * scale, context)
