"""Atrous spatial pyramid pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import check_whole_numbers, convolution, refuse_source
from scaseg.ops.checks import check_whole_number
from scaseg.ops.exact import uniform_context

MOST_RATE = 256


class AsppContext(BranchContext):
    """A 1x1 and three dilated 3x3 convolutions side by side, and the mean of the image.

    Five branches of branch_channels, each with a ReLU: what lies at the neuron, around it at a
    distance of each of `rates`, and everywhere. O(n C c), c branch_channels. `rates` are those for
    an output stride of 8, as all backbones have.
    """

    input_dependent = False
    neuron_selective = True
    reference = (
        "Chen, Papandreou, Schroff and Adam, Rethinking atrous convolution for semantic image "
        "segmentation (DeepLabV3), arXiv 1706.05587, 2017"
    )

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        rates: Sequence[int] = (12, 24, 36),
        branch_channels: int = 256,
    ) -> None:
        rates = check_whole_numbers("rates", rates, 1, MOST_RATE)
        check_whole_number("branch_channels", branch_channels, 1)
        super().__init__(in_channels, out_channels, channels=(len(rates) + 2) * branch_channels)
        self.around = nn.ModuleList(
            convolution(in_channels, branch_channels, rate) for rate in (None, *rates)
        )
        self.everywhere = convolution(in_channels, branch_channels)

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        features = x.flatten(2).transpose(1, 2)
        mean = uniform_context(features, exclude_self=False, source_mask=source_mask)
        image = self.everywhere(mean.mT.unsqueeze(-1).to(x.dtype))  # (B, c, 1, 1)
        found = [layer(x) for layer in self.around]
        # laid out as the others are: cat would take another layout for all of them
        found.append(torch.zeros_like(found[0]) + image)
        return torch.cat(found, 1).relu_()
