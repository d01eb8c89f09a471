"""What one core does for many photographs: the figures behind docs/scale.md, as CSV.

    python benchmarks/scale.py > docs/timings/scale_cpu.csv

Seconds are of CPU time for one photograph of 640 x 480 pixels (COCO's usual size), so that a busy
machine changes little; an object store is a server on this machine.
"""

from __future__ import annotations

import csv
import io
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePath

import numpy as np
import torch
from PIL import Image

import scaseg
from scaseg.config.recipe import load_recipe
from scaseg.data.augmentations import Mixture  # noqa: F401  (its import is no part of a loader)
from scaseg.data.decode.files import Embedded
from scaseg.data.decode.image import read_image
from scaseg.data.loading import TrainingDataset
from scaseg.data.sample import Sample
from scaseg.data.transforms import build_transforms
from scaseg.inference.outputs import Outputs
from scaseg.inference.parts import write_part
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile
from scaseg.io.remote import read_object

SIZE = (480, 640)
CLASSES = 171  # of COCO Stuff


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    random = np.random.default_rng(0)
    coarse = random.integers(0, 255, (15, 20, 3)).astype(np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize(SIZE[::-1], Image.Resampling.BICUBIC))
    picture = (picture + random.normal(0, 6, picture.shape)).clip(0, 255).astype(np.uint8)
    file = folder / "photo.jpg"
    Image.fromarray(picture).save(file, quality=90)
    data = file.read_bytes()
    regions = np.kron(random.integers(0, CLASSES, (6, 8)), np.ones((80, 80))).astype(np.uint8)
    palette = scaseg.load_model("outdoor").config.palette[:1] * CLASSES
    found = Segmentation(regions, tuple(map(str, range(CLASSES))), palette)
    outputs = Outputs(folder / "out")
    name = InputFile(file, PurePath("photo"))
    outputs.prepare(name.name)
    run = load_recipe("coco_stuff_10k")
    sample = Sample(picture, regions.astype(np.int32), "photo")
    examples = TrainingDataset([sample], build_transforms(run.augment), seed=0)  # type: ignore[arg-type]
    handler = partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/photo.jpg"

    packed = [name] * 1

    def pack() -> None:
        write_part(folder / "part.parquet", outputs, packed, "parquet")

    figures: dict[str, tuple[float, str]] = {}
    figures["decode a photograph"] = cpu(lambda: read_image(Embedded(data, ""))), "s"
    figures["augment for training"] = cpu(lambda: examples[0, 0]), "s"
    figures["write a label map"] = cpu(lambda: outputs.write(name, found)), "s"
    figures["pack a label map"] = cpu(pack), "s"
    figures["fetch from an object store"] = cpu(lambda: read_object(address, 1 << 30)), "s"
    figures["photograph"] = float(len(data)), "bytes"
    figures["label map"] = float((folder / "out" / "photo.png").stat().st_size), "bytes"
    model = scaseg.create_model("vgg16", "sca", "fcn", classes=CLASSES)
    figures["weights"] = float(sum(one.numel() for one in model.parameters())), "numbers"
    server.shutdown()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["what", "value", "unit", "date", "machine"])
    machine = f"one core of {processor()}, torch {torch.__version__}"
    for what, (value, unit) in figures.items():
        writer.writerow([what, f"{value:.4g}", unit, time.strftime("%Y-%m-%d"), machine])


class Quiet(SimpleHTTPRequestHandler):
    """A server that says nothing."""

    def log_message(self, *_: object) -> None:
        return


def cpu(work: Callable[[], object], rounds: int = 5, seconds: float = 0.4) -> float:
    """CPU time of one call on this thread and those it starts: the least of some rounds."""
    work()
    best = float("inf")
    for _ in range(rounds):
        count, began = 0, time.process_time()
        while time.process_time() - began < seconds:
            work()
            count += 1
        best = min(best, (time.process_time() - began) / count)
    return best


def processor() -> str:
    """The name of this machine's processor."""
    for line in io.StringIO(Path("/proc/cpuinfo").read_text()):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
