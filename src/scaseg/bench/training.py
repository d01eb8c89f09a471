"""Images per second of a training: its parts one by one, loaders and step at once, all of it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from scaseg.bench.measure import images_per_second
from scaseg.config.run import RunConfig
from scaseg.data.device_augmentation import collate_planned
from scaseg.data.loading import DiskCache, EpochBatchSampler, SamplerState, TrainingDataset
from scaseg.data.sample import Batch, collate, normalize
from scaseg.data.splits import training_splits
from scaseg.data.transforms import build_transforms
from scaseg.losses import IGNORE
from scaseg.models.segmenter import Segmenter
from scaseg.registry import BACKBONES
from scaseg.system import autocast, choose_precision
from scaseg.training.build import build_network
from scaseg.training.data import can_plan, loader_options, open_data
from scaseg.training.module import HostNumber, SegmentationModule
from scaseg.training.run import train
from scaseg.training.trainer import cudnn_search

WORKERS = 8  # processes, at most, as in a training
EPOCHS = 3  # of a whole training, of which the fastest counts
FEW = 4  # batches of an epoch of it, on a CPU
Step = Callable[[Batch], int]  # takes a step with a batch; how many images that were


def training_parts(run: RunConfig, device: str, repeats: int) -> Iterator[tuple[str, float]]:
    """Measure the parts of a training, each with its name, in images per second.

    The plain loop is what one writes by hand: the same network, one batch that lies on the device,
    nothing read back. The step is ours with that batch. Loaders decode and augment, or leave
    augmentation to a GPU; from the cache, decoded images are read as they lie in memory.
    """
    workers = run.machine.workers or 0
    batch = whole_batch(run, device)
    ready = 8 if device == "cuda" else 1  # steps until kernels are chosen and graphs recorded

    def rate(step: Step) -> float:
        return images_per_second(lambda: step(batch), repeats, device, ready)

    def count(batch: Batch) -> int:
        return len(batch.names)

    has_one_size = run.augment.crop is not None or run.augment.fit is not None
    searches = has_one_size and not BACKBONES[run.model.backbone].launch_bound  # as a training does
    with cudnn_search(searches), tempfile.TemporaryDirectory(prefix="scaseg-") as folder:
        plain = plain_loop(run, batch, device)
        yield "a plain PyTorch loop", rate(plain)
        step = training_step(run, device)
        yield "the step", rate(step)
        for name, cache in (("decoded", None), ("cached", Path(folder))):
            made = 2 * workers  # batches that processes have made before the first is asked for
            filled = 0  # by one epoch
            if cache is not None:
                filled = math.ceil(len(training_splits(run.data)[0]) / run.training.batch_size)
            ways = {"loaders": (count, made + filled), "loaders and step": (step, max(made, ready))}
            for what, (work, warm_up) in ways.items():
                with closing(batches(run, device, cache)) as own:  # processes end, whatever happens
                    found = images_per_second(
                        lambda own=own, work=work: work(next(own)),  # type: ignore[misc]
                        repeats,
                        device,
                        warm_up,
                    )
                yield f"{what}, {name}", found
    yield "scaseg train", whole_training(run, device)


def whole_training(run: RunConfig, device: str) -> float:
    """The fastest epoch of a short training that writes nothing."""
    few = FEW * run.training.batch_size if device == "cpu" else None
    short = replace(
        run,
        data=replace(run.data, val=None, limit=few),
        training=replace(run.training, epochs=EPOCHS, calibrate=False),
    )
    rows = train(short, quiet=True).rows
    return max(float(row["images_per_second"]) for row in rows)


def batches(run: RunConfig, device: str, cache: Path | None) -> Generator[Batch, None, None]:
    """Batches in host memory as a training has them, epoch after epoch without end."""
    photographs, size = training_splits(run.data)[0], run.training.batch_size
    samples = photographs if cache is None else DiskCache(photographs, cache)
    examples = TrainingDataset(samples, build_transforms(run.augment), seed=0)
    examples = replace(examples, plans=can_plan(run, examples, device))
    epoch = 0
    order = EpochBatchSampler(len(examples), size, 0, lambda: SamplerState(epoch, 0, 1))
    loader: DataLoader[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=order,
        collate_fn=collate_planned if examples.plans else collate,
        **loader_options(run.machine),
    )
    while True:
        yield from loader
        epoch += 1


def whole_batch(run: RunConfig, device: str) -> Batch:
    """A batch without padding, augmented already, in host memory."""
    source = batches(replace(run, machine=replace(run.machine, augment="loader")), "cpu", None)
    batch = next(source)
    source.close()
    if device == "cuda":  # as loaders leave it
        images, labels = batch.images.pin_memory(), batch.labels.pin_memory()
        batch = batch._replace(images=images, labels=labels)
    sizes = torch.tensor([list(batch.images.shape[-2:])] * len(batch.names))
    return batch._replace(sizes=sizes)


def network(run: RunConfig) -> Segmenter:
    """The network of a run that names no weights: they are random."""
    return build_network(run, open_data(run, None), lambda line: None)[0]


def plain_loop(run: RunConfig, batch: Batch, device: str) -> Step:
    """What one writes by hand."""
    torch.manual_seed(0)
    model, precision = network(run).to(device), choose_precision(run.machine.precision, device)
    model.train()
    if run.training.batch_norm == "frozen":
        for module in model.backbone.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eval()
    on_gpu = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), run.training.lr, fused=on_gpu)
    images, labels = batch.images.to(device), batch.labels.to(device)
    mean, std = model.statistics

    def step(_: Batch) -> int:
        optimizer.zero_grad()
        with autocast(device, precision):
            scores = model(normalize(images, mean, std)).float()
            loss = F.cross_entropy(scores, labels.long(), ignore_index=IGNORE)
        loss.backward()
        optimizer.step()
        return len(images)

    return step


def training_step(run: RunConfig, device: str) -> Step:
    """What a training does with a batch, without Lightning around it."""
    torch.manual_seed(0)
    frozen = run.training.batch_norm == "frozen"
    precision = choose_precision(run.machine.precision, device)
    module = SegmentationModule(network(run), run.training, frozen_norms=frozen).to(device)
    if device == "cuda":
        module.use_graphs(run)
        module.use_gpu(precision, run.machine)
    module.train()
    ((optimizer,), _) = module.configure_optimizers()
    torch.set_float32_matmul_precision("high")

    def step(batch: Batch) -> int:
        batch = module.transfer_batch_to_device(batch, torch.device(device), 0)
        with autocast(device, precision):
            loss = module.batch_loss(batch)
        number = HostNumber(loss.detach())  # read when a training reads it
        optimizer.zero_grad()
        loss.backward()
        float(number)
        optimizer.step()
        return len(batch.names)

    return step
