"""What Lightning's loop runs: the loss of a batch, the confusion of a photograph, the optimiser."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch import Tensor, nn

from scaseg.config.run import TrainingConfig
from scaseg.data.loading import EvaluationExample
from scaseg.data.sample import Batch
from scaseg.inference.test_time import TestTimeAugmentation, score
from scaseg.metrics import ConfusionMatrix, Scores
from scaseg.models.segmenter import Segmenter
from scaseg.training.build import build_loss, build_optimizer
from scaseg.training.distributed import AgreedError, agree, gather
from scaseg.training.schedule import poly_factor


class SegmentationModule(lightning.LightningModule):
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
        test_time: TestTimeAugmentation | None = None,
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
        self.most_skips = config.most_skips
        self.skipped = 0  # batches, in the whole run
        self.skipping = False  # this one
        self._batches_in_step = self._skipped_in_step = 0
        self.say: Callable[[str], None] = lambda line: None
        if config.freeze_backbone:
            model.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> SegmentationModule:
        """Switch between training and evaluation; frozen norms stay in evaluation."""
        super().train(mode)
        if self.frozen_norms:
            for module in self.model.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Draw from (seed, epoch, batch, process): a continued run draws the same dropout."""
        place = [self.config.seed, self.current_epoch, batch_idx, self.global_rank]
        seed = int(np.random.SeedSequence(place).generate_state(1)[0])
        torch.manual_seed(seed)
        # what a user's own loss or layer may draw from
        random.seed(seed)
        np.random.seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        padded = bool((batch.sizes != torch.tensor(batch.images.shape[-2:])).any())
        sizes = batch.sizes.to(self.device) if padded else None
        # norms learn from a batch as it passes; one that is skipped must not leave a trace
        known = [own.clone() for own in self.model.buffers()] if self.most_skips else []
        loss = self.loss(self.model(batch.images, sizes), batch.labels, self.class_weights)
        self._batches_in_step += 1
        self.skipping = not self._is_finite(loss)
        if self.skipping:
            self._refuse_or_skip(loss, batch)
            self._skipped_in_step += 1
            for own, before in zip(self.model.buffers(), known, strict=True):
                own.copy_(before)
            # no cost, but one that every weight takes part in: other processes wait for gradients
            moved = [weight.sum() for weight in self.parameters() if weight.requires_grad]
            loss = 0 * torch.stack(moved).sum()
        self.log("train/loss", loss, batch_size=len(batch.names))
        return loss

    def _is_finite(self, loss: Tensor) -> bool:
        """Whether the loss of this batch is a number, in every process."""
        return not agree(self.trainer, int(not math.isfinite(float(loss.detach()))))[0]

    def _refuse_or_skip(self, loss: Tensor, batch: Batch) -> None:
        """Count a batch that cannot be learned from; raise where that is one too many."""
        names = gather(self.trainer, batch.names if not torch.isfinite(loss) else [])
        self.skipped += 1
        if self.skipped > self.most_skips:
            kept = f"{self.most_skips} were skipped before; " if self.most_skips else ""
            raise AgreedError(
                f"the loss is not finite on {', '.join(names)}; {kept}nothing was learned from it; "
                "look at these images, lower --lr, use training.gradient_clip, or --on-nan skip:N"
            )
        if self.trainer.is_global_zero:
            self.say(
                f"epoch {self.current_epoch + 1}, step {self.global_step + 1}: the loss is not "
                f"finite on {', '.join(names)}; skipped ({self.skipped} of {self.most_skips})"
            )

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave a step out whose batches were all skipped: no decay, no momentum."""
        if self._skipped_in_step == self._batches_in_step:
            for weight in self.parameters():
                weight.grad = None
        self._skipped_in_step = self._batches_in_step = 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped"] = self.skipped

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped = checkpoint["skipped"]

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        """Move tensors, but leave sizes here: the loss asks them whether anything is padded."""
        if isinstance(batch, Batch):
            images = batch.images.to(device, non_blocking=True)
            return batch._replace(images=images, labels=batch.labels.to(device, non_blocking=True))
        return super().transfer_batch_to_device(batch, device, index)

    def on_validation_epoch_start(self) -> None:
        self.confusion = ConfusionMatrix(len(self.model.config.classes))

    def validation_step(self, photograph: EvaluationExample, batch_idx: int) -> None:
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
        optimizer = build_optimizer(self.config, groups)
        factor = partial(
            poly_factor,
            steps=self.steps,
            power=self.config.poly_power,
            warmup=self.config.warmup,
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }
