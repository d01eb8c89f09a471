"""What Lightning's loop runs: the loss of a batch, the confusion of a photograph, the optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch import Tensor, nn

from scaseg.build import build_loss, build_optimiser
from scaseg.config import TrainingConfig
from scaseg.data import Batch
from scaseg.data.loading import Photograph
from scaseg.inference import TestTime, score
from scaseg.metrics import ConfusionMatrix, Scores
from scaseg.models import Segmenter
from scaseg.training.schedule import poly_factor


class SegmentationTask(lightning.LightningModule):
    """A segmenter with what it takes to train and to judge it.

    `steps` of the optimiser in the whole run must be set before it trains. (Not asked of Lightning:
    its estimate starts the loaders, before a run that is continued knows its epoch.)
    """

    steps = 1

    def __init__(
        self,
        model: Segmenter,
        config: TrainingConfig,
        *,
        class_weights: Sequence[float] | None = None,
        frozen_norms: bool = False,
        test_time: TestTime | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.frozen_norms = frozen_norms or config.freeze_backbone
        self.test_time = test_time
        self.loss: Callable[[Tensor, Tensor, Tensor | None], Tensor] = build_loss(config)
        self.class_weights: Tensor | None
        weights = None if class_weights is None else torch.tensor(class_weights)
        # not among the weights: they belong to the training, not to the model
        self.register_buffer("class_weights", weights, persistent=False)
        self.confusion = ConfusionMatrix(len(model.config.classes))
        self.scores: Scores | None = None  # of the last validation
        if config.freeze_backbone:
            model.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> SegmentationTask:
        """Switch between training and evaluation; frozen norms stay in evaluation."""
        super().train(mode)
        if self.frozen_norms:
            for module in self.model.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Draw dropout from (seed, epoch, batch, process): a continued run draws the same."""
        place = [self.config.seed, self.current_epoch, batch_idx, self.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> 1))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        padded = bool((batch.sizes != torch.tensor(batch.images.shape[-2:])).any())
        sizes = batch.sizes.to(self.device) if padded else None
        loss = self.loss(self.model(batch.images, sizes), batch.labels, self.class_weights)
        if (
            loss.device.type == "cpu"
        ):  # a GPU would wait at every step: there the epoch's mean tells
            refuse_to_diverge(float(loss.detach()))
        self.log("train/loss", loss, batch_size=len(batch.names))
        return loss

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        """Move tensors, but leave sizes here: the loss asks them whether anything is padded."""
        if isinstance(batch, Batch):
            images = batch.images.to(device, non_blocking=True)
            return batch._replace(images=images, labels=batch.labels.to(device, non_blocking=True))
        return super().transfer_batch_to_device(batch, device, index)

    def on_validation_epoch_start(self) -> None:
        self.confusion = ConfusionMatrix(len(self.model.config.classes))

    def validation_step(self, photograph: Photograph, batch_idx: int) -> None:
        probabilities = score(self.model, photograph.image, self.test_time)
        try:
            self.confusion.update(probabilities.argmax(0), photograph.labels)
        except ValueError as fault:
            raise ValueError(f"{photograph.name}: {fault}") from fault

    def on_validation_epoch_end(self) -> None:
        """Add up what all processes counted: whole numbers, so the sum is exact."""
        counts = self.confusion.counts
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            there = counts.to(self.device)
            torch.distributed.all_reduce(there)
            counts = self.confusion.counts = there.cpu()
        self.scores = self.confusion.scores()
        for name, value in self.scores.summary().items():
            self.log(f"val/{name}", value, rank_zero_only=False)

    def configure_optimizers(self) -> Any:
        """One rate for the backbone, another for context and head, both falling as a power."""
        head_lr = self.config.head_lr if self.config.head_lr is not None else 10 * self.config.lr
        new = [*self.model.context.parameters(), *self.model.head.parameters()]
        groups: list[dict[str, Any]] = [{"params": new, "lr": head_lr, "name": "head"}]
        if not self.config.freeze_backbone:
            old = list(self.model.backbone.parameters())
            groups.insert(0, {"params": old, "lr": self.config.lr, "name": "backbone"})
        optimiser = build_optimiser(self.config, groups)
        factor = partial(
            poly_factor,
            steps=self.steps,
            power=self.config.poly_power,
            warmup=self.config.warmup,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)
        return {
            "optimizer": optimiser,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def refuse_to_diverge(loss: float) -> None:
    """Raise where a loss is no number any more: nothing that follows could mend the weights."""
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss}; lower --lr, or use training.gradient_clip")
