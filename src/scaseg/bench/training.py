"""Images per second of a training: its parts one by one, loaders and step at once, all of it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import chain, count, cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
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
from scaseg.system import autocast, choose_precision, kept_memory
from scaseg.training.build import build_network
from scaseg.training.data import can_plan, loader_options, open_data
from scaseg.training.module import HostNumber, SegmentationModule
from scaseg.training.run import train
from scaseg.training.trainer import cudnn_search, tf32, wants_search

WORKERS = 8  # processes, at most, as in a training
EPOCHS = 3  # of a whole training, of which the fastest counts
FEW = 4  # batches of an epoch of it, and of loaders, on a CPU
MANY = 24  # of loaders, on a GPU
ROOM = 1 << 30  # bytes that they may take
STEP_ON_LOADED = "the step on loaded batches"
Step = Callable[[Batch], int]  # takes a step with a batch; how many images that were


def training_parts(run: RunConfig, device: str, repeats: int) -> Iterator[tuple[str, float]]:
    """Measure the parts of a training, each with its name, in images per second.

    The plain loop is what one writes by hand: the same network, one batch that lies on the device,
    nothing read back. The step is ours with that batch, and then with batches as loaders leave
    them: of several sizes, padded, to be augmented by a GPU. Loaders make these same batches again
    and again; from the cache, decoded images are read as they lie in memory.
    """
    batch = whole_batch(run, device)
    ready = 8 if device == "cuda" else 1  # steps until kernels are chosen and graphs recorded
    temporary = tempfile.TemporaryDirectory(prefix="scaseg-")
    with cudnn_search(wants_search(run)), tf32(device), temporary as folder, ExitStack() as stack:
        work = partial(plain_loop(run, batch, device), batch)
        yield "a plain PyTorch loop", images_per_second(work, repeats, device, ready)
        stack.enter_context(kept_memory(device))  # as in a training; not in what is by hand
        step = training_step(run, device)
        work = partial(step, batch)
        yield "the step", images_per_second(work, repeats, device, ready)
        loaded = loaded_batches(run, device)

        def one_pass(work: Step, source: Iterable[Batch]) -> int:
            return sum(map(work, islice(source, len(loaded))))

        # once beforehand: kernels are chosen for each size
        work = partial(one_pass, step, loaded)
        yield STEP_ON_LOADED, images_per_second(work, repeats, device, warm_up=1)
        made = 2 * (run.machine.workers or 0)  # batches, before the first is asked for
        warm_up = 1 + math.ceil(made / len(loaded))  # also fills the cache
        ways: dict[str, Step] = {"loaders": lambda one: len(one.names), "loaders and step": step}
        for name, cache in (("decoded", None), ("cached", Path(folder))):
            for what, one in ways.items():
                source = batches(run, device, cache, len(loaded))
                with closing(source):  # processes end, whatever happens
                    work = partial(one_pass, one, source)
                    found = images_per_second(work, repeats, device, warm_up)
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


def loaded_batches(run: RunConfig, device: str) -> list[Batch]:
    """The first batches of a training as loaders leave them, in host memory, as many as fit."""
    most, room = MANY if device == "cuda" else FEW, ROOM
    found: list[Batch] = []

    def own(part: Tensor) -> Tensor:
        nonlocal room
        room -= part.nbytes
        # what is not pinned lies in memory shared with processes, of which there may be little
        return part if device == "cuda" else part.clone()

    with closing(batches(run, device, None, most)) as source:
        while len(found) < most and room > 0:
            found.append(apply_to_collection(next(source), Tensor, own))
    return found


def batches(
    run: RunConfig, device: str, cache: Path | None, most: int
) -> Generator[Batch, None, None]:
    """The first batches of a training in host memory, so many, again and again without end."""
    photographs, size = training_splits(run.data)[0], run.training.batch_size
    samples = photographs if cache is None else DiskCache(photographs, cache)
    examples = TrainingDataset(samples, build_transforms(run.augment), seed=0)
    examples = replace(examples, plans=can_plan(run, examples, device))
    epochs = (
        EpochBatchSampler(len(examples), size, 0, partial(SamplerState, epoch, 0, 1))
        for epoch in count()
    )
    loader: DataLoader[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=cycle(list(islice(chain.from_iterable(epochs), most))),
        collate_fn=collate_planned if examples.plans else collate,
        **loader_options(run.machine),
    )
    yield from loader


def whole_batch(run: RunConfig, device: str) -> Batch:
    """A batch without padding, augmented already, in host memory."""
    source = batches(replace(run, machine=replace(run.machine, augment="loader")), "cpu", None, 1)
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
    elif device == "cpu":
        module.use_cpu(run.machine)
    module.train()
    ((optimizer,), _) = module.configure_optimizers()

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
