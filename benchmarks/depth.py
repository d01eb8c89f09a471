"""Time backbones that were cut off early, with and without context, on one core.

    python benchmarks/depth.py --out docs/results/depth/cpu.csv

A forward pass over one photograph of 320 x 240 with fresh weights: medians of CPU time, so that
other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from datetime import date
from pathlib import Path

import torch

import scaseg
from scaseg.io.table import write_rows

CUTS = {"vgg16": (2, 3, 4, 5), "mobilenet_v2": (3, 5, 7)}
CONTEXTS = ("none", "average", "sca", "object")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for backbone, cuts in CUTS.items():
        for stages in cuts:
            own = {context: build(backbone, stages, context) for context in CONTEXTS}
            taken: dict[str, list[float]] = {context: [] for context in CONTEXTS}
            for _ in range(options.repeats + 1):  # in turn: what slows the machine slows all
                for context, model in own.items():
                    taken[context].append(milliseconds(model))
            for context, model in own.items():
                median = statistics.median(taken[context][1:])  # the first warms up
                rows.append(
                    {
                        "backbone": backbone,
                        "stages": stages,
                        "context": context,
                        "parameters": sum(one.numel() for one in model.parameters()),
                        "milliseconds": round(median, 1),
                        "date": date.today().isoformat(),
                    }
                )
                print(backbone, stages, context, f"{median:.0f} ms", flush=True)
    write_rows(options.out, rows)


def build(backbone: str, stages: int, context: str) -> torch.nn.Module:
    """A network of 8 classes as in the study, its last stages left out."""
    classes = [str(index) for index in range(8)]
    model: torch.nn.Module = scaseg.create_model(
        backbone, context, "compact", classes=classes, backbone_options={"stages": stages}
    )
    return model.eval()


def milliseconds(model: torch.nn.Module) -> float:
    """CPU time of one pass."""
    image = torch.zeros(1, 3, 240, 320)
    began = time.process_time()
    with torch.inference_mode():
        model(image)
    return 1000 * (time.process_time() - began)


if __name__ == "__main__":
    main()
