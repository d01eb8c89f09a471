r"""Compare contexts behind a frozen backbone: its maps are computed once, the rest is trained.

    python benchmarks/frozen.py DATA WEIGHTS --cache FOLDER --out docs/results/frozen \
        --contexts none average sca dot --seeds 3

DATA: a dataset folder with the splits train, val and test; WEIGHTS: ImageNet weights of
MobileNetV2. Photographs are resized to 240 x 320 (upright ones to 320 x 240), and the backbone's
last map at 1/16 is kept in --cache, as 16-bit floats, those of training mirrored too. Trained are a
1x1 convolution to --channels, the context, and a head that reads its own neuron alone: so whatever
a neuron learns of the others comes through the context, or the frozen backbone. With --stages, 4 to
6, the backbone is cut off early: it sees less, and has fewer channels.

A row for each context and seed goes to OUT/SPLIT/results.csv, in the columns of `scaseg compare`;
what has its rows is not run again. The last weights are judged, at the size of the label maps; maps
are measured on test, as `scaseg compare` does. A seed gives all contexts the same first weights
around them, the same batches and mirrorings.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor, nn

from scaseg.comparison.jobs import Job, parse_variant
from scaseg.comparison.results import Results
from scaseg.comparison.worker import measure_maps
from scaseg.config.run import DataConfig
from scaseg.data.datasets.base import SegmentationDataset
from scaseg.data.sample import Sample, as_example, normalize
from scaseg.data.splits import build_dataset
from scaseg.data.transforms import resize
from scaseg.io.atomic import whole_file
from scaseg.io.table import Row
from scaseg.losses import cross_entropy
from scaseg.metrics import ConfusionMatrix
from scaseg.models.backbones.base import Backbone, Map
from scaseg.models.build import create_model
from scaseg.models.heads import HeadShape, SegmentationHead
from scaseg.models.padding import enlarge
from scaseg.models.segmenter import Features, Segmenter, evaluating
from scaseg.nn.auxiliary import auxiliary_scores
from scaseg.nn.build import build_context
from scaseg.system import autocast
from scaseg.training.module import poly_factor

FRAME, STRIDE = (240, 320), 16
LABELS = 8  # pixels between the labels that a training compares with
BATCH, WARMUP, DECAY, POWER = 16, 50, 0.01, 0.9
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Settings:
    """What a training is made with, besides the context and the seed."""

    channels: int = 128
    width: int = 128  # of the head
    dropout: float = 0.1
    epochs: int = 3
    lr: float = 5e-3
    score_lr_factor: float = 1.0  # what coefficients follow from has this times lr
    precision: str = "bf16"


class FrozenBackbone(Backbone):
    """Images -> a trained backbone's last map, standardized, and relu of a 1x1 convolution of it.

    Only the convolution learns. mean, std (C,): of the channels of that map.
    """

    stride = STRIDE

    def __init__(self, trained: Backbone, mean: Tensor, std: Tensor, channels: int) -> None:
        super().__init__()
        self.trained = trained.requires_grad_(False)
        self.out_channels = channels
        self.project = nn.Conv2d(trained.out_channels, channels, kernel_size=1)
        nn.init.kaiming_normal_(self.project.weight, nonlinearity="relu")
        nn.init.zeros_(self.project.bias)
        self.register_buffer("shift", mean.view(-1, 1, 1))
        self.register_buffer("scale", std.view(-1, 1, 1))

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        found, real = self.trained(images, real)
        return [(self.reduced(found), real)]

    def reduced(self, found: Tensor) -> Tensor:
        """What follows the frozen part: (B, C, h, w) -> (B, channels, h, w)."""
        return torch.relu(self.project((found - self.shift) / self.scale))


class Framed(Sequence[Sample]):
    """A split with every photograph at the size that features are computed at."""

    def __init__(self, dataset: SegmentationDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        sample = self.dataset[index]
        return resize(sample, *frame(sample.labels.shape))


def frame(size: Sequence[int]) -> tuple[int, int]:
    """The (height, width) that a photograph is resized to: the one nearer to its own shape.

    >>> frame((214, 320)), frame((320, 240))
    ((240, 320), (320, 240))
    """
    return FRAME if size[1] >= size[0] else (FRAME[1], FRAME[0])


@dataclass(frozen=True)
class Split:
    """A split in memory: features (N, C, n), what labels they are compared with, their shapes."""

    features: NDArray[np.float16]  # on the disk
    mirrored: NDArray[np.float16] | None
    labels: list[NDArray[np.uint8]]  # of a training all of FRAME / LABELS, else of the file's size
    is_upright: NDArray[np.bool_]

    def maps(self, chosen: NDArray[np.intp], flips: NDArray[np.bool_] | None = None) -> Tensor:
        """The maps (B, C, h, w) of photographs of one shape, some of them mirrored."""
        found = self.features[chosen]
        if flips is not None and flips.any():
            assert self.mirrored is not None
            found[flips] = self.mirrored[chosen[flips]]
        height, width = (side // STRIDE for side in FRAME)
        shape = (width, height) if self.is_upright[chosen[0]] else (height, width)
        return torch.from_numpy(found).float().unflatten(2, shape)


def batches(
    is_upright: NDArray[np.bool_], random: np.random.Generator
) -> Iterator[NDArray[np.intp]]:
    """One epoch: batches of one shape each, in a drawn order; what fills no batch is left out."""
    found = []
    for shape in (False, True):
        order = random.permutation(np.flatnonzero(is_upright == shape))
        found += list(order[: len(order) // BATCH * BATCH].reshape(-1, BATCH))
    for place in random.permutation(len(found)):
        yield found[place]


@torch.inference_mode()
def read_split(data: str, name: str, trained: Segmenter, folder: Path, weights: str) -> Split:
    """Read a split, its features from the cache or computed into it."""
    dataset = build_dataset(DataConfig(root=data), name)
    framed, is_train = Framed(dataset), name == "train"
    key = hashlib.sha256(Path(weights).read_bytes() + "\n".join(dataset.names).encode())
    channels = trained.backbone.out_channels  # of a cut backbone fewer
    path = folder / f"{name}-{channels}-{key.hexdigest()[:8]}.npy"
    neurons = math.prod(FRAME) // STRIDE**2
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        shape = (1 + is_train, len(dataset), channels, neurons)
        with whole_file(path, durable=False) as temporary:
            kept = open_memmap(temporary, mode="w+", dtype=np.float16, shape=shape)
            for index in range(len(framed)):
                image = as_example(framed[index]).image.unsqueeze(0)
                image = normalize(image, *trained.statistics)
                for side, own in enumerate([image, image.flip(3)][: 1 + is_train]):
                    with autocast("cpu", "bf16"):
                        found, _ = trained.backbone(own)
                    kept[side, index] = found[0].flatten(1).half().numpy()
                if index % 200 == 0:
                    print(f"features of {name}: {index} of {len(framed)}", flush=True)
            kept.flush()
    features = np.load(path, mmap_mode="r")
    labels, is_upright = [], []
    for index in range(len(dataset)):
        sample = dataset[index]
        size = frame(sample.labels.shape)
        is_upright.append(size != FRAME)
        if is_train:
            sample = resize(sample, *(side // LABELS for side in size))
        labels.append(sample.labels.astype(np.uint8))
    return Split(features[0], features[1] if is_train else None, labels, np.array(is_upright))


def statistics(split: Split) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, of up to 256 photographs spread over a split."""
    some = split.features[:: max(1, len(split.features) // 256)].astype(np.float32)
    mean, std = (torch.from_numpy(one) for one in (some.mean((0, 2)), some.std((0, 2))))
    return mean, std.clamp(min=1e-3)


def build(
    trained: Segmenter, variant: str, seed: int, split: Split, settings: Settings
) -> Segmenter:
    """The network of a context; what surrounds the context starts alike for all."""
    context, options = parse_variant(variant)
    classes = len(trained.classes)
    torch.manual_seed(seed)
    backbone = FrozenBackbone(trained.backbone, *statistics(split), settings.channels)
    shape = HeadShape(settings.width, 1, 1, settings.dropout)
    head = SegmentationHead(settings.channels, classes, shape=shape)
    return Segmenter(
        backbone=backbone,
        context=build_context(context, settings.channels, classes=classes, options=options),
        head=head,
        config=replace(trained.config, context=context, context_options=options),
    )


def scores_of(model: Segmenter, found: Tensor) -> Tensor:
    """Scores of the neurons, from the features of the frozen part."""
    assert isinstance(model.backbone, FrozenBackbone)
    x = model.context(model.backbone.reduced(found))
    return model.score(Features(torch.relu(x)))[0]


def train(model: Segmenter, split: Split, seed: int, settings: Settings) -> None:
    """Train all but the frozen part."""
    model.train()
    selecting = model.context.score_parameters()
    theirs = {id(weight) for weight in selecting}
    rest = [one for one in model.parameters() if one.requires_grad and id(one) not in theirs]
    slower = settings.score_lr_factor * settings.lr
    groups = [{"params": rest}, {"params": selecting, "lr": slower}]
    optimizer = torch.optim.AdamW(groups, lr=settings.lr, weight_decay=DECAY)
    rates = [group["lr"] for group in optimizer.param_groups]
    random = np.random.default_rng(seed)
    steps = settings.epochs * len(list(batches(split.is_upright, np.random.default_rng(0))))
    step = 0
    for epoch in range(settings.epochs):
        losses = []
        for chosen in batches(split.is_upright, random):
            rate = poly_factor(step, steps, power=POWER, warmup=WARMUP)
            for group, base in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = base * rate
            flips = random.random(len(chosen)) < 0.5
            labels = np.stack([split.labels[index] for index in chosen])
            labels[flips] = labels[flips, :, ::-1]
            truth = torch.from_numpy(labels).long()
            torch.manual_seed(int(random.integers(2**31)))  # the same dropout for all contexts
            with autocast("cpu", settings.precision), auxiliary_scores(model) as others:
                scores = scores_of(model, split.maps(chosen, flips))
            loss = sum(  # as scaseg.training.module has it
                share * cross_entropy(enlarge(own.float(), truth.shape[1:]), truth)
                for share, own in [(1.0, scores), *others]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.4f}", flush=True)


@torch.inference_mode()
def judge(model: Segmenter, split: Split) -> ConfusionMatrix:
    """Count predictions against the labels, enlarged to the size of each label map."""
    confusion = ConfusionMatrix(len(model.classes))
    with evaluating(model):
        for shape in (False, True):
            alike = np.flatnonzero(split.is_upright == shape)
            for start in range(0, len(alike), BATCH):
                chosen = alike[start : start + BATCH]
                # channels last: both are several times faster on a CPU
                scores = scores_of(model, split.maps(chosen))
                scores = scores.contiguous(memory_format=torch.channels_last)
                for own, index in zip(scores.split(1), chosen, strict=True):
                    truth = torch.from_numpy(split.labels[index])
                    predicted = enlarge(own, truth.shape)[0].argmax(0)
                    confusion.update(predicted, truth)
    return confusion


def run_job(
    job: Job,
    trained: Segmenter,
    splits: dict[str, Split],
    photographs: Framed | None,
    settings: Settings,
) -> dict[str, Row]:
    """Train one network; its row for each split that it is judged on.

    photographs: those of test, on which maps are measured.
    """
    began, worked = time.time(), time.process_time()
    model = build(trained, job.variant, job.seed, splits["train"], settings)
    train(model, splits["train"], job.seed, settings)
    images = settings.epochs * len(splits["train"].labels)
    common = {
        "parameters": sum(one.numel() for one in model.parameters()),
        "milliseconds": 1000 * (time.process_time() - worked) / images,  # of one core
        "mebibytes": None,
        "device": "cpu",
        "seconds": round(time.time() - began, 1),
        "side_by_side": 1,
    }
    rows: dict[str, Row] = {}
    for name, split in splits.items():
        if name == "train":
            continue
        scores = judge(model, split).scores().summary()
        facts = {"images": len(split.labels), "split": f"the split {name}"}
        maps = measure_maps(model.eval(), photographs) if name == "test" else {}
        rows[name] = {**job._asdict(), **scores, **facts, **maps, **common}
        print(f"  {name}: {', '.join(f'{k} {v:.2f}' for k, v in scores.items())}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("weights")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--contexts", nargs="+", default=["none", "average", "sca"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--judge", nargs="+", choices=SPLITS[1:], default=SPLITS[1:])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--stages", type=int, choices=range(4, 8), default=7)  # of the backbone
    for name, value in vars(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = Settings(**{name: getattr(options, name) for name in vars(Settings())})
    jobs = [Job(one, seed) for seed in range(options.seeds) for one in options.contexts]
    for job in jobs:
        parse_variant(job.variant)  # a wrong name ends it now
    results = {name: Results(options.out / name) for name in options.judge}
    for name in options.judge:
        (options.out / name).mkdir(parents=True, exist_ok=True)
    photographs = None
    if "test" in options.judge:
        photographs = Framed(build_dataset(DataConfig(root=options.data), "test"))
    classes = build_dataset(DataConfig(root=options.data), "train").classes
    assert classes is not None
    trained = create_model(
        "mobilenet_v2",
        "none",
        "light",
        classes=classes,
        backbone_weights=options.weights,
        backbone_options={"stride": STRIDE, "stages": options.stages},
    ).eval()
    splits = {
        name: read_split(options.data, name, trained, options.cache, options.weights)
        for name in ("train", *options.judge)
    }
    for job in jobs:
        if all(job in own.rows for own in results.values()):
            continue
        print(job, flush=True)
        for name, row in run_job(job, trained, splits, photographs, settings).items():
            results[name].rows[job] = row
            results[name].write()


if __name__ == "__main__":
    main()
