"""Exponential moving average of the weights."""

from __future__ import annotations

from functools import partial

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging
from torch import Tensor

from scaseg.models.segmenter import Segmenter
from scaseg.training.module import SegmentationModule


def ema_update(
    averages: list[Tensor], values: list[Tensor], count: Tensor, *, decay: float
) -> None:
    """Move averages towards values in place; count: updates so far.

    Early updates decay faster, or the average would keep the first weights for long (which is why
    this is not Lightning's EMAWeightAveraging). All tensors at once: one by one, hundreds of small
    weights are thousands of small kernels on a GPU.
    """
    if not averages[0].is_floating_point():  # counters: there is no average of them
        for average, value in zip(averages, values, strict=True):
            average.copy_(value)
        return
    kept = ((1 + count) / (10 + count)).clamp(max=decay).to(averages[0])
    moves = torch._foreach_sub(values, averages)
    torch._foreach_mul_(moves, 1 - kept)
    torch._foreach_add_(averages, moves)


class EMA(WeightAveraging):
    """Lightning's WeightAveraging with `ema_update`; validation uses the averaged weights."""

    def __init__(self, decay: float) -> None:
        super().__init__(multi_avg_fn=partial(ema_update, decay=decay))
        self._has_ended = False

    def copy_to(self, module: SegmentationModule) -> None:
        """Give a module the averaged weights, unless the end of its training just did."""
        if not self._has_ended:
            self._copy_average_to_current(module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self._has_ended = True

    def averaged_model(self) -> Segmenter:
        """Return the model with the averaged weights."""
        assert self._average_model is not None
        module = self._average_model.module
        assert isinstance(module, SegmentationModule)
        return module.model
