"""Time `scaseg predict` against a plain loop around the same network.

    python benchmarks/predict.py PHOTOS MODEL [--device cuda] [--batch-size 8] [--count 100]

Runs three variants over the same images in turn, several times, and prints medians of images/s.
network: only the network, on tensors in memory. loop: read, normalise, network, softmax, argmax,
save, one image at a time. predict: what the command does. The last line is the share of predict's
time that is spent outside the network.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import scaseg
from scaseg.inference.inputs import Inputs
from scaseg.inference.predict import usual_batch_size
from scaseg.inference.preprocessing import Preprocessed
from scaseg.system import autocast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos")
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--precision", default="32")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model = scaseg.load_model(options.model).to(options.device)
    photographs = list(Inputs([options.photos], Path("nowhere")))[: options.count]
    batch_size = usual_batch_size(options.batch_size, options.device)
    images = [np.array(Image.open(one.path).convert("RGB")) for one in photographs]
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    seen = [Preprocessed(model, tensor).whole() for tensor in tensors]
    ways = {
        "network": lambda: network(model, seen, batch_size, options),
        "loop": lambda: loop(model, photographs, options.device),
        "predict": lambda: job(photographs, options),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.repeats + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if options.device == "cuda":
                torch.cuda.synchronize()
            if repeat:  # the first is the warm-up
                taken[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(times) for name, times in taken.items()}
    for name, seconds in middle.items():
        print(f"{name:8} {len(photographs) / seconds:8.2f} images/s")
    print(f"share of predict outside the network: {1 - middle['network'] / middle['predict']:.1%}")


@torch.no_grad()
def network(
    model: torch.nn.Module,
    seen: list[torch.Tensor],
    batch_size: int,
    options: argparse.Namespace,
) -> None:
    """Photographs of one size in batches; those of odd sizes alone."""
    by_size: dict[torch.Size, list[torch.Tensor]] = {}
    for view in seen:
        by_size.setdefault(view.shape, []).append(view)
    with autocast(options.device, options.precision):
        for alike in by_size.values():
            for first in range(0, len(alike), batch_size):
                model(torch.cat(alike[first : first + batch_size]).to(options.device))


@torch.no_grad()
def loop(model: torch.nn.Module, photographs: list, device: str) -> None:
    with tempfile.TemporaryDirectory() as out:
        for photograph in photographs:
            image = torch.from_numpy(np.array(Image.open(photograph.path).convert("RGB")))
            view = Preprocessed(model, image.permute(2, 0, 1).to(device)).whole()
            scores = torch.nn.functional.interpolate(
                model(view), size=image.shape[:2], mode="bilinear", align_corners=False
            )
            labels = scores.softmax(1).argmax(1)[0].to(torch.uint8).cpu().numpy()
            Image.fromarray(labels).save(Path(out) / f"{photograph.name.name}.png")


def job(photographs: list, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as out:
        scaseg.predict_folder(
            options.model,
            [one.path for one in photographs],
            out,
            device=options.device,
            precision=options.precision,
            batch_size=options.batch_size,
            workers=options.workers,
        )


if __name__ == "__main__":
    main()
