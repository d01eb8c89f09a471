"""Time the built-in model on one photograph: in Python, and as a command in a new process.

    python benchmarks/builtin.py [PHOTO] [--threads 2] [--repeats 20]

Without PHOTO, an image of 320 x 240 pixels of noise (the time does not depend on the content).
predict: `model.predict` of the file after a warm-up, reading and resizing included. command: all of
`scaseg predict PHOTO`, imports and loading included, in a new process each time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import scaseg

COMMANDS = 5  # new processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photo", nargs="?", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as place:
        photo = options.photo or noise(Path(place) / "photo.jpg")
        model = scaseg.load_model("outdoor")
        report(
            "predict", [seconds(lambda: model.predict(photo)) for _ in range(options.repeats + 1)]
        )
        report(
            "command", [command(photo, Path(place), options.threads) for _ in range(COMMANDS + 1)]
        )


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def command(photo: Path, place: Path, threads: int) -> float:
    out = tempfile.mkdtemp(dir=place)
    program = [sys.executable, "-m", "scaseg.cli", "predict", str(photo), "--out", out, "--quiet"]
    alone = os.environ | {"OMP_NUM_THREADS": str(threads)}
    return seconds(lambda: subprocess.run([*program, "--device", "cpu"], env=alone, check=True))


def noise(path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (240, 320, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def report(name: str, times: list[float]) -> None:
    times = times[1:]  # the first is the warm-up
    middle = statistics.median(times)
    print(f"{name:8} {middle:6.3f} s  ({min(times):.3f} to {max(times):.3f}, {len(times)} times)")


if __name__ == "__main__":
    main()
