"""Where the time of a training goes: loader, step, both; inside the network.

    PYTHONPATH=src python3 benchmarks/training.py [PHOTOS ...] [--recipe own_folder] [--workers 8]
        [--what loader step run] [--key training.batch_size=16] [--out timings.csv]

PHOTOS: folders with images/ and labels/; without one, photographs of noise at 240 x 320 are made.
All in images/s, the best of several rounds. loader: batches in host memory, augmented by loaders or
planned for the device, decoded each time or from the cache. device: its part of the augmentation.
step: one batch again and again: by a plain loop of PyTorch with the same network and everything on
the GPU, then by ours: as it is, as CUDA graphs in both layouts, padded. compile: the plain loop by
torch.compile. validation: of 300 photographs, each cut by one of 100 pairs of shares of its sides,
image by image and in batches; cuDNN plans each new size the first time. both: loaders and our step
at once, and which share of the step's own speed they reach. run: `train`, its fastest epoch, and
the whole of it. (A prediction: prediction.py.)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader

from scaseg.config.model import ModelConfig
from scaseg.config.recipe import load_recipe
from scaseg.config.run import MachineConfig, RunConfig
from scaseg.data.device_augmentation import augment, collate_planned
from scaseg.data.loading import DiskCache, EpochBatchSampler, SamplerState, TrainingDataset
from scaseg.data.sample import Batch, Sample, collate
from scaseg.data.splits import training_splits
from scaseg.data.transforms import build_transforms
from scaseg.io.table import write_rows
from scaseg.models.build import build_model
from scaseg.models.segmenter import Segmenter
from scaseg.system import autocast, choose_precision
from scaseg.training.evaluation import Evaluation, evaluate
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train

MEAN_AND_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SEARCHES = [True]  # whether cuDNN looks for the fastest algorithms
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
KINDS = ("loader", "step", "both", "compile", "validation", "run")
USUAL = ("loader", "step", "run")


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
    parser.add_argument("photos", nargs="*")
    parser.add_argument("--recipe", default="own_folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", nargs="+", choices=KINDS, default=USUAL)
    parser.add_argument("--epochs", type=int, default=4, help="of run")
    parser.add_argument(
        "--only", nargs="+", default=[], help="of loader, step, both and run: these settings alone"
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
        for photos in map(Path, options.photos or [make_photos(Path(temporary) / "photos")]):
            report.about["data"] = photos.name
            print(photos.name)
            measure(photos, Path(temporary) / f"{photos.name}.runs", options, report)
            if options.out:
                write_rows(Path(options.out), report.rows)


def measure(photos: Path, place: Path, options: argparse.Namespace, report: Report) -> None:
    keys: dict[str, Any] = dict(one.split("=", 1) for one in options.key)
    keys |= {"data.root": str(photos), "data.check": "quick", "model.backbone_weights": None}
    run = load_recipe(options.recipe, keys)
    if "loader" in options.what:
        loaders(run, place, options, report)
    if "step" in options.what:
        steps(run, options, report)
    if "both" in options.what:
        together(run, place, options, report)
    if "compile" in options.what:
        compiled(run, options, report)
    if "validation" in options.what:
        validations(run, options, report)
    if "run" in options.what:
        runs(options.recipe, keys, place, options, report)


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


def batches(
    run: RunConfig, workers: int, *, plans: bool, cache: Path | None
) -> Generator[Any, None, None]:
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
    kinds = {
        "augmented, decoded": (False, None),
        "for the device, decoded": (True, None),
        "for the device, cached": (True, folder / "cache"),
    }
    for kind in chosen(kinds, options.only):
        plans, cache = kinds[kind]
        source = batches(run, workers, plans=plans, cache=cache)
        # until the cache is filled, and every process has batches ready
        warm_up = 2 * workers + (0 if cache is None else len(training_splits(run.data)[0]) // size)
        make = lambda source=source: len(next(source).names)  # noqa: E731
        report("loader", kind, rate(make, options.seconds, options.rounds, warm_up))
        source.close()
    planned = next(batches(run, 0, plans=True, cache=None))
    found = rate(lambda: len(augment(planned, DEVICE).names), 0.5, options.rounds)
    report("device", "augmentation", found)


def steps(run: RunConfig, options: argparse.Namespace, report: Report) -> None:
    batch, precision = whole_batch(run), choose_precision("auto", DEVICE)
    padded = batch.sizes.clone()
    padded[1::2] -= 16
    ways: dict[str, Callable[[], Callable[[Batch], int]]] = {
        "plain loop": lambda: plain_loop(run, batch, precision),
        "as it is": lambda: stepper(run, precision, None),
    }
    if CUDA:
        ways["CUDA graphs, contiguous"] = lambda: stepper(run, precision, False, graphs=True)
        ways["CUDA graphs, channels_last"] = lambda: stepper(run, precision, True, graphs=True)
    ways["as it is, padded"] = ways["as it is"]
    for name in chosen(ways, options.only):
        step = ways[name]()
        one = batch._replace(sizes=padded) if "padded" in name else batch
        make = lambda step=step, one=one: step(one)  # noqa: E731
        report("step", f"{precision} {name}", rate(make, options.seconds, options.rounds))


def together(run: RunConfig, folder: Path, options: argparse.Namespace, report: Report) -> None:
    """Batches from loaders, augmented by the device, beside one batch again and again."""
    precision = choose_precision("auto", DEVICE)
    step, batch = stepper(run, precision, True if CUDA else None, graphs=CUDA), whole_batch(run)
    rounds = (options.seconds, options.rounds)
    alone = rate(lambda: step(batch), *rounds, warm_up=8 if CUDA else 1)
    report("both", "step alone", alone)
    kinds = {"decoded": None, "cached": folder / "cache"}
    for kind in chosen(kinds, options.only):
        source = batches(run, options.workers, plans=CUDA, cache=kinds[kind])
        filled = 0 if kinds[kind] is None else len(training_splits(run.data)[0])
        for _ in range(filled // run.training.batch_size):
            next(source)
        make = lambda source=source: step(next(source) if CUDA else _small(next(source)))  # noqa: E731
        found = rate(make, *rounds, warm_up=2 * options.workers)
        source.close()
        report("both", f"loaders and step, {kind}", found)
        report("both", f"share of the step, {kind}", found / alone, "share")


def chosen(names: Iterable[str], parts: list[str]) -> list[str]:
    return [name for name in names if not parts or name in parts]


def compiled(run: RunConfig, options: argparse.Namespace, report: Report) -> None:
    """The plain loop by torch.compile, in CUDA graphs too, and how long that takes to begin."""
    batch, precision = whole_batch(run), choose_precision("auto", DEVICE)
    step = plain_loop(run, batch, precision, mode="reduce-overhead")
    began = time.perf_counter()
    for _ in range(3):
        step(batch)
    finish()
    report("compile", "until the fourth step", time.perf_counter() - began, "s")
    report(
        "compile",
        f"{precision} plain loop",
        rate(lambda: step(batch), options.seconds, options.rounds),
    )


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
            finish()
            times.append(time.perf_counter())
            hook(self)

        setattr(SegmentationModule, name, timed)
    try:
        result = evaluate(model, images, machine=machine, quiet=True)
    finally:
        for name, hook in zip(hooks, own, strict=True):
            setattr(SegmentationModule, name, hook)
    return times[1] - times[0], result


def whole_batch(run: RunConfig) -> Batch:
    """A batch without padding."""
    batch = next(batches(run, 0, plans=False, cache=None))
    batch = batch if CUDA else _small(batch)
    height, width = batch.images.shape[-2:]
    if CUDA:  # as loaders do
        batch = batch._replace(images=batch.images.pin_memory(), labels=batch.labels.pin_memory())
    return batch._replace(sizes=torch.tensor([[height, width]] * len(batch.names)))


def network(run: RunConfig) -> Segmenter:
    own, names = run.model, training_splits(run.data)[0].classes
    if names is None:
        raise SystemExit("give photographs whose classes are named")
    config = ModelConfig(
        classes=names,
        backbone=own.backbone,
        context=own.context,
        head="compact" if own.head == "auto" else own.head,
        context_options=own.context_options,
        backbone_options=own.backbone_options,
    )
    return build_model(config)


def plain_loop(
    run: RunConfig, batch: Batch, precision: str, mode: str | None = None
) -> Callable[[Any], int]:
    """What one writes by hand: images on the GPU, no padding, no check, nothing read back."""
    model = network(run).to(DEVICE).train()
    if run.training.batch_norm != "train":
        freeze(model)
    optimizer = torch.optim.AdamW(model.parameters(), run.training.lr, fused=CUDA)
    images, labels = batch.images.to(DEVICE), batch.labels.to(DEVICE)
    mean, std = (torch.tensor(one, device=DEVICE).view(-1, 1, 1) for one in MEAN_AND_STD)
    forward: Any = model if mode is None else torch.compile(model, mode=mode)
    torch.backends.cudnn.benchmark = SEARCHES[0]
    torch.set_float32_matmul_precision("high")

    def step(_: Any = None) -> int:
        x = (images.float() / 255 - mean) / std
        optimizer.zero_grad()
        with autocast(DEVICE, precision):
            loss = F.cross_entropy(forward(x).float(), labels.long(), ignore_index=255)
        loss.backward()
        optimizer.step()
        return len(images)

    return step


def freeze(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()


def stepper(
    run: RunConfig, precision: str, layout: bool | None, *, graphs: bool = False
) -> Callable[[Batch], int]:
    """What a training does with a batch, without Lightning around it."""
    frozen = run.training.batch_norm != "train"
    module = SegmentationModule(network(run), run.training, frozen_norms=frozen, notify=print)
    module = module.to(DEVICE)
    if graphs:
        module.use_graphs(replace(run, machine=replace(run.machine, cuda_graphs=True)))
    module.use_gpu("32", replace(run.machine, channels_last=layout))
    module.train()
    ((optimizer,), _) = module.configure_optimizers()
    torch.backends.cudnn.benchmark = SEARCHES[0]
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


def _small(batch: Batch) -> Batch:
    """A corner of two images, for a CPU."""
    images, labels = batch.images[:2, :, :96, :96], batch.labels[:2, :96, :96]
    return Batch(images, labels, torch.tensor([[96, 96], [80, 96]]), batch.names[:2])


def finish() -> None:
    if CUDA:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
