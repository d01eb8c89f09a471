"""The largest image that trains on a GPU, with and without activation checkpointing.

    PYTHONPATH=src python3 benchmarks/largest_image.py [--gib 24 0] [--backbones mobilenet_v2 vgg16]

One square image a step, bf16, sca, 19 classes, SGD with momentum, norms frozen; memory limited to
so many GiB (0: all). Memory grows like the number of pixels, so two small sizes say where
the limit is; then a side a little below it must train and one a little above must not.
"""

from __future__ import annotations

import argparse
import gc
import math
import time

import torch

import scaseg
from scaseg.config.run import MachineConfig, TrainingConfig
from scaseg.data.sample import Batch
from scaseg.system import autocast
from scaseg.training.module import SegmentationModule

STEP = 64  # pixels between sides that are tried
HEADS = {"vgg16": "fcn"}  # the paper's; others: compact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, nargs="+", default=[24, 0])
    parser.add_argument("--backbones", nargs="+", default=["mobilenet_v2", "vgg16"])
    options = parser.parse_args()
    total = torch.cuda.get_device_properties(0).total_memory
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for backbone in options.backbones:
        for checkpoints in (False, True):
            module = build(backbone, checkpoints)
            small, large = (step(module, side)[1] for side in (768, 1536))
            slope = (large - small) / (1536**2 - 768**2)
            name = f"{backbone:12} {'checkpointing' if checkpoints else 'all kept':13}"
            print(f"{name} {slope:5.0f} bytes a pixel", flush=True)
            for gib in options.gib:
                limit = gib * 2**30 if gib else total
                torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
                guess = math.sqrt(max(1, 0.97 * limit - small) / slope + 768**2)
                found, seconds = search(module, int(guess) // STEP)
                place = f"{gib:g} GiB" if gib else f"{total / 2**30:.0f} GiB (all)"
                print(f"{name} {place:14} {found} x {found}, {seconds:.2f} s a step", flush=True)
                torch.cuda.set_per_process_memory_fraction(1.0)
            del module
            gc.collect()
            torch.cuda.empty_cache()


def build(backbone: str, checkpoints: bool) -> SegmentationModule:
    model = scaseg.create_model(backbone, "sca", HEADS.get(backbone, "compact"), classes=19)
    model.backbone.checkpoints_activations = checkpoints
    module = SegmentationModule(model, TrainingConfig(), frozen_norms=True).to("cuda")
    module.use_gpu("bf16", MachineConfig())
    module.train()
    ((module.optimizer,), _) = module.configure_optimizers()  # type: ignore[assignment]
    return module


def step(module: SegmentationModule, side: int) -> tuple[float, int]:
    """Train on one image: seconds, and the most bytes in use."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    images = torch.randint(0, 256, (1, 3, side, side), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, 19, (1, side, side), dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    with autocast("cuda", "bf16"):
        loss = module.batch_loss(Batch(images, labels, torch.tensor([[side, side]]), ["noise"]))
    optimizer: torch.optim.Optimizer = module.optimizer  # type: ignore[assignment]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cuda.max_memory_allocated()


def search(module: SegmentationModule, guess: int) -> tuple[int, float]:
    """The largest side that trains, near a guess in steps, and the seconds of a step of it."""
    seconds: dict[int, float | None] = {}

    def trains(steps: int) -> bool:
        try:
            seconds[steps] = step(module, steps * STEP)[0]
        except RuntimeError as error:  # out of memory, or beyond what a kernel counts
            seconds[steps] = None
            if not isinstance(error, torch.OutOfMemoryError):
                print(f"{steps * STEP}: {str(error).splitlines()[0][:90]}")
        if seconds[steps] is None:
            module.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()
        return seconds[steps] is not None

    low, high = 1536 // STEP, guess + 4
    upcoming = guess
    while high - low > 1:
        low, high = (upcoming, high) if trains(upcoming) else (low, upcoming)
        upcoming = low + 1 if low >= guess else max(low + 1, min(high - 2, (low + 7 * high) // 8))
    return low * STEP, seconds.get(low) or math.nan


if __name__ == "__main__":
    main()
