"""The context aggregation operator as a module: identity feature plus context (paper eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.ops.checks import check_whole_number
from scaseg.ops.dispatch import aggregate


class ContextAggregation(nn.Module):
    """h_i = W_d x_i + sum_j a_ij W_c x_j / sum_j a_ij for coefficients that you supply.

    They may come from anywhere: prior knowledge, co-occurrence statistics, another network. The
    two 1x1 convolutions, without bias as in the paper, start as Xavier matrices: h then has about
    the size of x, whatever the coefficients, since a mean is never larger than what it averages.
    share_features: W_c = W_d, one matrix for both.

    >>> import torch
    >>> block = ContextAggregation(8)
    >>> block(torch.randn(2, 8, 5, 6), torch.rand(1, 30, 30)).shape
    torch.Size([2, 8, 5, 6])
    """

    def __init__(
        self, channels: int, out_channels: int | None = None, *, share_features: bool = False
    ) -> None:
        super().__init__()
        out_channels = channels if out_channels is None else out_channels
        for name, value in (("channels", channels), ("out_channels", out_channels)):
            check_whole_number(name, value, 1)
        if not isinstance(share_features, bool):
            raise ValueError(f"share_features is {share_features!r}; give True or False")
        self.channels = channels
        self.out_channels = out_channels
        self.identity = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)  # W_d
        context = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)  # W_c
        nn.init.xavier_uniform_(self.identity.weight)
        nn.init.xavier_uniform_(context.weight)
        self.context = None if share_features else context

    def forward(
        self,
        x: Tensor,
        coefficients: Tensor,
        *,
        source: Tensor | None = None,
        mask: Tensor | None = None,
        exclude_self: bool | None = None,
    ) -> Tensor:
        """Add context to x (B, C, H, W) by coefficients (B or 1, H * W, sources).

        With `source` (B, C, H', W') the context comes from that map instead of from x itself.
        `mask` (B, H, W) of the map that context comes from: True where a neuron may be context.
        The diagonal is left out where context comes from x, unless exclude_self says otherwise.
        """
        self._check(x, source)
        neurons = x.shape[-2] * x.shape[-1]
        if coefficients.dim() == 3 and coefficients.shape[1] != neurons:
            raise ValueError(
                f"coefficients have {coefficients.shape[1]} rows but x has {neurons} neurons; "
                "give one row for each neuron of x"
            )
        context = aggregate(
            self._values(x, source),
            coefficients,
            exclude_self=source is None if exclude_self is None else exclude_self,
            source_mask=flat_mask(mask, x if source is None else source),
        )
        return self._add(x, context)

    def _values(self, x: Tensor, source: Tensor | None) -> Tensor:
        """The context features W_c x_j of whatever is to be context: (B, source, M)."""
        layer = self.identity if self.context is None else self.context
        return _neurons(layer(x if source is None else source))

    def _add(self, x: Tensor, context: Tensor) -> Tensor:
        """Add the context (B, n or 1, M) to the identity features, in the layout of a map."""
        identity = self.identity(x)
        height, width = x.shape[-2:]
        if context.shape[1] == 1:
            height = width = 1  # the same for all: broadcast
        return identity + context.transpose(1, 2).unflatten(2, (height, width)).to(identity.dtype)

    def _check(self, x: Tensor, source: Tensor | None) -> None:
        for name, tensor in (("x", x), ("source", source)):
            if tensor is None:
                continue
            if not isinstance(tensor, Tensor):
                raise ValueError(f"{name} is a {type(tensor).__name__}; give a tensor")
            if tensor.dim() != 4 or tensor.shape[1] != self.channels:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}; this block was made for feature "
                    f"maps (B, {self.channels}, H, W)"
                )
            if 0 in tensor.shape[-2:]:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}: a map without neurons")
        if source is not None and source.shape[0] != x.shape[0]:
            raise ValueError(
                f"source has a batch of {source.shape[0]} but x of {x.shape[0]}; give each image "
                "its source"
            )
        if source is not None and source.dtype != x.dtype:
            raise ValueError(f"source has dtype {source.dtype} but x {x.dtype}; convert one")


def _neurons(feature_map: Tensor) -> Tensor:
    """(B, M, H, W) -> (B, H * W, M); free for channels_last maps."""
    return feature_map.flatten(2).transpose(1, 2)


def flat_mask(mask: Tensor | None, feature_map: Tensor) -> Tensor | None:
    """Check a mask against the map it belongs to: (B, H, W) or (B, 1, H, W) -> (B, H * W)."""
    if mask is None:
        return None
    batch, _, height, width = feature_map.shape
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask is {found}; give a bool tensor, True where a neuron is real")
    if mask.dim() == 4 and mask.shape[1] == 1:
        mask = mask.squeeze(1)
    if mask.shape != (batch, height, width):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)} but the map that context comes from calls for "
            f"{(batch, height, width)}; a mask of the image must be resized to the feature map"
        )
    return mask.flatten(1)
