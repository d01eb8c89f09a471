"""The context of an image that is gone through in parts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scaseg.nn.context import Context, not_streamed
from scaseg.ops.precision import without_autocast
from scaseg.ops.streaming import Neurons


class StreamedContext:
    """The context of one image, in two passes over parts of it: `add` all of them, then call.

    Every neuron must be added once, from whichever part; that part leaves its own entry out of
    its context, as the module does. A neuron seen again in another part (an overlap) has a twin
    among the sources, which stays in: one of n.

    UserError for a context that does not follow from a few sums. `sums` is None where no first
    pass is needed.
    """

    def __init__(self, context: nn.Module) -> None:
        if not isinstance(context, Context):
            raise not_streamed(type(context).__name__)
        self.context = context
        self.sums = context.streamed_sums()

    def add(self, features: Tensor) -> None:
        """Count the neurons of a part (1, C, h, w) as sources."""
        if self.sums is None:
            return
        neurons = self._neurons(features)
        with without_autocast(features):
            self.sums.add(neurons)

    def __call__(self, features: Tensor, counted: Tensor) -> Tensor:
        """Add the whole image's context to a part (1, C, h, w): (1, M, h, w).

        counted (h, w): which of its neurons were added from this very part.
        """
        if self.sums is None:
            return self.context(features)
        neurons = self._neurons(features)
        with without_autocast(features):
            context = self.sums.context(neurons, counted.flatten())
        return self.context.combine(features, context.unsqueeze(0))

    def _neurons(self, features: Tensor) -> Neurons:
        values = self.context.values(features)[0]
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        target_score, source_score = self.context.scores(features)
        return Neurons(values, target_score[0], source_score[0])
