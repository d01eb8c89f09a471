"""Where the time of a training and of a prediction goes: loader, step, both; inside the network.

    PYTHONPATH=src python3 benchmarks/training.py [PHOTOS] [--recipe own_folder] [--workers 8]
        [--what loader step run predict] [--key training.batch_size=16] [--out timings.csv]

PHOTOS: a folder with images/ and labels/; without one, photographs of noise at 240 x 320 are made.
All in images/s, the best of several rounds. loader: batches in host memory, augmented by loaders or
planned for the device, decoded each time or from the cache. device: its part of the augmentation.
step: one batch again and again, as it is and as if it were padded, in both layouts. run: `train`,
its fastest epoch. predict: the network alone, the whole, and the share that is spent outside it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

import scaseg
from scaseg.config.recipe import load_recipe
from scaseg.config.run import RunConfig
from scaseg.data.device_augmentation import augment, collate_planned
from scaseg.data.loading import DiskCache, EpochBatchSampler, SamplerState, TrainingDataset
from scaseg.data.sample import Batch, collate
from scaseg.data.splits import training_splits
from scaseg.data.transforms import build_transforms
from scaseg.inference.preprocessing import Preprocessed
from scaseg.io.table import write_rows
from scaseg.models.folding import fold_batch_norms
from scaseg.system import autocast, choose_precision
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
KINDS = ("loader", "step", "run", "predict")


class Report:
    """Lines of images/s, printed as they come."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = about
        self.rows: list[dict[str, Any]] = []

    def __call__(self, what: str, setting: str, value: float, unit: str = "images/s") -> None:
        row = {"what": what, "setting": setting, "value": round(value, 3), "unit": unit}
        self.rows.append(self.about | row)
        shown = f"{value:8.1f} {unit}" if unit == "images/s" else f"{value:8.1%} {unit}"
        print(f"{what:8} {setting:44} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", nargs="?")
    parser.add_argument("--recipe", default="own_folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--key", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--model", help="of predict; default: outdoor")
    parser.add_argument("--out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        photos = Path(options.photos) if options.photos else make_photos(place / "photos")
        keys: dict[str, Any] = dict(one.split("=", 1) for one in options.key)
        keys |= {"data.root": str(photos), "data.check": "quick", "data.val": None}
        keys["model.backbone_weights"] = None
        run = load_recipe(options.recipe, keys)
        name = torch.cuda.get_device_name() if CUDA else "cpu"
        about = {"recipe": options.recipe, "data": photos.name, "machine": name}
        about |= {"torch": torch.__version__, "workers": options.workers}
        print(" ".join(f"{key} {value}," for key, value in about.items()), *options.key)
        report = Report(about)
        if "loader" in options.what:
            loaders(run, place, options, report)
        if "step" in options.what:
            steps(run, options, report)
        if "run" in options.what:
            runs(options.recipe, keys, place, options, report)
        if "predict" in options.what:
            predict(photos, place, options, report)
        if options.out:
            write_rows(Path(options.out), report.rows)


def make_photos(root: Path, count: int = 160) -> Path:
    """Noise, smoothed as photographs are; labels in blocks."""
    random = np.random.default_rng(0)
    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(f"class {index}" for index in range(8)) + "\n")
    for index in range(count):
        small = Image.fromarray(random.integers(0, 256, (30, 40, 3), np.uint8))
        small.resize((320, 240), Image.Resampling.BILINEAR).save(root / f"images/{index:04}.jpg")
        blocks = Image.fromarray(random.integers(0, 8, (6, 8), np.uint8))
        blocks.resize((320, 240), Image.Resampling.NEAREST).save(root / f"labels/{index:04}.png")
    return root


def batches(run: RunConfig, workers: int, *, plans: bool, cache: Path | None) -> Iterator[Any]:
    """Batches without end, epoch after epoch."""
    photographs = training_splits(run.data)[0]
    samples = photographs if cache is None else DiskCache(photographs, cache)
    examples = TrainingDataset(samples, build_transforms(run.augment), seed=0, plans=plans)
    epoch = 0
    sampler = EpochBatchSampler(
        len(examples), run.training.batch_size, 0, lambda: SamplerState(epoch, 0, 1)
    )
    source: DataLoader[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=sampler,
        collate_fn=collate_planned if plans else collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=CUDA,
    )
    while True:
        yield from source
        epoch += 1


def rate(make: Callable[[], int], seconds: float, rounds: int, warm_up: int = 3) -> float:
    """Images per second of what makes some images at each call."""
    for _ in range(warm_up):
        make()
    best = 0.0
    for _ in range(rounds):
        finish()
        began = time.perf_counter()
        images = make()
        while time.perf_counter() - began < seconds:
            images += make()
        finish()
        best = max(best, images / (time.perf_counter() - began))
    return best


def loaders(run: RunConfig, folder: Path, options: argparse.Namespace, report: Report) -> None:
    workers, size = options.workers, run.training.batch_size
    for plans, cache in ((False, None), (True, None), (True, folder / "cache")):
        source = batches(run, workers, plans=plans, cache=cache)
        kind = f"{'for the device' if plans else 'augmented'}, {'cached' if cache else 'decoded'}"
        # until the cache is filled, and every process has batches ready
        warm_up = 2 * workers + (0 if cache is None else len(training_splits(run.data)[0]) // size)
        make = lambda source=source: len(next(source).names)  # noqa: E731
        report("loader", kind, rate(make, options.seconds, options.rounds, warm_up))
        source.close()
    planned = next(batches(run, 0, plans=True, cache=None))
    found = rate(lambda: len(augment(planned, DEVICE).names), 0.5, options.rounds)
    report("device", "augmentation", found)


def steps(run: RunConfig, options: argparse.Namespace, report: Report) -> None:
    batch = next(batches(run, 0, plans=False, cache=None))
    batch = batch if CUDA else _small(batch)
    height, width = batch.images.shape[-2:]
    alike = torch.tensor([[height, width]] * len(batch.names))
    padded = alike.clone()
    padded[1::2] -= 16
    precision = choose_precision("auto", DEVICE)
    for layout in (False, True):
        step = stepper(run, precision, layout)
        name = f"{precision} {'channels_last' if layout else 'contiguous'}"
        for kind, sizes in (("", alike), (" padded", padded)):
            found = batch._replace(sizes=sizes)
            make = lambda step=step, found=found: step(found)  # noqa: E731
            report("step", f"{name}{kind}", rate(make, options.seconds, options.rounds))


def stepper(run: RunConfig, precision: str, layout: bool) -> Callable[[Batch], int]:
    """What a training does with a batch, without Lightning around it."""
    network = run.model
    model = scaseg.create_model(
        network.backbone,
        network.context,
        "compact" if network.head == "auto" else network.head,
        classes=8,
        **network.context_options,
    )
    module = SegmentationModule(model, run.training, frozen_norms=True).to(DEVICE)
    module.use_gpu("32", replace(run.machine, channels_last=layout))
    module.train()
    ((optimizer,), _) = module.configure_optimizers()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    def step(batch: Batch) -> int:
        batch = module.transfer_batch_to_device(batch, torch.device(DEVICE), 0)
        with autocast(DEVICE, precision):
            loss = module.batch_loss(batch)
        float(loss.detach())  # as a training does: a loss that is not finite stops it
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return len(batch.names)

    return step


def runs(
    recipe: str, keys: dict[str, Any], folder: Path, options: argparse.Namespace, report: Report
) -> None:
    """The run itself: what metrics.csv says of its fastest epoch."""
    keys = keys | {"machine.workers": options.workers, "machine.precision": "auto"}
    keys["training.epochs"] = 4 if CUDA else 1
    if not CUDA:
        keys |= {"data.limit": 8, "augment.crop": "[96, 96]"}
    for place in ("loader", "device") if CUDA else ("loader",):
        more = {"machine.augment": place}
        result = train(recipe, folder / place, overrides=keys | more, log=print, quiet=True)
        best = max(float(row["images_per_second"]) for row in result.rows)
        report("run", f"augmented by the {place}", best)


@torch.no_grad()
def predict(photos: Path, folder: Path, options: argparse.Namespace, report: Report) -> None:
    """A model over all photographs, and its network alone over the same tensors."""
    paths = sorted((photos / "images").iterdir())[: 480 if CUDA else 12]
    batch_size = 32 if CUDA else 1  # as predict's
    name = options.model or "outdoor"
    if options.model is not None and not Path(options.model).exists():
        backbone, head = options.model.split(",")
        model = scaseg.create_model(backbone, "sca", head, classes=8)
        name = str(folder / "model")
        model.save_pretrained(name)
    for precision in ("32", "bf16") if CUDA else ("32",):
        model = scaseg.load_model(name)
        if not CUDA:  # as predict does
            fold_batch_norms(model)
        model.eval().to(DEVICE)
        by_size: dict[torch.Size, list[torch.Tensor]] = {}
        for path in paths:
            image = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)
            one = Preprocessed(model, image.to(DEVICE)).whole()
            by_size.setdefault(one.shape, []).append(one)

        def network(by_size: Any = by_size, model: Any = model, precision: str = precision) -> int:
            with autocast(DEVICE, precision):
                for alike in by_size.values():
                    for first in range(0, len(alike), batch_size):
                        model.coarse(torch.cat(alike[first : first + batch_size]))
            finish()
            return len(paths)

        def command(precision: Any = precision) -> int:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                scaseg.predict_folder(name, paths, out, device=DEVICE, precision=precision)
            return len(paths)

        other = scaseg.load_model(name)
        fold_batch_norms(other)
        other.eval().to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
        ways: dict[str, Callable[[], int]] = {"network": network, "predict": command}
        ways["folded, channels_last"] = lambda other=other, go=network: go(model=other)  # type: ignore[misc]
        best = dict.fromkeys(ways, 0.0)
        for _ in range(options.rounds + 1):  # in turn; the first is the warm-up
            for kind, way in ways.items():
                best[kind] = max(best[kind], rate(way, 0, 1, warm_up=0))
        for kind, found in best.items():
            report(kind, f"{options.model or 'outdoor'}, {precision}", found)
        outside = 1 - best["predict"] / best["network"]
        report("predict", f"outside the network, {precision}", outside, "share")


def _small(batch: Batch) -> Batch:
    """A corner of two images, for a CPU."""
    images, labels = batch.images[:2, :, :96, :96], batch.labels[:2, :96, :96]
    return Batch(images, labels, torch.tensor([[96, 96], [80, 96]]), batch.names[:2])


def finish() -> None:
    if CUDA:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
