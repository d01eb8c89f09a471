"""The paper's three metrics, from one confusion matrix of whole numbers; and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scaseg.errors import UserError, some_of

BINS = 15  # of confidence, of equal width: what most papers take
TEMPERATURES = [2 ** (step / 8) for step in range(-16, 25)]  # 1/4 to 8: beyond lies chance
MOST_PIXELS = 2048  # of an image, spread over it: the best temperature wants no more


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


def soften(probabilities: Tensor, temperature: float) -> Tensor:
    """Raise probabilities (classes, ...) to 1 / temperature, and make them sum to 1 again.

    The same as dividing scores by it before the softmax. The order of the classes stays, so labels
    never change; above 1 probabilities come closer to each other.
    """
    if temperature == 1:
        return probabilities
    least = torch.finfo(probabilities.dtype).tiny
    return (probabilities.clamp(min=least).log() / temperature).softmax(0)


class Calibration:
    """Whether pixels are right as often as their confidence says, and which temperature would help.

    All of it are sums over pixels: bounded memory, and processes can add theirs.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature  # of the model
        # before and after it: pixels, sum of confidences, right ones; by confidence
        self.bins = torch.zeros(2, 3, BINS, dtype=torch.float64)
        self.losses = torch.zeros(len(TEMPERATURES), dtype=torch.float64)  # -log p of the truth

    def update(self, probabilities: Tensor, truth: Tensor, *, ignore_index: int = 255) -> None:
        """Count an image: probabilities (classes, H, W) at temperature 1, truth (H, W)."""
        labelled = truth != ignore_index
        right = truth[labelled]
        # a GPU adds up its own: to copy every pixel takes longer than the network; MPS cannot
        device = truth.device if truth.is_cuda else torch.device("cpu")
        self.bins, self.losses = self.bins.to(device), self.losses.to(device)
        for index, temperature in enumerate((1.0, self.temperature)):
            if index and temperature == 1:
                self.bins[1] = self.bins[0]
                continue
            confidence, guess = (one[labelled] for one in soften(probabilities, temperature).max(0))
            place = (confidence * BINS).long().clamp(max=BINS - 1).to(device)
            facts = (torch.ones_like(confidence), confidence, guess == right)
            for row, fact in zip(self.bins[index], facts, strict=True):
                row += torch.bincount(place, fact.to(device).double(), minlength=BINS)
        places = labelled.flatten().nonzero()[:, 0]
        places = places[:: -(-len(places) // MOST_PIXELS) or 1]
        some = probabilities.flatten(1)[:, places].float()
        some = some.clamp(min=torch.finfo(torch.float32).tiny).log()
        own = some.gather(0, truth.flatten()[places].long().unsqueeze(0))[0]
        temperatures = torch.tensor(TEMPERATURES, device=some.device).view(-1, 1)
        losses = [
            ((some / these.unsqueeze(2)).logsumexp(1) - own / these).sum(1)
            for these in temperatures.split(len(temperatures) if truth.is_cuda else 1)
        ]
        self.losses += torch.cat(losses).to(device)

    def errors(self) -> tuple[float, float]:
        """Return the expected calibration error before and after the model's temperature.

        The mean distance, over pixels, between the confidence of a bin and its share of right ones.
        """
        pixels, confidence, right = self.bins.unbind(1)  # (2, BINS) each
        before, after = ((confidence - right).abs().sum(1) / pixels.sum(1)).tolist()
        return before, after

    def fit(self) -> float:
        """Return the temperature at which the truth is likeliest; 1 where nothing was counted."""
        if not self.losses.any():
            return 1.0
        best = int(self.losses[1:-1].argmin()) + 1
        low, middle, high = self.losses[best - 1 : best + 2].tolist()
        bend = low - 2 * middle + high
        # a parabola through the lowest point and its neighbors, in steps of the logarithm
        shift = max(-1.0, min(1.0, (low - high) / (2 * bend))) if bend > 0 else 0.0
        return round(TEMPERATURES[best] * 2 ** (shift / 8), 4)


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
        does = "does" if len(absent) == 1 else "do"
        count = f"{len(absent)} of {len(rows)} classes {does} not occur"
        lines.append(f"{count}: {some_of(absent)}")
    return "\n".join(lines)


def percent(share: float, digits: int = 1) -> str:
    """Format a share of 1 in percent, without the sign; NaN is n/a.

    >>> percent(0.7354)
    '73.5'
    """
    return "n/a" if share != share else f"{100 * share:.{digits}f}"
