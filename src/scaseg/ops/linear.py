"""The O(n) forms behind one function: which activation is computed how."""

from __future__ import annotations

from torch import Tensor

from scaseg.ops.activation import Activation
from scaseg.ops.affine import affine_context
from scaseg.ops.ramp import ramp_context
from scaseg.ops.smooth import smooth_context


def linear_context(
    values: Tensor,
    target_score: Tensor,
    source_score: Tensor,
    *,
    activation: Activation,
    channel_weight: Tensor | None,
    own: Tensor | None,
    source_mask: Tensor | None,
    score_bound: float | None,
) -> Tensor:
    """Give each target the weighted mean of the sources, never holding the weights.

    Exact for identity, exp and relu; for sigmoid and softplus to the tolerance that
    `interpolation.TOLERANCE` states. Shapes as in `dense_context`.
    """
    if activation.form == "interpolated":
        return smooth_context(
            values,
            target_score,
            source_score,
            activation=activation,
            channel_weight=channel_weight,
            own=own,
            source_mask=source_mask,
            score_bound=score_bound,
        )
    exact = affine_context if activation.form == "affine" else ramp_context
    return exact(
        values,
        target_score,
        source_score,
        channel_weight=channel_weight,
        own=own,
        source_mask=source_mask,
    )
