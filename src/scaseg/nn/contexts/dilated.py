"""The context module of dilated convolutions."""

from __future__ import annotations

from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.branches import BranchContext
from scaseg.nn.contexts.parts import convolution, counted_map, refuse_source
from scaseg.ops.checks import check_whole_number

DILATIONS = (1, 1, 2, 4, 8, 16, 1)


class DilatedContext(BranchContext):
    """Seven 3x3 convolutions with dilations 1, 1, 2, 4, 8, 16 and 1, each with a ReLU.

    The receptive field grows exponentially with the layers, to 67 x 67 neurons. All layers have
    branch_channels and start as the identity, as the paper does it. O(n c^2), c branch_channels.
    The paper's "basic" module reads the scores of the classes, few channels; here a 1x1 convolution
    of the map to branch_channels.
    """

    receptive_field = "67 x 67 neurons"
    input_dependent = False
    neuron_selective = True
    reference = "Yu and Koltun, Multi-scale context aggregation by dilated convolutions, ICLR 2016"

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, branch_channels: int = 128
    ) -> None:
        check_whole_number("branch_channels", branch_channels, 1)
        super().__init__(in_channels, out_channels, channels=branch_channels)
        self.reduce = convolution(in_channels, branch_channels)
        self.layers = nn.ModuleList(
            convolution(branch_channels, branch_channels, rate) for rate in DILATIONS
        )
        for layer in self.layers:
            nn.init.dirac_(layer.weight)  # type: ignore[arg-type]

    def branches(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        refuse_source(self, source)
        seen = counted_map(self.reduce(x), source_mask)
        for layer in self.layers:
            seen = counted_map(layer(seen).relu(), source_mask)
        return seen
