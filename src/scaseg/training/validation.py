"""The LightningModule's validation: images at their own sizes, and what is counted of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from scaseg.data.loading import EvaluationExample
from scaseg.data.sample import IGNORE
from scaseg.errors import UserError, located
from scaseg.inference.batching import SizeQueue
from scaseg.inference.tta import TestTimeAugmentation, mean_rows, score_maps
from scaseg.metrics import Calibration, ConfusionMatrix, Scores
from scaseg.models.segmenter import Segmenter
from scaseg.training.distributed import all_gather
from scaseg.training.sharding import reshard, unshard


class Judged(NamedTuple):
    """A validation image, its number among those of this process, and predicted classes (H, W)."""

    number: int
    example: EvaluationExample
    predicted: Tensor


class Validation(LightningModule):
    """The part of a training that judges: metrics, calibration and loss of validation images.

    A subclass has the loss, and the weights of the classes in it.
    """

    validation_batch: int | None = None  # images of a similar size at once; None: as usual
    loss: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    class_weights: Tensor | None
    _queue: SizeQueue[tuple[int, EvaluationExample]]

    def __init__(self, model: Segmenter, tta: TestTimeAugmentation | None) -> None:
        super().__init__()
        self.model = model
        self.tta = tta
        self.confusion = ConfusionMatrix(len(model.config.classes))
        self.scores: Scores | None = None  # of the last validation
        self.calibration = Calibration()
        self.validation_loss = math.nan  # mean over its images
        self._validation_losses: list[Tensor] = []

    @property
    def _is_fitting(self) -> bool:
        """Whether this is a training, and no evaluation alone."""
        return self.trainer.state.fn == TrainerFn.FITTING

    def on_validation_epoch_start(self) -> None:
        tta, usual = self.tta or TestTimeAugmentation(), 16 if self.device.type == "cuda" else 1
        self._queue = SizeQueue(self.model, tta, self.validation_batch or usual)
        self.confusion = ConfusionMatrix(len(self.model.config.classes))
        self.calibration = Calibration(self.model.config.temperature)
        self._validation_losses = []
        # images of many sizes: cuDNN would search for the fastest algorithm for each of them
        unshard(self.model)  # after EMA has put in its weights
        self._benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False

    def validation_step(self, example: EvaluationExample, batch_idx: int) -> dict[str, Any]:
        """Judge images whose batch is due, perhaps none; return them for callbacks."""
        batches = [self._queue.add((batch_idx, example), *example.image.shape[-2:])]
        if batch_idx + 1 == self.trainer.num_val_batches[0]:
            batches += iter(self._queue.take, [])
        return {"judged": [one for batch in batches if batch for one in self._judge(batch)]}

    @torch.no_grad()
    def _judge(self, batch: Sequence[tuple[int, EvaluationExample]]) -> Iterator[Judged]:
        """Count the predicted classes (H, W) of images that the network gets at once."""
        tta, maps = self._queue.tta, None
        try:
            maps = score_maps(self.model, [example.image.unsqueeze(0) for _, example in batch], tta)
        except (torch.OutOfMemoryError, UserError) as fault:
            if len(batch) == 1:
                with located(batch[0][1].name):
                    raise
            if not isinstance(fault, UserError):
                self.validation_batch = self._queue.batch_size = max(1, len(batch) // 2)
        if maps is None:  # one by one: what is wrong is one's, and what is computed is let go
            for one in batch:
                yield from self._judge([one])
            return
        for (number, example), own in zip(batch, maps, strict=True):
            (_, found), *_ = mean_rows(own, example.image.shape[-2], crf=tta.crf)
            yield Judged(number, example, self._count(example, found[0]))

    def _count(self, example: EvaluationExample, probabilities: Tensor) -> Tensor:
        """Count the predicted classes of an image, and return them (H, W)."""
        predicted, labels = probabilities.argmax(0), example.labels.long()
        with located(example.name):
            self.confusion.update(predicted, labels)
        self.calibration.update(probabilities, labels)
        if self._is_fitting and bool((labels != IGNORE).any()):
            # losses take scores, and the softmax of log p is p; in place: p is not needed any more
            scores = probabilities.clamp_(min=torch.finfo(probabilities.dtype).tiny).log_()
            loss = self.loss(scores.unsqueeze(0), labels.unsqueeze(0), self.class_weights)
            self._validation_losses.append(loss)
        return predicted

    def on_validation_epoch_end(self) -> None:
        """Add up the counts of all processes: whole numbers, so the sum is exact."""
        reshard(self.model)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            counts = self.confusion.counts.to(self.device)
            torch.distributed.all_reduce(counts)
            self.confusion.counts = counts.cpu()
            for sums in (self.calibration.bins, self.calibration.losses):
                total = sums.to(self.device)
                torch.distributed.all_reduce(total)
                sums.copy_(total)
        torch.backends.cudnn.benchmark = self._benchmark
        self.scores = self.confusion.scores()
        summary = self.scores.summary()
        if self._is_fitting:
            own = [float(loss) for loss in self._validation_losses]
            losses = all_gather(self.trainer, own)
            self.validation_loss = math.fsum(losses) / len(losses) if losses else math.nan
            summary = {"loss": self.validation_loss, **summary}
        for name, value in summary.items():
            self.log(f"val/{name}", value, rank_zero_only=False)
