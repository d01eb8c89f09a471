"""Context by coefficients that the caller supplies."""

from __future__ import annotations

from torch import Tensor

from scaseg.errors import UserError
from scaseg.nn.context import Context, Mask, Source
from scaseg.ops.checks import check_bool


class ContextAggregation(Context):
    """h_i = W_d x_i + sum_j a_ij W_c x_j / sum_j a_ij for coefficients given to each call.

    They may come from anywhere: prior knowledge, co-occurrence statistics, another network.
    exclude_self leaves out j = i where context comes from x itself.

    >>> import torch
    >>> block = ContextAggregation(8)
    >>> block(torch.randn(2, 8, 5, 6), coefficients=torch.rand(1, 30, 30)).shape
    torch.Size([2, 8, 5, 6])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        share_features: bool = False,
        exclude_self: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, share_features=share_features)
        check_bool("exclude_self", exclude_self)
        self.exclude_self = exclude_self

    def target_context(self, x: Tensor, source: Source, source_mask: Mask) -> Tensor:
        raise UserError("coefficients", "none", "give a tensor (B or 1, n, source) with each call")
