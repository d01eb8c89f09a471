"""One problem for the operator: what `selective_context` checked, in the form backends want."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from scaseg.ops.activation import Activation


class Problem(NamedTuple):
    """Targets, sources and phi; all floating tensors in one dtype, float32 or wider."""

    values: Tensor  # (B, source, M)
    target_score: Tensor  # (B, R, target)
    source_score: Tensor  # (B, R, source)
    activation: Activation
    channel_weight: Tensor | None = None  # (R,), non-negative
    own: Tensor | None = None  # (target,): the source that is the target itself, left out
    source_mask: Tensor | None = None  # (B, source), True where a source counts
    score_bound: float | None = None  # |score| <= bound, by the caller's word

    def hide_masked(self, score: float) -> Problem:
        """Overwrite what stands at masked sources, so that not even NaN padding can leak."""
        if self.source_mask is None:
            return self
        hidden = ~self.source_mask
        return self._replace(
            values=self.values.masked_fill(hidden.unsqueeze(-1), 0),
            source_score=self.source_score.masked_fill(hidden.unsqueeze(1), score),
        )

    @property
    def present(self) -> Tensor:
        """(B, source): 1 where a source counts, 0 where it is masked."""
        if self.source_mask is None:
            return self.values.new_ones(self.values.shape[:2])
        return self.source_mask.to(self.values)
