"""Show why the paper's coefficients, read literally, do not train, and what makes them safe.

    python benchmarks/identity.py DATA WEIGHTS [--out FILE.csv] [--seeds 2] [--steps 300]
        [--frozen]

DATA: a dataset folder as `scaseg train` takes it; WEIGHTS: ImageNet weights of VGG16.
With a_ij = s_i + t_j the context of neuron i is mean(c) + cov(t, c) / (s_i + mean(t)), which has a
pole at s_i = -mean(t), and nothing keeps scores away from it. This trains VGG16 with the block and
a light head on small images with the paper's learning rates (--frozen: only block and head), for
several activations and initial scores. It reports for each: the step at which the loss became NaN,
the distance of the nearest row sum from the pole (|s_i + mean(t)| over the mean of |a_ij|, the
smallest of all neurons and steps), the largest gradient, and the accuracy on held-out images.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import scaseg
from scaseg.config.run import DataConfig
from scaseg.data.sample import as_example
from scaseg.data.splits import build_dataset
from scaseg.data.transforms import ResizeToFit, generator
from scaseg.io.table import write_rows
from scaseg.models.segmenter import Segmenter

SIZE, BATCH, RATE, MOMENTUM, DECAY = 112, 4, 1e-2, 0.9, 5e-4
TRAINED, KEPT = 120, 40  # photographs
VARIANTS: dict[str, dict[str, Any]] = {
    "identity, bias 0": {"activation": "identity", "score_bias": 0.0},
    "identity, bias 1": {"activation": "identity"},
    "identity, bias 1, bound 0.45": {"activation": "identity", "score_bound": 0.45},
    "sigmoid": {},
}
# features (1, C, h, w), or with a backbone that learns pixels (1, 3, H, W); labels of the neurons
Example = tuple[Tensor, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("weights")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--frozen", action="store_true")
    options = parser.parse_args()
    examples, classes = read(options.data, options.weights, frozen=options.frozen)
    rows = []
    for name, settings in VARIANTS.items():
        for seed in range(options.seeds):
            row = {"variant": name, "seed": seed}
            torch.manual_seed(seed)
            model = scaseg.create_model(
                "vgg16",
                "sca",
                "light",
                classes=classes,
                backbone_weights=options.weights,
                **settings,
            )
            row |= trained(model, examples, seed, options.steps, frozen=options.frozen)
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            if options.out is not None:
                write_rows(options.out, rows)


@torch.no_grad()
def read(data: str, weights: str, *, frozen: bool) -> tuple[list[Example], tuple[str, ...]]:
    """The first photographs, or what VGG16 sees of them, and the labels of its neurons."""
    samples = build_dataset(DataConfig(root=data), "train")
    assert samples.classes is not None
    model = scaseg.create_model("vgg16", "none", "light", classes=8, backbone_weights=weights)
    found = []
    for index in range(min(TRAINED + KEPT, len(samples))):
        sample = ResizeToFit(SIZE, SIZE)(samples[index], generator(0, 0, index))
        example = as_example(sample)
        pixels = model.normalize(example.image.unsqueeze(0).contiguous())
        height, width = (side // 8 for side in pixels.shape[-2:])
        labels = example.labels.long()[4::8, 4::8][
            :height, :width
        ]  # of the pixel in a neuron's middle
        seen = model.backbone(pixels, None)[0] if frozen else pixels
        found.append((seen, labels.unsqueeze(0)))
    return found, tuple(samples.classes)


def trained(
    model: Segmenter, examples: list[Example], seed: int, steps: int, *, frozen: bool
) -> dict[str, Any]:
    """Train, and say how that went."""
    model.train()
    rates = {RATE: [*model.context.parameters(), *model.head.parameters()]}
    if not frozen:
        rates[RATE / 10] = list(model.backbone.parameters())
    learned = [weight for own in rates.values() for weight in own]
    groups = [{"params": own, "lr": rate, "base": rate} for rate, own in rates.items()]
    optimizer = torch.optim.SGD(groups, momentum=MOMENTUM, weight_decay=DECAY)
    draws = torch.Generator().manual_seed(seed)
    nearest, steepest, ended = math.inf, 0.0, None
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = group["base"] * (1 - (step - 1) / steps) ** 0.9
        chosen = torch.randint(0, TRAINED, (BATCH,), generator=draws).tolist()
        loss = torch.zeros(())
        for index in chosen:  # one by one: their sizes differ
            seen, labels = features(model, examples[index])
            nearest = min(nearest, margin(model, seen.detach()))
            loss = loss + F.cross_entropy(scores(model, seen), labels, ignore_index=255) / BATCH
        if not math.isfinite(loss.item()):
            ended = step
            break
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([w.grad for w in learned if w.grad is not None])
        steepest = max(steepest, norm.item())
        optimizer.step()
    return {
        "diverged_at_step": ended,
        "nearest_to_the_pole": nearest,
        "largest_gradient": steepest,
        "loss": None if ended else loss.item(),
        "accuracy": None if ended else accuracy(model, examples[TRAINED:]),
    }


def features(model: Segmenter, example: Example) -> Example:
    """The features and labels of a photograph: `read` gives features, or pixels."""
    image, labels = example
    return (model.backbone(image, None)[0] if image.shape[1] == 3 else image), labels


def scores(model: Segmenter, seen: Tensor) -> Tensor:
    found: Tensor = model.head(torch.relu(model.context(seen)))
    return found


@torch.no_grad()
def margin(model: Segmenter, seen: Tensor) -> float:
    """How near the sum of a row is to 0, over the sum of its entries' sizes; 1: far away.

    Own entries are among them here: one of hundreds.
    """
    everyone = torch.arange(seen.shape[-2] * seen.shape[-1])
    rows = model.context.coefficient_rows(seen, None, everyone, None)
    return float((rows.sum(-1).abs() / rows.abs().sum(-1).clamp(min=1e-30)).min())


@torch.no_grad()
def accuracy(model: Segmenter, examples: list[Example]) -> float:
    """Per cent of the labelled neurons that are right."""
    model.eval()
    right = counted = 0
    for example in examples:
        seen, labels = features(model, example)
        known = labels != 255
        right += int((scores(model, seen).argmax(1) == labels)[known].sum())
        counted += int(known.sum())
    return 100 * right / max(1, counted)


if __name__ == "__main__":
    main()
