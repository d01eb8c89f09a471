"""One run: the data, how they are augmented, the network, its training, the machine.

The defaults are the paper's where it says something. A recipe is one of these in YAML, complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from scaseg.config.reading import setting
from scaseg.errors import UserError
from scaseg.registry import BACKBONES, CONTEXTS, DATASETS, GENERATED_DATASETS, HEADS
from scaseg.system import ChosenPrecision, Device

MOST_CHANNELS = 2**10
LARGEST_LABEL = 2**16 - 1  # label maps have 16 bits at most
SMALLEST_SIDE = 8  # pixels: the stride of every backbone, so one neuron
LARGEST_SIDE = 2**15  # of an image that is made: more would be a slip, or meant to fill the memory


@dataclass(frozen=True)
class DataConfig:
    """Where photographs and labels are, and how labels are read."""

    name: str = setting(
        "folder", "the layout of the data on disk, or scenes to generate", choices=DATASETS
    )
    root: str | None = setting(None, "its folder (--data)")
    train: str = setting("train", "the split to train on; all images where a folder has no lists")
    val: str | None = setting(
        "auto", "the split to validate on; auto: val where there is one, else hold_out; null: none"
    )
    hold_out: float = setting(
        0.1, "share of train kept for validation where there is no val split", least=0, most=0.9
    )
    limit: int | None = setting(None, "train on the first N images only", least=1)
    folds: int | None = setting(
        None, "cross-validation: all listed images in N parts, one for testing", least=2, most=1000
    )
    fold: int | None = setting(
        None, "the part that is tested, 1 to folds; the rest is train", least=1
    )
    classes: tuple[str, ...] | None = setting(None, "class names, where no file names them")
    label_map: dict[int, int] = setting({}, "values renamed on reading: {255: 1} for binary masks")
    reduce_zero_label: bool = setting(False, "0 is unlabelled, and every other class one less")
    ignore_index: int = setting(
        255, "the value of unlabelled pixels on disk", least=0, most=LARGEST_LABEL
    )
    bands: int | None = setting(
        None,
        "bands of an image, as TIFF or .npy hold them; null: photographs, read as RGB",
        least=1,
        most=MOST_CHANNELS,
    )
    mean: tuple[float, ...] | None = setting(
        None, "of each band, 8 bits as 0 to 1, others as stored; null: measured, or the backbone's"
    )
    std: tuple[float, ...] | None = setting(None, "of each band, as mean", least=1e-12)
    max_pixels: int | None = setting(
        None, "refuse larger images and label maps before decoding; null: 250 million", least=1
    )
    check: Literal["all", "quick"] = setting(
        "all", "before the first step, read every file once; quick: headers and a few label maps"
    )
    fields: tuple[str, str] | None = setting(
        None, "shards: image and labels, endings of files or columns: [jpg, seg.png]; null: known"
    )
    shuffle_buffer: int = setting(1000, "shards: images that are shuffled together", least=1)
    shard_cache: float = setting(
        50.0, "shards from elsewhere: GiB that are kept on this machine", least=0.1
    )
    cache: Literal["none", "ram", "disk"] = setting(
        "none", "keep decoded images; disk: for all processes and runs, ram: for this one"
    )
    cache_dir: str | None = setting(
        None, "where cache: disk keeps them, or shards; null: the user's cache, for all runs"
    )

    def __post_init__(self) -> None:
        if self.fold is not None and (self.folds is None or self.fold > self.folds):
            fits = "set data.folds too" if self.folds is None else f"give 1 to {self.folds}"
            raise UserError("data.fold", f"{self.fold}, and data.folds is {self.folds}", fits)
        for key, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != (self.bands or 3):
                problem = f"{len(values)} numbers for {self.bands or 3} bands"
                raise UserError(f"data.{key}", problem, "give one for each")
        for value in (*self.label_map, *self.label_map.values()):
            if not -LARGEST_LABEL <= value <= LARGEST_LABEL:
                raise UserError("data.label_map", f"{value}", f"values are {LARGEST_LABEL} at most")

    @property
    def is_generated(self) -> bool:
        """Whether the data are generated, so that there is no root to name."""
        return self.name in GENERATED_DATASETS


@dataclass(frozen=True)
class AugmentConfig:
    """What happens to a training image, in this order."""

    transform: str | None = setting(
        None, "your own: package.module:name, a callable f(image=..., mask=...) or what makes one"
    )
    flip: float = setting(0.5, "how often images are mirrored", least=0, most=1)
    brightness: float = setting(0.0, "changed by up to this share", least=0, most=1)
    contrast: float = setting(0.0, "changed by up to this share", least=0, most=1)
    saturation: float = setting(0.0, "changed by up to this share", least=0, most=1)
    hue: float = setting(
        0.0, "colours turned by up to this share of their circle", least=0, most=0.5
    )
    blur: float = setting(0.0, "blurred by up to this many pixels", least=0, most=100)
    rotate: float = setting(
        0.0, "rotated by up to this many degrees, either way", least=0, most=180
    )
    fit: tuple[int, int] | None = setting(
        None,
        "fit images into [height, width], proportions kept; also when evaluating and predicting",
        least=SMALLEST_SIDE,
        most=LARGEST_SIDE,
    )
    scale: tuple[float, float] | None = setting(
        None, "enlarge or shrink by a factor from [low, high]", least=0.05, most=20
    )
    crop: tuple[int, int] | None = setting(
        None, "cut out [height, width] at random", least=SMALLEST_SIDE, most=LARGEST_SIDE
    )
    fill: Literal["mask", "mirror"] = setting(
        "mask", "beyond the edges of a smaller image: padding that does not count, or its mirror"
    )
    cutmix: float = setting(
        0.0, "how often a rectangle of another image is put in", least=0, most=1
    )
    classmix: float = setting(
        0.0, "how often half of the classes of another image are put in", least=0, most=1
    )

    def __post_init__(self) -> None:
        if self.scale is not None and self.scale[0] > self.scale[1]:
            problem = f"from {self.scale[0]} to {self.scale[1]}"
            raise UserError("augment.scale", problem, "give the smaller first")


@dataclass(frozen=True)
class NetworkConfig:
    """The network; its classes come from the data."""

    backbone: str = setting("vgg16", "where features come from", choices=BACKBONES)
    backbone_weights: str | None = setting(
        None,
        "imagenet, a safetensors file, a model (outdoor, a run folder), or null: random weights",
    )
    start_from: str | None = setting(
        None, "train a whole model further: a run folder, outdoor; the network is then its own"
    )
    context: str = setting("sca", "where neurons take context from", choices=CONTEXTS)
    head: str = setting(
        "auto", "what scores the classes; auto: the backbone's usual one", choices=("auto", *HEADS)
    )
    context_options: dict[str, Any] = setting(
        {}, "options of SelectiveContext: hidden, layers, ..."
    )
    backbone_options: dict[str, Any] = setting(
        {}, "options of the backbone: stride, stages; those of other backbones are left out"
    )
    palette: tuple[tuple[int, int, int], ...] | None = setting(
        None, "a colour [r, g, b] for each class", least=0, most=255
    )


@dataclass(frozen=True)
class TrainingConfig:
    """How the network learns."""

    epochs: int = setting(50, "passes over the training images", least=1)
    batch_size: int = setting(3, "images a step, on each device", least=1)
    accumulate: int = setting(1, "batches whose gradients are added up for one step", least=1)
    seed: int = setting(0, "of weights, order and augmentation", least=0, most=2**32 - 1)
    optimizer: str = setting("SGD", "any of torch.optim")
    lr: float = setting(1e-3, "base rate of the backbone", least=0)
    head_lr: float | None = setting(None, "base rate of context and head; null: 10 x lr", least=0)
    score_lr_factor: float = setting(
        1.0,
        "what coefficients follow from (predictor, queries, keys) has this share of head_lr",
        least=0,
        most=1,
    )
    momentum: float = setting(0.9, "for optimizers that have it", least=0, most=1)
    weight_decay: float = setting(5e-4, "for optimizers that have it", least=0)
    optimizer_options: dict[str, Any] = setting({}, "more keyword arguments of the optimizer")
    poly_power: float = setting(0.9, "rate = base (1 - step/steps)^power; 0: constant", least=0)
    warmup: int = setting(0, "steps over which the rate rises from 0", least=0)
    gradient_clip: float | None = setting(None, "largest norm of the gradient", least=0)
    loss: Literal["cross_entropy", "focal", "dice", "ohem", "lovasz"] = setting(
        "cross_entropy", "what to lower"
    )
    loss_options: dict[str, Any] = setting({}, "keyword arguments of the loss: gamma, keep, ...")
    class_weights: Literal["paper", "none", "inverse"] = setting("paper", "what classes weigh")
    class_weight_range: tuple[float, float] | None = setting(
        None, "clamp class weights to [low, high]", least=0
    )
    layer_decay: float | None = setting(
        None,
        "rate of each layer of the backbone, in the next one's: 0.8; null: one rate for all",
        least=0.01,
        most=1,
    )
    freeze_backbone: bool = setting(False, "train only context and head")
    calibrate: bool = setting(
        True, "scale a fresh head's first weights by what it sees of a few training images"
    )
    batch_norm: Literal["auto", "train", "frozen"] = setting(
        "auto", "of the backbone; frozen keeps its statistics; auto: frozen if it is pretrained"
    )
    ema: float | None = setting(
        None, "keep a running mean of the weights: 0.999", least=0, most=0.999999
    )
    validate_every: int = setting(1, "epochs between validations", least=1)
    pictures: int = setting(
        6,
        "validation images with label and prediction in validation.jpg, and training images of "
        "each class in data.html",
        least=0,
        most=24,
    )
    checkpoint_every: int = setting(1, "epochs between saves of the training state", least=1)
    checkpoint_minutes: float | None = setting(
        15, "and minutes between saves within an epoch; 0: after every step; null: none", least=0
    )
    on_nan: str = setting(
        "stop", "at a loss that is not finite: stop, or skip:N, leave out at most N such batches"
    )
    early_stop: int | None = setting(
        None, "stop after N validations without a better mIoU", least=1
    )
    loggers: tuple[str, ...] = setting((), "beside metrics.csv: tensorboard, wandb, mlflow, ...")

    @property
    def most_skips(self) -> int:
        """How many batches may be left out because their loss is not finite."""
        return 0 if self.on_nan == "stop" else int(self.on_nan.removeprefix("skip:"))

    def __post_init__(self) -> None:
        if not re.fullmatch("stop|skip:[0-9]{1,9}", self.on_nan):
            raise UserError("training.on_nan", repr(self.on_nan), "give stop, or skip:10")
        clamp = self.class_weight_range
        if clamp is not None and clamp[0] > clamp[1]:
            problem = f"from {clamp[0]} to {clamp[1]}"
            raise UserError("training.class_weight_range", problem, "give the smaller first")


@dataclass(frozen=True)
class MachineConfig:
    """Where it runs. Nothing here changes what is computed, but for rounding and DDP's batches."""

    device: Device = setting("auto", "what to compute on")
    devices: int = setting(1, "processes, one on each device (DDP)", least=1, most=1024)
    nodes: int = setting(
        1, "machines; start one run on each, by torchrun or SLURM", least=1, most=65536
    )
    strategy: Literal["ddp", "fsdp"] = setting(
        "ddp", "what each process keeps: the whole network, or a share of it (FSDP)"
    )
    precision: ChosenPrecision = setting(
        "32", "of activations, weights stay float32; auto: bf16 on a GPU that computes in it"
    )
    channels_last: bool | None = setting(
        None,
        "keep a neuron's channels side by side; null: where the backbone gains by it",
    )
    activation_checkpointing: bool = setting(
        False, "compute parts of the backbone twice instead of keeping them: larger images fit"
    )
    cuda_graphs: bool | None = setting(
        None,
        "on one GPU, record a step's kernels once and replay them, where nothing is padded; "
        "null: where the backbone gains by it",
    )
    workers: int | None = setting(
        None, "loader processes; null: by the number of cores", least=0, most=256
    )
    augment: Literal["auto", "loader", "device"] = setting(
        "auto", "where images are coloured, resized and cropped; auto: on a GPU, else by loaders"
    )


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    model: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
