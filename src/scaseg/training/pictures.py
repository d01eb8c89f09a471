"""A Lightning callback: a few validation images, with labels and predictions, after each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import TensorBoardLogger

from scaseg.io.atomic import whole_file
from scaseg.metrics import percent
from scaseg.plots.palette import default_palette
from scaseg.plots.validation_sheet import Panel, validation_sheet
from scaseg.training.distributed import all_gather
from scaseg.training.run_folder import PICTURES
from scaseg.training.validation import Judged, Validation


class ValidationPictures(Callback):
    """Keep validation.jpg: `count` of `images` images, always the same, spread over all of them.

    The predictions are those that the metrics are counted from: nothing is computed twice.
    TensorBoard gets the picture too.
    """

    def __init__(self, folder: Path, *, images: int, count: int) -> None:
        self.path = folder / PICTURES
        count = min(count, images)
        self.chosen = {index * images // count for index in range(count)}
        self._panels: list[tuple[int, Panel]] = []

    def on_validation_start(self, *_: Any) -> None:
        self._panels = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        *_: Any,
    ) -> None:
        judged: Judged
        for judged in outputs["judged"]:
            example = judged.example
            # as EvaluationSampler counts
            index = trainer.global_rank + judged.number * trainer.world_size
            if index in self.chosen:
                image = example.image.permute(1, 2, 0).cpu().numpy()
                labels, predicted = example.labels.cpu().numpy(), judged.predicted.cpu().numpy()
                self._panels.append((index, Panel.of(example.name, image, labels, predicted)))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Validation)
        found = sorted(all_gather(trainer, self._panels), key=lambda pair: pair[0])
        if not found or not trainer.is_global_zero:
            return
        config, scores = pl_module.model.config, pl_module.scores
        assert scores is not None
        sheet = validation_sheet(
            [panel for _, panel in found],
            config.classes,
            config.palette or default_palette(len(config.classes)),
            title=f"epoch {trainer.current_epoch + 1}, all validation images: "
            f"mIoU {percent(scores.mean_iou)}, loss {pl_module.validation_loss:.4f}",
        )
        self._write(sheet)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                step = {"global_step": trainer.global_step, "dataformats": "HWC"}
                logger.experiment.add_image("val/predictions", np.asarray(sheet), **step)

    def _write(self, sheet: Image.Image) -> None:
        with whole_file(self.path, durable=False) as temporary:
            sheet.save(temporary, format="JPEG", quality=85, subsampling=0)
