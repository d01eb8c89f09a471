"""The largest image that trains on a GPU, with and without activation checkpointing.

    PYTHONPATH=src python3 benchmarks/largest_image.py [--gib 24 0] [--backbones mobilenet_v2 vgg16]
        [--out largest.csv]

One square image a step, bf16, sca, 19 classes, SGD with momentum, norms frozen; memory limited to
so many GiB (0: all). Memory grows like the number of pixels, so two small sizes say where
the limit is; from there sides of 3 % more are tried until one fails, or of 3 % less until one
trains. Each line is printed, and written, when it is known.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import torch

import scaseg
from scaseg.config.run import MachineConfig, TrainingConfig
from scaseg.data.sample import Batch
from scaseg.io.table import write_rows
from scaseg.system import autocast
from scaseg.training.module import SegmentationModule

STEP = 32  # sides are multiples of it
FACTOR = 1.03  # between sides that are tried
SMALL, LARGE = 512, 1024  # sides that say what a pixel takes
HEADS = {"vgg16": "fcn"}  # the paper's; others: compact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, nargs="+", default=[24, 0])
    parser.add_argument("--backbones", nargs="+", default=["mobilenet_v2", "vgg16"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    total = torch.cuda.get_device_properties(0).total_memory
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(machine, flush=True)
    rows: list[dict[str, Any]] = []
    for backbone in options.backbones:
        module = build(backbone)
        for gib, checkpoints in product(options.gib, (False, True)):
            limit = gib * 2**30 if gib else total
            module.model.backbone.checkpoints_activations = checkpoints
            torch.cuda.set_per_process_memory_fraction(1.0)
            step(module, SMALL)  # what libraries keep from their first call
            small, large = (step(module, side)[1] for side in (SMALL, LARGE))
            slope = (large - small) / (LARGE**2 - SMALL**2)
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
            guess = math.sqrt(max(1.0, 0.95 * limit - small) / slope + SMALL**2)
            side, seconds, why = search(module, guess)
            row = {"date": date.today().isoformat(), "machine": machine}
            row |= {"backbone": backbone, "checkpointing": checkpoints}
            row |= {"gib": round(limit / 2**30, 1), "bytes_a_pixel": round(slope)}
            row |= {"side": side, "seconds": round(seconds, 2), "limit": why}
            rows.append(row)
            print(*list(row.values())[2:], flush=True)
            if options.out:
                write_rows(options.out, rows)
        del module
        clear()


def build(backbone: str) -> SegmentationModule:
    model = scaseg.create_model(backbone, "sca", HEADS.get(backbone, "compact"), classes=19)
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


def search(module: SegmentationModule, guess: float) -> tuple[int, float, str]:
    """The largest side that trains, the seconds of its step, and why a larger one does not."""
    why = ""

    def trains(side: int) -> float | None:
        nonlocal why
        try:
            return step(module, side)[0]
        except RuntimeError as error:  # out of memory, or beyond what a kernel counts
            is_memory = isinstance(error, torch.OutOfMemoryError)
            why = "memory" if is_memory else str(error).splitlines()[0][:90]
        module.zero_grad(set_to_none=True)
        clear()
        return None

    side, best = _multiple(guess), (0, math.nan)
    while (seconds := trains(side)) is not None and side > best[0]:
        best, side = (side, seconds), _multiple(side * FACTOR)
    while not best[0] and side > LARGE:
        side = _multiple(side / FACTOR)
        if (seconds := trains(side)) is not None:
            best = side, seconds
    return *best, why


def _multiple(side: float) -> int:
    return int(side) // STEP * STEP


def clear() -> None:
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
