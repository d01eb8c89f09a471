"""Train the network on a folder of photographs in plain PyTorch: the parts work together.

python benchmarks/stanford_background.py --data ../shared/data/stanford_background \
    --weights ../shared/weights/vgg16_features_fp16.safetensors --context sca --seed 0

The recipe of the paper but for a compact head and 30 epochs of batches of 4: SGD with momentum
0.9, poly 0.9, 1e-3 for the backbone and 1e-2 for the rest, mirrored images, no class weights.
Prints one line of JSON a run. `scaseg train` will replace this script.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.nn.functional as F

from scaseg import create_model
from scaseg.data import Example, FolderDataset, collate, normalise
from scaseg.metrics import ConfusionMatrix
from scaseg.models import Segmenter


def load(dataset: FolderDataset, model: Segmenter, device: torch.device) -> list[Example]:
    examples = (
        normalise(dataset[i], model.config.mean, model.config.std) for i in range(len(dataset))
    )
    return [e._replace(image=e.image.to(device), labels=e.labels.to(device)) for e in examples]


def train(model: Segmenter, examples: list[Example], options: argparse.Namespace) -> None:
    new = [*model.context.parameters(), *model.head.parameters()]
    groups = [
        {"params": list(model.backbone.parameters()), "lr": 1e-3},
        {"params": new, "lr": 1e-2},
    ]
    optimiser = torch.optim.SGD(groups, momentum=0.9, weight_decay=5e-4)
    steps = options.epochs * (len(examples) // options.batch_size)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimiser, steps, power=0.9)
    model.train()
    for _ in range(options.epochs):
        order = torch.randperm(len(examples)).tolist()
        for start in range(0, len(order) - options.batch_size + 1, options.batch_size):
            chosen = [examples[i] for i in order[start : start + options.batch_size]]
            flipped = [
                e._replace(image=e.image.flip(-1), labels=e.labels.flip(-1))
                if torch.rand(()) < 0.5
                else e
                for e in chosen
            ]
            batch = collate(flipped)
            with torch.autocast(batch.images.device.type, dtype=torch.bfloat16):
                scores = model(batch.images, batch.sizes.to(batch.images.device))
            loss = F.cross_entropy(scores.float(), batch.labels, ignore_index=255)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()


@torch.no_grad()
def evaluate(model: Segmenter, examples: list[Example]) -> ConfusionMatrix:
    model.eval()
    matrix = ConfusionMatrix(len(model.config.classes))
    for example in examples:
        with torch.autocast(example.image.device.type, dtype=torch.bfloat16):
            scores = model(example.image.unsqueeze(0))
        matrix.update(scores.argmax(1)[0].cpu(), example.labels.cpu())
    return matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--context", default="sca")
    parser.add_argument("--pair-channels", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--images", type=int, default=None, help="train on the first N only")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, test_set = (FolderDataset(options.data, split) for split in ("train", "test"))
    assert train_set.classes is not None
    more = {"pair_channels": options.pair_channels} if options.context == "sca" else {}
    model = create_model(
        "vgg16",
        options.context,
        "compact",
        classes=train_set.classes,
        backbone_weights=options.weights,
        **more,
    ).to(device)
    start = time.perf_counter()
    train(model, load(train_set, model, device)[: options.images], options)
    seconds = time.perf_counter() - start
    scores = evaluate(model, load(test_set, model, device)[: options.images]).scores()
    summary = {name: round(value, 2) for name, value in scores.summary().items()}
    print(json.dumps({**vars(options), **summary, "train_s": round(seconds)}), flush=True)


if __name__ == "__main__":
    main()
