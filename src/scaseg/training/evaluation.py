"""Judging a model: the paper's three metrics over a split, in one process or several."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pytorch_lightning import Callback, Trainer

from scaseg.config.run import DataConfig, MachineConfig, TrainingConfig
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.sample import IGNORE
from scaseg.data.validation.check import quick_check
from scaseg.data.validation.require import Part, require_sound
from scaseg.inference.test_time import TestTimeAugmentation
from scaseg.io.model_folder import CONFIG
from scaseg.metrics import ConfusionMatrix, Scores
from scaseg.models.segmenter import Segmenter
from scaseg.training.module import SegmentationModule
from scaseg.training.trainer import (
    build_trainer,
    evaluation_loader,
    one_line_faults,
    quiet_lightning,
)

Check = Literal["all", "quick", "none"]
MOST_SAID = 300  # characters of settings in a message: longer ones are cut short
MOST_NAMES = 12


@dataclass(frozen=True)
class Evaluation:
    """Metrics, what they were computed from, and how many photographs that was."""

    scores: Scores
    confusion: ConfusionMatrix
    images: int

    def to_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """What --json prints, in percent; null for a class that does not occur."""
        return {
            **{name: _number(value) for name, value in self.scores.summary().items()},
            "per_class": {
                name: {"accuracy": _number(100 * accuracy), "IoU": _number(100 * iou)}
                for name, accuracy, iou in zip(
                    classes, self.scores.accuracies, self.scores.ious, strict=True
                )
            },
            "images": self.images,
        }


def check_images(
    model: Segmenter,
    dataset: SegmentationDataset,
    check: Check = "all",
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Refuse data that a model cannot be judged by, before any of them is: ValueError says why.

    check: every file is read (and remembered as long as none is touched), headers and a few label
    maps, or none of them. The model's classes hold where the data name none.
    """
    _check_classes(model, dataset)
    if isinstance(dataset, PairedDataset) and check == "quick":
        quick_check(dataset, masks=False)
    elif isinstance(dataset, PairedDataset) and check == "all":
        part = Part(dataset.split or "all images", dataset)
        require_sound([part], trained_on=False, progress=progress)


def evaluate(
    model: Segmenter,
    dataset: SegmentationDataset,
    *,
    test_time: TestTimeAugmentation | None = None,
    machine: MachineConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
    check: Check = "all",
) -> Evaluation:
    """Count a model's predictions against the truth, at the labels' own resolution.

    The model's mode and device are left as they were. With several devices, every process returns
    the same numbers as one process would. check: see check_images.
    """
    machine = machine or MachineConfig(device="cpu")
    check_images(model, dataset, check)
    task = SegmentationModule(model, TrainingConfig(class_weights="none"), test_time=test_time)
    modes, device = [module.training for module in model.modules()], next(model.parameters()).device
    with quiet_lightning():
        callbacks: list[Callback] = [] if progress is None else [_Progress(progress, len(dataset))]
        trainer = build_trainer(machine, callbacks=callbacks, logger=False)
        loader = evaluation_loader(dataset, machine, trainer)
        try:
            with one_line_faults(trainer, lambda: "evaluating"):
                trainer.validate(task, loader, verbose=False)
        finally:
            model.to(device)
            for module, mode in zip(model.modules(), modes, strict=True):
                module.training = mode  # each its own: some may be frozen
    assert task.scores is not None
    return Evaluation(task.scores, task.confusion, len(dataset))


class _Progress(Callback):
    """Tell how many photographs are done, over all processes."""

    def __init__(self, hear: Callable[[int, int], None], total: int) -> None:
        self.hear = hear
        self.total = total

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            done = trainer.validate_loop.batch_progress.current.ready * trainer.world_size
            self.hear(min(done, self.total), self.total)


def data_of(model: Segmenter, root: str | None) -> DataConfig:
    """How the labels of a model's own data are read, for data of the same kind elsewhere."""
    try:
        config = model.config.trained_on()
    except ValueError as fault:
        raise ValueError(f"--model: {CONFIG}: {fault}") from fault
    return replace(config, root=root if root is not None else config.root)


def trained_on(model: Segmenter) -> str | None:
    """Where the photographs of a model's training lie; None where nobody knows."""
    config = data_of(model, None)
    return "generated scenes" if config.is_generated else config.root  # the former: no folder


def unnamed_classes(model: Segmenter, dataset: SegmentationDataset) -> str | None:
    """Say which classes the labels of data that name none are taken for.

    None where nothing is to be said: the data name some, are those of the training, or the model's
    own classes have only numbers.
    """
    root, trained, own = dataset.root, trained_on(model), model.config.classes
    if dataset.classes is not None or root is None:
        return None
    if trained is not None and Path(trained).absolute() == root.absolute():
        return None
    if own == tuple(f"class {index}" for index in range(len(own))):
        return None
    names = ", ".join(own if len(own) <= MOST_NAMES else (*own[:MOST_NAMES], "..."))
    return f"{root} names no classes: its labels 0 to {len(own) - 1} are taken for {names}"


def _check_classes(model: Segmenter, dataset: SegmentationDataset) -> None:
    """Refuse data whose classes are others, or in another order: every number would be wrong."""
    own, theirs = model.config.classes, dataset.classes
    if theirs is None:
        dataset.classes = own
    elif theirs != own:
        place, mine, other = next(
            (index, *pair)
            for index, pair in enumerate(
                zip([*own, *("",) * len(theirs)], [*theirs, *("",) * len(own)], strict=False)
            )
            if pair[0] != pair[1]
        )
        raise ValueError(
            f"{dataset.root}: class {place} is {other!r}, the model's is {mine!r} ({len(theirs)} "
            f"and {len(own)} classes); give data with the model's classes in their order, or bring "
            f"theirs there: {_mapping(theirs, own, plain=_is_plain(dataset))}"
        )


def _mapping(theirs: tuple[str, ...], own: tuple[str, ...], *, plain: bool = True) -> str:
    r"""The settings that read other data as a model's classes: those of equal names, to begin with.

    >>> _mapping(("road", "car"), ("sky", "road"))
    '--data.classes \'["sky", "road"]\' --data.label_map \'{0: 1, 1: 255}\' (255: does not count)'
    """
    places = {name.casefold(): index for index, name in enumerate(own)}
    values = {index: places.get(name.casefold(), IGNORE) for index, name in enumerate(theirs)}
    classes, values_said = json.dumps(own, ensure_ascii=False), str(values)
    if len(classes) + len(values_said) > MOST_SAID:
        classes, plain = "[...]", False
    if not plain:
        values_said = "{value: class, ...}"
    return f"--data.classes '{classes}' --data.label_map '{values_said}' ({IGNORE}: does not count)"


def _is_plain(dataset: SegmentationDataset) -> bool:
    """Whether the values on disk are the classes, so that one can be told from the other."""
    return (
        isinstance(dataset, PairedDataset)
        and not dataset.label_map
        and not dataset.reduce_zero_label
        and dataset.ignore_index == IGNORE
    )


def _number(value: float) -> float | None:
    return None if value != value else value
