"""Time training steps, in one process and in several on the same device.

    python benchmarks/steps.py [--context sca] [--jobs 4] [--size 320 320] [--padded]
        [--channels-last] [--no-finite-check]

VGG16 with the compact head, batches of 4, bfloat16, random images. --padded: images smaller than
the batch. --no-finite-check: do not check each loss for NaN. Prints one line per process.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import multiprocessing

import scaseg

WARM_UP, STEPS, BATCH, CLASSES = 8, 40, 4, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--context", default="sca")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--size", type=int, nargs=2, default=(320, 320))
    parser.add_argument("--padded", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--no-finite-check", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(options.jobs)
    jobs = [context.Process(target=steps, args=(options, together)) for _ in range(options.jobs)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


def steps(options: argparse.Namespace, together: Any) -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device(options.device)
    height, width = options.size
    model = scaseg.create_model("vgg16", options.context, "compact", classes=CLASSES)
    model = model.to(device).train()
    images = torch.randn(BATCH, 3, height, width, device=device)
    labels = torch.randint(0, CLASSES, (BATCH, height, width), device=device)
    sizes = None
    if options.padded:
        shorter = [(height * 3 // 4, width)] * (BATCH - 1) + [(height, width * 3 // 4)]
        sizes = torch.tensor(shorter, device=device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(images, sizes).float(), labels)
        if not options.no_finite_check:
            float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    finish(device)
    together.wait()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    finish(device)
    seconds = time.perf_counter() - start
    found = {"images_per_second": round(BATCH * STEPS / seconds, 1)}
    found["milliseconds_a_step"] = round(1000 * seconds / STEPS, 2)
    print(json.dumps(found), flush=True)


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
