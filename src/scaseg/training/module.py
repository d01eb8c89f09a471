"""The LightningModule: training steps, optimizer, learning rate schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scaseg.config.run import MachineConfig, RunConfig, TrainingConfig
from scaseg.data.device_augmentation import PlannedBatch, augment
from scaseg.data.sample import Batch, normalize
from scaseg.inference.tta import TestTimeAugmentation
from scaseg.losses import AVERAGED, total_weight
from scaseg.models.padding import enlarge
from scaseg.models.segmenter import Segmenter
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.nn.context import Context
from scaseg.system import Precision
from scaseg.training.build import build_loss, build_optimizer, can_fuse
from scaseg.training.distributed import SharedError, all_gather, all_reduce_sum
from scaseg.training.graphs import MANY, GraphedLoss, graph_problem
from scaseg.training.validation import Validation


def poly_factor(step: int, steps: int, *, power: float, warmup: int = 0) -> float:
    """Return the factor of the base rates at a step: (1 - step/steps)^power, with linear warmup.

    >>> [round(poly_factor(step, 100, power=0.9), 4) for step in (0, 50, 99, 100)]
    [1.0, 0.5359, 0.0158, 0.0]
    """
    start = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return start * max(0.0, 1 - step / steps) ** power


class HostNumber:
    """A number on its way from a GPU to the host, which waits for it only where it asks."""

    def __init__(self, number: Tensor) -> None:
        self._number = number
        self._arrived: torch.cuda.Event | None = None
        if number.is_cuda:  # a copy from MPS has no event that says when it has arrived
            self._number = number.to("cpu", non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def __float__(self) -> float:
        if self._arrived is not None:
            self._arrived.synchronize()
        return float(self._number)


class _Unread(NamedTuple):
    """A batch that has been computed, and whose loss nobody has read yet."""

    loss: HostNumber
    names: Sequence[str]
    buffers: Sequence[Tensor]  # of the network, from before


class SegmentationModule(Validation):
    """A segmenter with its loss, metrics and optimizer.

    `steps` of the optimizer in the whole run must be set before it trains. (Not Lightning's
    estimated_stepping_batches: it starts the loaders before a resumed run knows its epoch.)
    notify is called with a line of text for each batch that is skipped.
    """

    steps = 1

    def __init__(
        self,
        model: Segmenter,
        config: TrainingConfig,
        *,
        class_weights: Sequence[float] | None = None,
        frozen_norms: bool = False,
        tta: TestTimeAugmentation | None = None,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(model, tta)
        self.config = config
        self.frozen_norms = frozen_norms or config.freeze_backbone
        self.notify = notify
        self.loss = build_loss(config)
        self.class_weights: Tensor | None
        weights = None if class_weights is None else torch.tensor(class_weights)
        # not persistent: they belong to the training, not to the model
        self.register_buffer("class_weights", weights, persistent=False)
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(model.config.mean), persistent=False)
        self.register_buffer("std", torch.tensor(model.config.std), persistent=False)
        self._layout, self._fused = torch.contiguous_format, False
        self.graphs: GraphedLoss | None = None
        self.skipped = 0  # batches, in the whole run
        self.is_skipping = False  # the current batch
        self.step_loss: float | None = None  # over all processes, where there are several
        self._batches_in_step = self._skipped_in_step = 0
        self._unread: _Unread | None = None
        if config.freeze_backbone:
            model.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> SegmentationModule:
        """Switch between training and evaluation mode; frozen norms stay in evaluation mode."""
        super().train(mode)
        if self.config.freeze_backbone:
            self.model.backbone.eval()  # no dropout, no layers left out at random
        if self.frozen_norms:
            for module in self.model.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def use_gpu(self, precision: Precision, machine: MachineConfig, *, batches: int = 0) -> str:
        """Take what is faster on a GPU: layout and fused optimizer; return a line that says so.

        After `use_graphs`. batches: of the whole run.
        """
        is_whole = machine.strategy != "fsdp"  # shares are contiguous, and no fused optimizer's
        wanted = machine.channels_last if is_whole else False
        if wanted is None:
            wanted = self.model.backbone.channels_last
        if wanted is None:
            wanted = self.graphs is not None and batches >= MANY
        said: list[str] = ["float32" if precision == "32" else precision]
        if wanted:
            self._layout = torch.channels_last
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            said.append("channels_last")
        # a fused optimizer undoes the scale of "16" in its step: too late for clipping before it
        self._fused = precision != "16" and is_whole and can_fuse(self.config)
        if self._fused:
            said.append(f"fused {self.config.optimizer}")
        return f"cuda: {', '.join(said)}"

    def use_cpu(self, machine: MachineConfig) -> None:
        """Take the layout that is faster on a CPU."""
        wanted = machine.channels_last
        if self.model.backbone.channels_last_on_cpu if wanted is None else wanted:
            self._layout = torch.channels_last

    def use_graphs(self, run: RunConfig) -> str:
        """Record the steps of a run as CUDA graphs; return words for the line of `use_gpu`."""
        wanted = run.machine.cuda_graphs
        if not (self.model.backbone.launch_bound if wanted is None else wanted):
            return ""
        problem = graph_problem(run)
        if problem is not None:
            return f"; no CUDA graphs: {problem}"
        size = run.augment.crop or run.augment.fit
        assert size is not None
        self.graphs = GraphedLoss(
            self._loss_of,
            self.model,
            batch=self.config.batch_size,
            size=size,
            accumulates=self.config.accumulate > 1,
            notify=self.notify,
        )
        return ", CUDA graphs"

    def on_train_epoch_start(self) -> None:
        if self.graphs is not None:
            self.graphs.renew()

    def on_train_end(self) -> None:
        self.graphs = None  # and the memory that they hold

    def on_train_start(self) -> None:
        """Set what a resumed run may have otherwise: the rates for its epochs, and the layout.

        A fused optimizer wants its state laid out as the weights are.
        """
        schedule: Any = self.lr_schedulers()
        for group, base, factor in zip(
            schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = base * factor(schedule.last_epoch)
        for weight, state in schedule.optimizer.state.items():
            for name, value in state.items():  # read from a file, where all have one layout
                if value.shape == weight.shape and value.stride() != weight.stride():
                    state[name] = torch.empty_like(weight).copy_(value)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed from (seed, epoch, batch, process): a resumed run draws the same dropout.

        Lightning's checkpoints hold no state of random generators.
        """
        entropy = [self.config.seed, self.current_epoch, batch_idx, self.global_rank]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        if self.device.type == "cpu":  # torch.manual_seed looks for every other device
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        # what a user's own loss or layer may draw from
        random.seed(seed)
        np.random.seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        # norms learn in the forward pass; a batch that is skipped must not leave a trace
        buffers = [one.clone() for one in self.model.buffers()] if self.config.most_skips else []
        loss = self.batch_loss(batch)
        self._batches_in_step += 1
        self.is_skipping = False
        if self.trainer.world_size == 1 and self.config.accumulate == 1:
            self._unread = _Unread(HostNumber(loss.detach()), batch.names, buffers)
        else:  # known before the backward pass, whose gradients are added to those of others
            loss = self._shared_loss(loss, batch, buffers)
        if self.trainer.loggers:  # metrics.csv has its own mean, and this takes a millisecond
            self.log("train/loss", loss, batch_size=len(batch.names))
        return loss

    def on_after_backward(self) -> None:
        """Read the loss only now: a GPU has the backward pass to do while the host goes on."""
        unread, self._unread = self._unread, None
        if unread is None or math.isfinite(float(unread.loss)):
            return
        self._skip(unread.names, unread.buffers)
        for weight in self.parameters():
            if weight.grad is not None:
                weight.grad.zero_()

    def _shared_loss(self, loss: Tensor, batch: Batch, buffers: Sequence[Tensor]) -> Tensor:
        """The loss as it counts in the step of all processes; skipped by all where one is NaN."""
        value = float(loss.detach())
        is_nan = not math.isfinite(value)
        weight = self._share_of_step(batch)
        counts = (is_nan, weight, 0.0 if is_nan else weight * value)
        nans, total, summed = all_reduce_sum(self.trainer, *counts)
        if nans > 0:
            self._skip(batch.names if is_nan else [], buffers)
            # zero, but with a gradient for every weight: other processes wait for gradients
            moved = [weight.sum() for weight in self.parameters() if weight.requires_grad]
            return 0 * torch.stack(moved).sum()
        if self.trainer.world_size > 1:
            # DDP averages over processes, of which each may have other numbers of labelled pixels:
            # so the step is the one that a single process would take
            loss = loss * (weight * self.trainer.world_size / max(total, 1e-6))
            self.step_loss = summed / max(total, 1e-6)
        return loss

    def _skip(self, names: Sequence[str], buffers: Sequence[Tensor]) -> None:
        """Skip the current batch, or stop; names: of the images whose loss is not finite."""
        self.is_skipping = True
        self._skipped_in_step += 1
        self._stop_or_skip(list(names))
        for own, before in zip(self.model.buffers(), buffers, strict=True):
            own.copy_(before)

    def _share_of_step(self, batch: Batch) -> float:
        """What the loss of this process counts in the step, beside those of others."""
        if self.trainer.world_size == 1 or self.config.loss not in AVERAGED:
            return 1.0
        return float(total_weight(batch.labels.long(), self.class_weights))

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch as the loader gives it, on this module's device."""
        is_padded = bool((batch.sizes != torch.tensor(batch.images.shape[-2:])).any())
        if is_padded:
            if self.graphs is not None:
                self.graphs.pass_over_padded()
            return self._loss_of(batch.images, batch.labels, batch.sizes)
        compute = self._loss_of if self.graphs is None else self.graphs
        return compute(batch.images, batch.labels)

    def _loss_of(self, images: Tensor, labels: Tensor, sizes: Tensor | None = None) -> Tensor:
        """The loss of images and labels as loaders give them; sizes: of a padded batch."""
        images = normalize(images.contiguous(memory_format=self._layout), self.mean, self.std)
        return self._training_loss(images, labels.long(), sizes)

    def _training_loss(self, images: Tensor, labels: Tensor, sizes: Tensor | None) -> Tensor:
        """The loss of the network's scores, and the shares of those of auxiliary classifiers."""
        with auxiliary_scores(self.model) as others:
            features = self.model.features(images, sizes)
            scored = self.model.score(features)

        def judged(coarse: Tensor, real: Tensor | None) -> Tensor:
            full = enlarge(coarse, images.shape[-2:], sizes, real)
            return self.loss(full, labels, self.class_weights)

        loss = judged(*scored)
        for share, coarse in others:
            loss = loss + share * judged(coarse, features.real)
        return loss

    def _stop_or_skip(self, names: list[str]) -> None:
        """Count a batch whose loss is not finite; raise where that is one too many."""
        images = ", ".join(all_gather(self.trainer, names))
        self.skipped += 1
        most = self.config.most_skips
        if self.skipped > most:
            before = f"{most} were skipped before; " if most else ""
            raise SharedError(
                f"the loss is not finite on {images}; {before}nothing was learned from it; "
                "check these images, lower --lr, use training.gradient_clip, or --on-nan skip:N"
            )
        if self.trainer.is_global_zero:
            self.notify(
                f"epoch {self.current_epoch + 1}, step {self.global_step + 1}: the loss is not "
                f"finite on {images}; skipped ({self.skipped} of {most})"
            )

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave out a step whose batches were all skipped: no decay, no momentum."""
        if self._skipped_in_step == self._batches_in_step:
            for weight in self.parameters():
                weight.grad = None
        self._skipped_in_step = self._batches_in_step = 0

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["skipped"] = self.skipped

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped = checkpoint["skipped"]

    def transfer_batch_to_device(self, batch: Any, device: torch.device, index: int) -> Any:
        """Move tensors but sizes: training_step reads them, which would make a GPU wait.

        What loaders have left to the device is done there.
        """
        if isinstance(batch, Batch):
            is_cuda = device.type == "cuda"  # elsewhere nothing says when a copy has arrived
            images = batch.images.to(device, non_blocking=is_cuda)
            labels = batch.labels.to(device, non_blocking=is_cuda)
            return batch._replace(images=images, labels=labels)
        if isinstance(batch, PlannedBatch):
            return augment(batch, device)
        return super().transfer_batch_to_device(batch, device, index)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: Any = None,
        gradient_clip_algorithm: Any = None,
    ) -> None:
        """Clip here: Lightning refuses a fused optimizer in bf16 too, where nothing is scaled."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        """Rates of the backbone, of scores, of context and head, all with the poly schedule."""
        config = self.config
        head_lr = config.head_lr if config.head_lr is not None else 10 * config.lr
        groups: list[dict[str, Any]] = []
        if config.layer_decay is not None and not config.freeze_backbone:
            layers = self.model.backbone.layers()
            for depth, weights in enumerate(layers):
                rate = config.lr * config.layer_decay ** (len(layers) - 1 - depth)
                groups.append({"params": weights, "lr": rate, "name": f"backbone.{depth}"})
        elif not config.freeze_backbone:
            old = list(self.model.backbone.parameters())
            groups.append({"params": old, "lr": config.lr, "name": "backbone"})
        new = [*self.model.context.parameters(), *self.model.head.parameters()]
        context = self.model.context
        if config.score_lr_factor != 1 and isinstance(context, Context):
            scores = context.score_parameters()
            rate = config.score_lr_factor * head_lr
            groups.append({"params": scores, "lr": rate, "name": "scores"})
            taken = {id(one) for one in scores}
            new = [one for one in new if id(one) not in taken]
        groups.append({"params": new, "lr": head_lr, "name": "head"})
        optimizer = build_optimizer(config, groups, fused=self._fused)
        power, warmup = config.poly_power, config.warmup
        factor = partial(poly_factor, steps=self.steps, power=power, warmup=warmup)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]
