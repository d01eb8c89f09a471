"""Double attention."""

from __future__ import annotations

from torch import Tensor, nn

from scaseg.nn.context import Mask, Source
from scaseg.nn.contexts.factored import FactoredContext
from scaseg.nn.contexts.parts import neurons, softmax_over_sources
from scaseg.ops.checks import MOST_PAIRS, check_whole_number


class DoubleAttentionContext(FactoredContext):
    """R maps gather features from the image; each neuron takes a mixture of what they gathered.

    k = softmax over j of 1x1 convolutions of the sources, b = softmax over r of 1x1 convolutions
    of the targets. O(n R M), R = pair_channels. `balanced` is this with prototypes that targets and
    sources share. In the paper what is gathered is narrower, and widened again afterwards.
    """

    reference = (
        "Chen, Kalantidis, Li, Yan and Feng, A^2-Nets: double attention networks, NeurIPS 2018"
    )
    score_parts = ("distribute", "gather")

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        pair_channels: int = 128,
        share_features: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_whole_number("pair_channels", pair_channels, 1, MOST_PAIRS)
        self.distribute = nn.Conv2d(in_channels, pair_channels, kernel_size=1)
        # a bias would add the same to all sources, and cancel
        self.gather = nn.Conv2d(in_channels, pair_channels, kernel_size=1, bias=False)

    def factors(self, x: Tensor, source: Source, source_mask: Mask) -> tuple[Tensor, Tensor]:
        gathered = neurons(self.gather(x if source is None else source))
        channel_share = neurons(self.distribute(x)).softmax(-1)
        return channel_share, softmax_over_sources(gathered, source_mask)
