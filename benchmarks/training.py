"""Where the time of a training and of a prediction goes: loader, step, both; inside the network.

    PYTHONPATH=src python3 benchmarks/training.py [PHOTOS] [--recipe own_folder] [--workers 8 16]
        [--batches 40] [--skip-predict]

PHOTOS: a folder with images/ and labels/; without one, photographs of noise at 240 x 320 are made.
Each line is the best of several rounds, interleaved, in images/s: the loader alone, the step alone
(padded as the recipe's crops are, and not padded) in each precision and layout, with frozen and
learning norms and the fused optimizer, and both together with Lightning's loop. Then `predict`: the
network alone, the whole, and the share of the time that is spent outside the network.
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
from scaseg.config.run import MachineConfig, RunConfig
from scaseg.data.loading import EpochBatchSampler, SamplerState, TrainingDataset
from scaseg.data.sample import Batch, collate
from scaseg.data.splits import training_splits
from scaseg.data.transforms import build_transforms
from scaseg.inference.preprocessing import Preprocessed
from scaseg.models.folding import fold_batch_norms
from scaseg.system import PRECISIONS, autocast
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
ROUNDS = 3
BATCH = 8 if CUDA else 1  # of predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", nargs="?")
    parser.add_argument("--recipe", default="own_folder")
    parser.add_argument("--workers", type=int, nargs="+", default=[8])
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--skip-predict", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(options.photos) if options.photos else make_photos(Path(folder) / "photos")
        run = load_recipe(options.recipe, {"data.root": str(photos), "data.check": "quick"})
        device = torch.cuda.get_device_name() if CUDA else "cpu"
        print(f"{options.recipe}, {device}, torch {torch.__version__}, {photos}")
        for workers in options.workers:
            found = loader(run, workers, options.batches)
            print(f"loader, {workers} processes: {found:8.1f} images/s")
        steps(run, options.batches)
        whole(options.recipe, run, max(options.workers), Path(folder))
        if not options.skip_predict:
            predict(photos, Path(folder))


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


def batches(run: RunConfig, workers: int, count: int) -> Iterator[Batch]:
    """As many batches as are wanted, from as many epochs as that takes."""
    photographs = training_splits(replace(run.data, val=None))[0]
    examples = TrainingDataset(photographs, build_transforms(run.augment), seed=0)
    epoch = 0
    sampler = EpochBatchSampler(
        len(examples), run.training.batch_size, 0, lambda: SamplerState(epoch, 0, 1)
    )
    source: DataLoader[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=CUDA,
    )
    while count:
        for batch in source:
            yield batch
            count -= 1
            if not count:
                return
        epoch += 1


def loader(run: RunConfig, workers: int, count: int) -> float:
    warm_up = 2 * workers  # processes start, and each has batches ready
    found = 0.0
    for _ in range(ROUNDS):
        source = batches(run, workers, warm_up + count)
        for _ in range(warm_up):
            next(source, None)
        began, images = time.perf_counter(), 0
        for batch in source:
            images += len(batch.names)
        found = max(found, images / (time.perf_counter() - began))
    return found


def steps(run: RunConfig, count: int) -> None:
    """One batch as the loader gives it, and one cut to whole images, again and again."""
    padded = next(batches(run, 0, 1)) if CUDA else _small(next(batches(run, 0, 1)))
    height, width = padded.images.shape[-2:]
    plain = padded._replace(sizes=torch.tensor([[height, width]] * len(padded.names)))
    count = count if CUDA else 2
    ways: dict[str, Callable[[], float]] = {}
    for precision in ("32", "bf16") if CUDA else ("32",):
        for layout in (False, True):
            for norms in ("frozen", "learning"):
                step = stepper(run, precision, layout, norms == "frozen", fused=CUDA)
                name = f"{precision:4} {'channels_last' if layout else 'contiguous':13} {norms:8}"
                for kind, batch in (("padded", padded), ("not padded", plain)):
                    ways[f"{name} {kind}"] = lambda s=step, b=batch: rate(s, b, count)  # type: ignore[misc]
    unfused = stepper(run, "bf16" if CUDA else "32", False, True, fused=False)
    ways["contiguous frozen, optimizer not fused"] = lambda: rate(unfused, plain, count)
    best = dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for name, way in ways.items():
            best[name] = max(best[name], way())
    for name, found in best.items():
        print(f"step, {name:45} {found:8.1f} images/s")


def stepper(
    run: RunConfig, precision: str, layout: bool, frozen: bool, *, fused: bool
) -> Callable[[Batch], None]:
    """What a training does with a batch, without Lightning around it."""
    model = scaseg.create_model(
        run.model.backbone,
        run.model.context,
        run.model.head,
        classes=8,
        **run.model.context_options,
    )
    config = run.training
    if not fused:
        options = {**config.optimizer_options, "fused": False}
        config = replace(config, optimizer_options=options)
    module = SegmentationModule(model, config, frozen_norms=frozen).to(DEVICE)
    module.use_gpu("32", MachineConfig(channels_last=layout))
    module.train()
    ((optimizer,), _) = module.configure_optimizers()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    def step(batch: Batch) -> None:
        batch = module.transfer_batch_to_device(batch, torch.device(DEVICE), 0)
        with autocast(DEVICE, precision):
            loss = module.batch_loss(batch)
        float(loss.detach())  # as a training does: a loss that is not finite stops it
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def rate(step: Callable[[Batch], None], batch: Batch, count: int) -> float:
    for _ in range(3 if CUDA else 1):
        step(batch)
    finish()
    began = time.perf_counter()
    for _ in range(count):
        step(batch)
    finish()
    return count * len(batch.names) / (time.perf_counter() - began)


def whole(recipe: str, run: RunConfig, workers: int, folder: Path) -> None:
    """The run itself: what metrics.csv says of its second epoch and later."""
    overrides: dict[str, Any] = {"training.epochs": 3}
    overrides |= {"machine.workers": workers, "data.root": run.data.root, "data.check": "quick"}
    overrides |= {"data.val": None}
    if not CUDA:
        overrides |= {"data.limit": 8, "training.epochs": 1, "augment.crop": "[96, 96]"}
    for precision in ("auto", "32") if CUDA else ("32",):
        result = train(
            recipe,
            folder / f"run {precision}",
            overrides={**overrides, "machine.precision": precision},
            log=print,
            quiet=True,
        )
        speeds = [float(row["images_per_second"]) for row in result.rows]
        print(f"both, {precision}, {workers} processes: {max(speeds):8.1f} images/s")


@torch.no_grad()
def predict(photos: Path, folder: Path) -> None:
    """The built-in model over all photographs, and its network alone over the same tensors."""
    paths = sorted((photos / "images").iterdir())[: 400 if CUDA else 12]
    for precision in PRECISIONS if CUDA else ("32",):
        model = scaseg.load_model("outdoor")
        if not CUDA:  # as predict does
            fold_batch_norms(model)
        model.to(DEVICE)
        images = [torch.from_numpy(np.array(Image.open(path).convert("RGB"))) for path in paths]
        seen = [Preprocessed(model, one.permute(2, 0, 1).to(DEVICE)).whole() for one in images]

        def network(seen: Any = seen, model: Any = model, precision: str = precision) -> None:
            by_size: dict[torch.Size, list[torch.Tensor]] = {}
            for one in seen:
                by_size.setdefault(one.shape, []).append(one)
            with autocast(DEVICE, precision):
                for alike in by_size.values():
                    for first in range(0, len(alike), BATCH):
                        model.coarse(torch.cat(alike[first : first + BATCH]))
            finish()

        def command(precision: Any = precision) -> None:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                scaseg.predict_folder(None, paths, out, device=DEVICE, precision=precision)

        best = {"network": 1e9, "predict": 1e9}
        for _ in range(ROUNDS + 1):
            for name, way in (("network", network), ("predict", command)):
                began = time.perf_counter()
                way()
                best[name] = min(best[name], time.perf_counter() - began)
        for name, seconds in best.items():
            print(f"{name}, {precision:4} {len(paths) / seconds:8.1f} images/s")
        outside = 1 - best["network"] / best["predict"]
        print(f"share of predict outside the network, {precision}: {outside:.0%}")


def _small(batch: Batch) -> Batch:
    """A corner of two images, for a CPU."""
    images, labels = batch.images[:2, :, :96, :96], batch.labels[:2, :96, :96]
    return Batch(images, labels, torch.tensor([[96, 96], [80, 96]]), batch.names[:2])


def finish() -> None:
    if CUDA:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
