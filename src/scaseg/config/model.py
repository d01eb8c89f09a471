"""What config.json holds: enough to build a model again, and to read its labels."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from scaseg.config.reading import read
from scaseg.config.run import LARGEST_SIDE, MOST_CHANNELS, SMALLEST_SIDE, DataConfig
from scaseg.errors import UserError, located
from scaseg.io.model_folder import CONFIG
from scaseg.io.paths import unique_keys

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_CLASSES = 2**16 - 1
MOST_BYTES = 1 << 24  # of a config: thousands of classes with their colours take a megabyte
# what an image may hold; bands of any but the first are read as float32
DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")
LARGEST_PIXEL = 1e12  # of mean and std; float32 must be able to divide by it
UNSHOWN = ("Cc", "Cs", "Zl", "Zp")  # Unicode's control characters, surrogates, ends of lines


@dataclass(frozen=True)
class ModelConfig:
    """Everything that is needed to build a model again, and to read its labels."""

    classes: tuple[str, ...]
    backbone: str = "vgg16"
    context: str = "sca"
    head: str = "fcn"
    in_channels: int = 3
    context_options: dict[str, Any] = field(default_factory=dict)
    backbone_options: dict[str, Any] = field(default_factory=dict)
    palette: tuple[tuple[int, int, int], ...] | None = None  # one RGB colour for each class
    dtype: str = "uint8"  # of the pixels that it was trained on, as stored
    mean: tuple[float, ...] = IMAGENET_MEAN  # of these pixels: uint8 in [0, 1], others as stored
    std: tuple[float, ...] = IMAGENET_STD
    # photographs are brought to the largest size within (height, width); None: taken as they are
    fit: tuple[int, int] | None = None
    # probabilities are softened by it (fitted on validation images), so that confidence is honest
    temperature: float = 1.0
    training: dict[str, Any] = field(default_factory=dict)  # a record, for people

    def __post_init__(self) -> None:
        channels = self.in_channels
        check_class_names(self.classes)
        if self.palette is not None and len(self.palette) != len(self.classes):
            problem = f"{len(self.palette)} colours for {len(self.classes)} classes"
            raise UserError("palette", problem, "give one (r, g, b) for each class")
        for color in self.palette or ():
            if not all(0 <= value <= 255 for value in color):
                raise UserError("palette", f"{color}", "give (r, g, b) from 0 to 255")
        if not 1 <= channels <= MOST_CHANNELS:
            raise UserError("in_channels", f"{channels}", f"give 1 to {MOST_CHANNELS}")
        if self.fit is not None and not (
            len(self.fit) == 2 and all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in self.fit)
        ):
            remedy = f"give (height, width) from {SMALLEST_SIDE} to {LARGEST_SIDE}, or None"
            raise UserError("fit", f"{self.fit}", remedy)
        if not 0.01 <= self.temperature <= 100:
            raise UserError("temperature", f"{self.temperature}", "give a number from 0.01 to 100")
        if self.dtype not in DTYPES:
            raise UserError.choice("dtype", self.dtype, DTYPES)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != channels:
                problem = f"{len(values)} entries for {channels} input channels"
                raise UserError(name, problem, "give one for each")
        if not all(abs(value) <= LARGEST_PIXEL for value in self.mean):
            fits = f"give numbers from -{LARGEST_PIXEL:g} to {LARGEST_PIXEL:g}"
            raise UserError("mean", f"{self.mean}", fits)
        if not all(1 / LARGEST_PIXEL <= value <= LARGEST_PIXEL for value in self.std):
            fits = f"give numbers from {1 / LARGEST_PIXEL:g} to {LARGEST_PIXEL:g}"
            raise UserError("std", f"{self.std}", fits)

    @property
    def bands(self) -> int | None:
        """The bands that its images are read with; None: they are photographs, RGB of 8 bits."""
        is_photograph = self.in_channels == 3 and self.dtype == "uint8"
        return None if is_photograph else self.in_channels

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json holds; `id2label` is there for tools that know the word."""
        plain = asdict(self)
        plain["id2label"] = {str(i): name for i, name in enumerate(self.classes)}
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> ModelConfig:
        """Read what `to_dict` wrote, after JSON has had it; UserError names a wrong key."""
        known = {item.name for item in fields(cls)}
        for name in sorted(set(plain) - known - {"id2label"}):
            raise UserError(name, "unknown key", f"a model config has {', '.join(sorted(known))}")
        if "classes" not in plain:
            raise UserError("classes", "is missing", "a model config names its classes")
        return read(cls, {name: plain[name] for name in known & set(plain)})

    def trained_on(self) -> DataConfig:
        """How the data of its training were read, as far as the record says."""
        recipe = self.training.get("recipe")
        recorded = recipe.get("data") if isinstance(recipe, dict) else None
        return read(DataConfig, recorded, "training.recipe.data") if recorded else DataConfig()


def read_config(folder: str | Path) -> ModelConfig:
    """Read the config of a saved model; UserError says which file is wrong, and how."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise UserError(folder, f"has no {CONFIG}", "give a folder written by save_pretrained")
    with located(path):
        try:
            if (size := path.stat().st_size) > MOST_BYTES:
                raise ValueError(f"{size} bytes, where {MOST_BYTES} are the most")
            plain = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
        except (OSError, ValueError, RecursionError) as error:
            raise UserError("", "not JSON", "save the model again", str(error)) from error
        if not isinstance(plain, dict):
            raise UserError("", f"holds a {type(plain).__name__}", "a model config is an object")
        return ModelConfig.from_dict(plain)


def check_class_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be told apart, or cannot be shown; UserError says which."""
    if not 1 <= len(names) <= MOST_CLASSES:
        remedy = f"label maps have room for {MOST_CLASSES}" if names else "name at least one"
        raise UserError("classes", f"{len(names) or 'none'}", remedy)
    seen = set()
    for name in names:
        if name in seen:
            raise UserError("classes", f"{name!r} is named twice", "give each a name of its own")
        seen.add(name)
        # terminals obey some of them, and legends have one line; a lone surrogate is no text
        is_shown = not any(unicodedata.category(sign) in UNSHOWN for sign in name)
        if not (name.strip() and len(name) <= 200 and is_shown):
            remedy = "give names of one line, at most 200 characters, without control characters"
            raise UserError("classes", f"{name[:60]!r}", remedy)
