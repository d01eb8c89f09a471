"""The scores of targets and sources, in the form that the backends take."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from scaseg.ops.activation import Activation


class Scores(NamedTuple):
    """What a_ij = sum_r w_r phi(s_ir + t_jr) is computed from; tensors in float32 or wider."""

    target: Tensor  # s (B, R, target)
    source: Tensor  # t (B, R, source)
    activation: Activation  # phi
    channel_weight: Tensor | None = None  # w (R,), non-negative
    own: Tensor | None = None  # (target,): the source that is the target itself, left out
    source_mask: Tensor | None = None  # (B, source), True where a source counts
    bound: float | None = None  # |score| <= bound, by the caller's word

    def hide_masked(self, values: Tensor, score: float) -> tuple[Tensor, Scores]:
        """Overwrite values (B, source, M) and scores of masked sources: not even NaN may leak."""
        if self.source_mask is None:
            return values, self
        hidden = ~self.source_mask
        source = self.source.masked_fill(hidden.unsqueeze(1), score)
        return values.masked_fill(hidden.unsqueeze(-1), 0), self._replace(source=source)

    @property
    def present(self) -> Tensor:
        """(B, source): 1 where a source counts, 0 where it is masked."""
        if self.source_mask is None:
            return self.source.new_ones(self.source.shape[0], self.source.shape[2])
        return self.source_mask.to(self.source)


class Strongest(NamedTuple):
    """(B, R, 1) each, constants to autograd; scores are 0 where there is no such source."""

    score: Tensor
    source: Tensor
    second_score: Tensor


def strongest(source_score: Tensor, source_mask: Tensor | None) -> Strongest:
    """Find the largest score of each channel (B, R, source), its place, and the second largest."""
    score = source_score.detach()
    if source_mask is not None:
        score = score.masked_fill(~source_mask.unsqueeze(1), -torch.inf)
    if score.shape[-1] < 2:
        first, index = score.max(dim=-1, keepdim=True)
        return Strongest(empty_to_zero(first), index, torch.zeros_like(first))
    top, index = score.topk(2, dim=-1)
    return Strongest(empty_to_zero(top[..., :1]), index[..., :1], empty_to_zero(top[..., 1:]))


def empty_to_zero(score: Tensor) -> Tensor:
    """Replace the -inf that stands for "no such source" by a number that can be worked with."""
    return score.masked_fill(score == -torch.inf, 0)


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Accumulate in float32 at least: a bfloat16 sum of ones stops growing at 256."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype for the few numbers on which many others depend: float64 where there is one.

    An exported graph may run where there is none (ONNX Runtime's WebGPU).
    """
    narrow = tensor.device.type == "mps" or torch.compiler.is_exporting()
    return tensor.dtype if narrow else torch.float64
