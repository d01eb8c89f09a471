"""Inside a training: layouts, CUDA graphs, padding, validation (`scaseg bench --what run`: parts).

    PYTHONPATH=src python3 benchmarks/training.py PHOTOS [...] [--recipe own_folder] [--workers 8]
        [--what step validation run] [--key training.batch_size=16] [--out timings.csv]

PHOTOS: folders with images/ and labels/. All in images/s, the best of several rounds. step: one
batch again and again, by a plain loop of PyTorch, then by ours: as it is, as CUDA graphs in both
layouts, padded. validation: of 300 photographs, each cut by one of 100 pairs of shares of its
sides, image by image and in batches; cuDNN plans each new size the first time. run: `train`, its
fastest epoch, and the whole of it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.bench.measure import images_per_second
from scaseg.bench.training import Step, network, plain_loop, training_step, whole_batch
from scaseg.config.recipe import load_recipe
from scaseg.config.run import MachineConfig, RunConfig
from scaseg.data.sample import Sample
from scaseg.data.splits import training_splits
from scaseg.io.table import write_rows
from scaseg.models.segmenter import Segmenter
from scaseg.system import choose_precision
from scaseg.training.evaluation import Evaluation, evaluate
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
KINDS = ("step", "validation", "run")


class Report:
    """Lines of images/s, printed as they come."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = dict(about)
        self.rows: list[dict[str, Any]] = []

    def __call__(self, what: str, setting: str, value: float, unit: str = "images/s") -> None:
        row = {"what": what, "setting": setting, "value": round(value, 3), "unit": unit}
        self.rows.append(self.about | row)
        shown = f"{value:8.1%} {unit}" if unit == "share" else f"{value:8.1f} {unit}"
        print(f"{what:8} {setting:44} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", nargs="+")
    parser.add_argument("--recipe", default="own_folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--epochs", type=int, default=4, help="of run")
    parser.add_argument(
        "--only", nargs="+", default=[], help="of step and run: these settings alone"
    )
    parser.add_argument("--key", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out")
    options = parser.parse_args()
    about: dict[str, Any] = {"recipe": options.recipe}
    about |= {"machine": torch.cuda.get_device_name() if CUDA else "cpu"}
    about |= {"torch": torch.__version__, "workers": options.workers}
    print(" ".join(f"{key} {value}," for key, value in about.items()), *options.key)
    report = Report(about)
    with tempfile.TemporaryDirectory() as temporary:
        for photos in map(Path, options.photos):
            report.about["data"] = photos.name
            print(photos.name)
            measure(photos, Path(temporary) / f"{photos.name}.runs", options, report)
            if options.out:
                write_rows(Path(options.out), report.rows)


def measure(photos: Path, place: Path, options: argparse.Namespace, report: Report) -> None:
    keys: dict[str, Any] = dict(one.split("=", 1) for one in options.key)
    keys |= {"data.root": str(photos), "data.check": "quick", "model.backbone_weights": None}
    run = load_recipe(options.recipe, keys)
    if "step" in options.what:
        steps(run, options, report)
    if "validation" in options.what:
        validations(run, options, report)
    if "run" in options.what:
        runs(options.recipe, keys, place, options, report)


def steps(run: RunConfig, options: argparse.Namespace, report: Report) -> None:
    batch, precision = whole_batch(run, DEVICE), choose_precision("auto", DEVICE)
    padded = batch.sizes.clone()
    padded[1::2] -= 16

    def ours(**machine: Any) -> Callable[[], Step]:
        return lambda: training_step(replace(run, machine=replace(run.machine, **machine)), DEVICE)

    ways: dict[str, Callable[[], Step]] = {
        "plain loop": lambda: plain_loop(run, batch, DEVICE),
        "as it is": ours(channels_last=None, cuda_graphs=False),
    }
    if CUDA:
        ways["CUDA graphs, contiguous"] = ours(channels_last=False, cuda_graphs=True)
        ways["CUDA graphs, channels_last"] = ours(channels_last=True, cuda_graphs=True)
    ways["as it is, padded"] = ways["as it is"]
    for name in chosen(ways, options.only):
        step = ways[name]()
        one = batch._replace(sizes=padded) if "padded" in name else batch
        make = lambda step=step, one=one: step(one)  # noqa: E731
        report("step", f"{precision} {name}", images_per_second(make, options.rounds, DEVICE, 8))


def chosen(names: Iterable[str], parts: list[str]) -> list[str]:
    return [name for name in names if not parts or name in parts]


def validations(run: RunConfig, options: argparse.Namespace, report: Report) -> None:
    photographs, (count, sizes) = training_splits(run.data)[0], (300, 100) if CUDA else (12, 4)
    random, model = np.random.default_rng(0), network(run)
    model.config = replace(model.config, fit=run.augment.fit if CUDA else None)
    cuts = [random.uniform(0.7, 1.0, 2) for _ in range(sizes)]
    images = [
        cut(photographs[index % len(photographs)], *cuts[index % sizes]) for index in range(count)
    ]
    print(f"{len(images)} images of {len({labels.shape for _, labels in images})} sizes")
    machine = replace(run.machine, device=DEVICE, workers=options.workers)
    validation_seconds(model, [images[0]] * 32, machine)  # kernels are loaded
    for way, size in {"in batches": None if CUDA else 4, "image by image": 1}.items():
        SegmentationModule.validation_batch = size
        for turn in ("the first time", "again"):
            seconds, found = validation_seconds(model, images, machine)
            report("validation", f"{way}, {turn}", count / seconds)
            print(f"{'':9}{found.confusion.counts.diag().tolist()} pixels of each class right")
    SegmentationModule.validation_batch = None


def cut(sample: Sample, height: float, width: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """The upper left part of a photograph and its labels, by shares of its sides."""
    rows, columns = (
        round(a * b) for a, b in zip((height, width), sample.labels.shape, strict=True)
    )
    return sample.image[:rows, :columns].copy(), sample.labels[:rows, :columns].copy()


def validation_seconds(
    model: Segmenter, images: list[Any], machine: MachineConfig
) -> tuple[float, Evaluation]:
    """Seconds of `evaluate` from the first image to the last: processes have started before."""
    times: list[float] = []
    hooks = ("on_validation_epoch_start", "on_validation_epoch_end")
    own = [getattr(SegmentationModule, name) for name in hooks]
    for name, hook in zip(hooks, own, strict=True):

        def timed(self: SegmentationModule, hook: Callable[[Any], None] = hook) -> None:
            if CUDA:
                torch.cuda.synchronize()
            times.append(time.perf_counter())
            hook(self)

        setattr(SegmentationModule, name, timed)
    try:
        result = evaluate(model, images, machine=machine, quiet=True)
    finally:
        for name, hook in zip(hooks, own, strict=True):
            setattr(SegmentationModule, name, hook)
    return times[1] - times[0], result


def runs(
    recipe: str, keys: dict[str, Any], folder: Path, options: argparse.Namespace, report: Report
) -> None:
    """The run itself: what metrics.csv says of its fastest epoch, and all of its seconds."""
    keys = keys | {"machine.workers": options.workers, "machine.precision": "auto"}
    keys["training.epochs"] = options.epochs if CUDA else 1
    if not CUDA:
        keys |= {"data.limit": 8, "augment.crop": "[96, 96]"}
    ways: dict[str, dict[str, Any]] = {"as the recipe has it": {}}
    if CUDA:
        plain, mask = {"machine.cuda_graphs": False}, {"augment.fill": "mask"}
        graphs = {"machine.cuda_graphs": True, "augment.fill": "mirror"}
        ways = {
            "mask, augmented by loaders": {"machine.augment": "loader"} | plain | mask,
            "mask": plain | mask,
            "mirror": graphs | plain,
            "mirror, CUDA graphs": graphs,
            "mirror, CUDA graphs, decoded before": graphs | {"data.cache": "ram"},
        }
    for name in chosen(ways, options.only):
        more = ways[name]
        began = time.perf_counter()
        result = train(recipe, folder / name, overrides=keys | more, log=print, quiet=True)
        whole = time.perf_counter() - began
        best = max(float(row["images_per_second"]) for row in result.rows)
        report("run", name, best)
        report("whole", f"{name}, {len(result.rows)} epochs", whole, "s")


if __name__ == "__main__":
    main()
