"""The paper's three metrics, from one confusion matrix of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scaseg.errors import UserError

NAMED = 8  # classes that do not occur, in the line about them


class ConfusionMatrix:
    """Counts pixels by true class (row) and predicted class (column), int64: sums are exact.

    Matrices of several processes may be added in any order and give the same metrics.
    """

    def __init__(self, classes: int, *, ignore_index: int = 255) -> None:
        self.classes = classes
        self.ignore_index = ignore_index
        self.counts = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, predicted: Tensor, truth: Tensor) -> None:
        """Count a prediction (...) against its truth (...), integers of one shape.

        Unlabelled pixels (ignore_index) do not count. Any other value that is no class is refused:
        leaving it out would make the result look better than it is.
        """
        if predicted.shape != truth.shape:
            problem = f"has shape {tuple(predicted.shape)} but truth {tuple(truth.shape)}"
            raise UserError("prediction", problem, "compare at the labels' own resolution")
        if predicted.dtype.is_floating_point or truth.dtype.is_floating_point:
            raise UserError("prediction", "not whole numbers", "give scores.argmax(1)")
        labelled = truth != self.ignore_index
        true, guess = truth[labelled].long(), predicted[labelled].long()
        for name, values in (("truth", true), ("prediction", guess)):
            if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < self.classes:
                wrong = int(values[(values < 0) | (values >= self.classes)][0])
                more = f" nor {self.ignore_index} (unlabelled)" if name == "truth" else ""
                problem = f"holds {wrong}, which is none of the {self.classes} classes{more}"
                raise UserError(name, problem, "check how classes are numbered")
        counted = torch.bincount(true * self.classes + guess, minlength=self.classes**2)
        self.counts += counted.view(self.classes, self.classes).cpu()

    def scores(self) -> Scores:
        """Compute the metrics of everything counted so far."""
        counts = self.counts.double()
        right, true, guessed = counts.diag(), counts.sum(1), counts.sum(0)
        present = true > 0
        accuracy = torch.where(present, right / true.clamp(min=1), torch.nan)
        iou = torch.where(present, right / (true + guessed - right).clamp(min=1), torch.nan)
        pixels = int(self.counts.sum())
        return Scores(
            pixel_accuracy=float(right.sum() / pixels) if pixels else float("nan"),
            class_accuracy=float(accuracy.nanmean()),
            mean_iou=float(iou.nanmean()),
            accuracies=tuple(accuracy.tolist()),
            ious=tuple(iou.tolist()),
            pixels=pixels,
        )


@dataclass(frozen=True)
class Scores:
    """Shares between 0 and 1; NaN for a class that never occurs in the truth."""

    pixel_accuracy: float  # PPA, elsewhere aAcc
    class_accuracy: float  # CAA, elsewhere mAcc: mean over the classes that occur
    mean_iou: float  # mIoU, over the same
    accuracies: tuple[float, ...]
    ious: tuple[float, ...]
    pixels: int

    def summary(self) -> dict[str, float]:
        """Return the three metrics in percent, by the paper's names."""
        shares = (self.pixel_accuracy, self.class_accuracy, self.mean_iou)
        return {name: 100 * one for name, one in zip(("PPA", "CAA", "mIoU"), shares, strict=True)}

    def table(self, names: Sequence[str]) -> str:
        """Return all metrics in percent as text, by both their usual names."""
        return (
            f"{class_table(names, self.accuracies, self.ious)}\n\n"
            f"PPA/aAcc {percent(self.pixel_accuracy)}   "
            f"CAA/mAcc {percent(self.class_accuracy)}   mIoU {percent(self.mean_iou)}"
        )


def class_table(names: Sequence[str], accuracies: Sequence[float], ious: Sequence[float]) -> str:
    """Return accuracy and IoU of each class that occurs as lines of text; a line has the others."""
    rows = list(zip(names, accuracies, ious, strict=True))
    present = [row for row in rows if row[1] == row[1]]
    absent = [row[0] for row in rows if row[1] != row[1]]
    width = max(len(name) for name in [*(row[0] for row in present), "class"])
    lines = [f"{'class':<{width}}  {'accuracy':>8}  {'IoU':>6}"]
    for name, accuracy, iou in present:
        lines.append(f"{name:<{width}}  {percent(accuracy):>8}  {percent(iou):>6}")
    if absent:
        more = f" and {len(absent) - NAMED} more" if len(absent) > NAMED else ""
        does = "does" if len(absent) == 1 else "do"
        lines.append(f"{len(absent)} of {len(rows)} classes {does} not occur: ")
        lines[-1] += f"{', '.join(absent[:NAMED])}{more}"
    return "\n".join(lines)


def percent(share: float, digits: int = 1) -> str:
    """Format a share of 1 in percent, without the sign; NaN is n/a.

    >>> percent(0.7354)
    '73.5'
    """
    return "n/a" if share != share else f"{100 * share:.{digits}f}"
