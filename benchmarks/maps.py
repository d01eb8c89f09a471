"""Measure how selective a model's maps are, and whether its decisions depend on them.

    python benchmarks/maps.py DATA [--model outdoor] [--split test] [--images 48] [--out FILE.csv]

Prints `scaseg.explanation.selectivity` and `scaseg.explanation.occlusion` over images spread
evenly over a split, each with its standard error over the images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import scaseg
from scaseg.config.run import DataConfig
from scaseg.data.splits import build_dataset
from scaseg.explanation.occlusion import occlusion
from scaseg.explanation.selectivity import selectivity
from scaseg.io.table import write_rows

OCCLUDED = ("pointed", "random", "difference", "removed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--model", default="outdoor")
    parser.add_argument("--split", default="test")
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = scaseg.load_model(options.model)
    samples = build_dataset(DataConfig(root=options.data), options.split)
    count = min(options.images, len(samples))
    chosen = [samples[index * len(samples) // count].image for index in range(count)]
    maps, drops = selectivity(model, chosen), occlusion(model, chosen, decisions=8, repeats=2)
    print(maps.table())
    print(drops.table())
    found = {name: mean for name, mean in vars(maps).items() if name != "images"}
    found |= {f"occlusion_{name}": getattr(drops, name) for name in OCCLUDED}
    rows = [
        {"measure": name, "mean": own.mean, "error": own.error, "images": count}
        for name, own in found.items()
    ]
    if options.out is not None:
        write_rows(options.out, rows)


if __name__ == "__main__":
    main()
