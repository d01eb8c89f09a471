"""Evaluation: the paper's three metrics of a model over a split, in one process or several."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import LambdaCallback

from scaseg.config.keys import EVALUATED, require_read
from scaseg.config.recipe import load_recipe
from scaseg.config.run import MachineConfig, TrainingConfig
from scaseg.data.datasets.base import PairedDataset, SegmentationDataset
from scaseg.data.datasets.own import OwnDataset
from scaseg.data.destination import check_destination
from scaseg.data.splits import evaluation_split
from scaseg.data.validation.check import Notify, Part, quick_check, require_labelled, require_valid
from scaseg.errors import UserError, located, plural
from scaseg.inference.tta import TestTimeAugmentation, check_windows
from scaseg.io.atomic import write_json
from scaseg.io.lock import folder_lock
from scaseg.io.model_folder import find_model, model_notes
from scaseg.io.ownership import MARK, check_replaceable
from scaseg.metrics import Calibration, ConfusionMatrix, Scores, percent
from scaseg.models.build import load_model
from scaseg.models.labels import (
    check_classes,
    data_config,
    reading_note,
    trained_on,
    unnamed_classes,
)
from scaseg.models.segmenter import Segmenter, evaluating
from scaseg.plots.figures import EVALUATION, write_evaluation
from scaseg.progress import Progress, progress_bar
from scaseg.training.data import evaluation_loader
from scaseg.training.distributed import is_rank_zero
from scaseg.training.module import SegmentationModule
from scaseg.training.trainer import (
    build_trainer,
    choose_accelerator,
    quiet_lightning,
    tf32,
    work_errors,
)

Check = Literal["all", "quick", "none"]


@dataclass(frozen=True)
class Evaluation:
    """Metrics, the confusion matrix that they come from, calibration, the number of images."""

    scores: Scores
    confusion: ConfusionMatrix
    images: int
    classes: tuple[str, ...]
    calibration: Calibration

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints, in percent; None for a class that does not occur."""
        shares = zip(self.classes, self.scores.accuracies, self.scores.ious, strict=True)
        per_class = {
            name: {"accuracy": _number(100 * accuracy), "IoU": _number(100 * iou)}
            for name, accuracy, iou in shares
        }
        summary = {name: _number(value) for name, value in self.scores.summary().items()}
        before, after = (_number(round(100 * one, 6)) for one in self.calibration.errors())
        calibration = {"ECE": after, "ECE_uncalibrated": before}
        calibration |= {"temperature": self.calibration.temperature}
        return {**summary, **calibration, "per_class": per_class, "images": self.images}

    def table(self) -> str:
        """Return all metrics in percent as text."""
        before, after = map(percent, self.calibration.errors())
        line = f"ECE {before}"  # of confidence
        if self.calibration.temperature != 1:
            line += f", after calibration {after} (temperature {self.calibration.temperature:.2f})"
        return f"{self.scores.table(self.classes)}\n{line}"

    def save(self, folder: str | Path) -> None:
        """Write metrics.json (what --json prints), per_class.csv, confusion.csv and pictures."""
        write_evaluation(self.confusion, self.classes, Path(folder))
        write_json(Path(folder) / EVALUATION[-1], {**self.to_dict(), "software": MARK})


def evaluate(
    model: Segmenter | str | Path | None,
    data: Any = None,
    *,
    split: str | None = None,
    tta: TestTimeAugmentation | None = None,
    machine: MachineConfig | None = None,
    overrides: Mapping[str, str] | None = None,
    check: Check | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Evaluation:
    """Count a model's predictions against the labels, at the labels' own resolution.

    model: a Segmenter, a folder, the name of a built-in one, or None for the usual one; its mode
    and device are left as they were. data: a dataset (your own too, see `scaseg.train`), or a
    folder whose labels are read as in the model's training (None: the data of its training), with
    overrides such as {"data.ignore_index": "0"}. split: test, else val, else what training held
    out; or all. check: see `check_dataset` (None: as data.check says). out: a folder for
    what `Evaluation.save` writes.
    With several devices, every process returns the same numbers as one process would.
    """
    notes: list[str] = []
    require_read(overrides or (), EVALUATED)
    if out is not None and is_rank_zero():
        check_destination("--out", out)
        with located("--out"):
            for name in EVALUATION:
                check_replaceable(Path(out) / name)
    if not isinstance(model, Segmenter):
        with located("--model"):
            folder = find_model(model)
            notes += model_notes(model, folder)
            model = load_model(folder)
    if tta is not None:
        notes += check_windows(model, tta)
    quiet = quiet or not is_rank_zero()
    if data is not None and not isinstance(data, (SegmentationDataset, str, Path)):
        settings = model.config
        data = OwnDataset(data, classes=settings.classes, bands=settings.bands)
    if isinstance(data, SegmentationDataset):
        dataset, machine, check = data, machine or MachineConfig(device="cpu"), check or "all"
    else:
        root = (overrides or {}).get("data.root") if data is None else str(data)
        config = data_config(model, root)
        run = load_recipe(None, dict(overrides or {}), data=config)
        if run.data.root is None and not run.data.is_generated:
            raise UserError("--data", "nothing", "give the folder of photographs and labels")
        machine, check = machine or run.machine, check or run.data.check
        choose_accelerator(machine)
        dataset, description = evaluation_split(run.data, split, trained_on=trained_on(model))
        notes.append(f"{plural(len(dataset), 'image')}: {description}")
        if (note := reading_note(model, run.data)) is not None:
            notes.append(f"note: {note}")
    if (note := unnamed_classes(model, dataset)) is not None:
        notes.append(f"note: {note}")
    # an `out` that cannot be written is refused now, not after the work
    with nullcontext() if out is None or not is_rank_zero() else folder_lock(Path(out)):
        for note in () if quiet else notes:
            print(note, file=sys.stderr)
        with progress_bar("checking the data", len(dataset), shown=not quiet) as progress:
            told: list[str] = []
            check_dataset(model, dataset, check, progress=progress, notify=told.append)
        for note in () if quiet else told:
            print(note, file=sys.stderr)
        with progress_bar("evaluating", len(dataset), shown=not quiet) as progress:
            result = _count(model, dataset, machine, tta, progress)
        if not result.confusion.counts.any():
            place = str(dataset.root or "data")
            raise UserError(place, "no pixel of the evaluation images is labelled", "label some")
        if out is not None and is_rank_zero():
            result.save(out)
    return result


def check_dataset(
    model: Segmenter,
    dataset: SegmentationDataset,
    check: Check = "all",
    *,
    progress: Progress | None = None,
    notify: Notify = lambda note: None,
) -> None:
    """Refuse data that a model cannot be evaluated on, before the first image.

    check: "all" reads every file (unless that has been done before), "quick" headers and a few
    label maps, "none" only compares classes. The model's classes hold where the data name none.
    """
    check_classes(model, dataset)
    if isinstance(dataset, PairedDataset) and check == "quick":
        quick_check(dataset, training=False, notify=notify)
        require_labelled(dataset, "evaluation")
    elif isinstance(dataset, PairedDataset) and check == "all":
        part = Part(dataset.split or "all images", dataset)
        require_valid([part], training=False, progress=progress, notify=notify)


def _count(
    model: Segmenter,
    dataset: SegmentationDataset,
    machine: MachineConfig,
    tta: TestTimeAugmentation | None,
    progress: Progress,
) -> Evaluation:
    module = SegmentationModule(model, TrainingConfig(class_weights="none"), tta=tta)
    device = model.device

    def report(trainer: Trainer, *_: Any) -> None:
        done = trainer.validate_loop.batch_progress.current.ready * trainer.world_size
        progress(min(done, len(dataset)), len(dataset))

    with quiet_lightning(), evaluating(model):
        callbacks: list[Callback] = [LambdaCallback(on_validation_batch_end=report)]
        trainer = build_trainer(machine, callbacks=callbacks, logger=False)
        loader = evaluation_loader(dataset, machine, trainer)
        try:
            with work_errors(trainer, "evaluating"), tf32(choose_accelerator(machine)):
                trainer.validate(module, loader, verbose=False)
        finally:
            model.to(device)
    assert module.scores is not None
    counted = (module.scores, module.confusion, len(dataset))
    return Evaluation(*counted, model.config.classes, module.calibration)


def _number(value: float) -> float | None:
    return None if value != value else value
