"""What a model is: enough to build it again, and to read what it says."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from scaseg.config.reading import read
from scaseg.config.run import LARGEST_SIDE, SMALLEST_SIDE, DataConfig

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_CLASSES, MOST_CHANNELS = 2**16 - 1, 2**10
UNSHOWN = ("Cc", "Cs", "Zl", "Zp")  # Unicode's control characters, surrogates, ends of lines


@dataclass(frozen=True)
class ModelConfig:
    """Everything that is needed to build a model again, and to read what it says."""

    classes: tuple[str, ...]
    backbone: str = "vgg16"
    context: str = "sca"
    head: str = "fcn"
    in_channels: int = 3
    context_options: dict[str, Any] = field(default_factory=dict)
    palette: tuple[tuple[int, int, int], ...] | None = None  # one RGB colour for each class
    mean: tuple[float, ...] = IMAGENET_MEAN  # of the pixels in [0, 1] that it was trained on
    std: tuple[float, ...] = IMAGENET_STD
    # photographs are brought to the largest size within (height, width); None: taken as they are
    fit: tuple[int, int] | None = None
    training: dict[str, Any] = field(default_factory=dict)  # a record, for people

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError("classes is empty; name at least one class")
        check_class_names(self.classes)
        if self.palette is not None and len(self.palette) != len(self.classes):
            raise ValueError(
                f"palette has {len(self.palette)} colours for {len(self.classes)} classes; "
                "give one (r, g, b) for each class"
            )
        if self.palette is not None:
            for color in self.palette:
                if not all(0 <= value <= 255 for value in color):
                    raise ValueError(f"palette has {color}; give (r, g, b) from 0 to 255")
        if not 1 <= self.in_channels <= MOST_CHANNELS:
            raise ValueError(f"in_channels is {self.in_channels}; give 1 to {MOST_CHANNELS}")
        if self.fit is not None and not (
            len(self.fit) == 2 and all(SMALLEST_SIDE <= side <= LARGEST_SIDE for side in self.fit)
        ):
            raise ValueError(
                f"fit is {self.fit}; give (height, width) from {SMALLEST_SIDE} to {LARGEST_SIDE}, "
                "or None"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.in_channels:
                raise ValueError(
                    f"{name} has {len(values)} entries for {self.in_channels} input channels; "
                    "give one for each"
                )
        if not all(value > 0 for value in self.std):
            raise ValueError(f"std is {self.std}; give numbers above 0")

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json holds; `id2label` is there for tools that know the word."""
        plain = asdict(self)
        plain["id2label"] = {str(i): name for i, name in enumerate(self.classes)}
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> ModelConfig:
        """Read what `to_dict` wrote, after JSON has had it; ValueError names a wrong key."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(plain) - known - {"id2label"})
        if unknown:
            raise ValueError(
                f"unknown key {unknown[0]!r}; a model config has {', '.join(sorted(known))}"
            )
        if "classes" not in plain:
            raise ValueError("the key 'classes' is missing; a model config names its classes")
        return read(cls, {name: plain[name] for name in known & set(plain)})

    def trained_on(self) -> DataConfig:
        """How the data of its training were read, as far as the record says."""
        recipe = self.training.get("recipe")
        recorded = recipe.get("data") if isinstance(recipe, dict) else None
        return read(DataConfig, recorded, "training.recipe.data") if recorded else DataConfig()


def check_class_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be told apart, or cannot be shown; ValueError says which."""
    if len(names) > MOST_CLASSES:
        raise ValueError(f"classes are {len(names)}; label maps have room for {MOST_CLASSES}")
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"classes names {name!r} twice; each class needs a name of its own")
        seen.add(name)
        # terminals obey some of them, and legends have one line; a lone surrogate is no text
        if (
            not name.strip()
            or len(name) > 200
            or any(unicodedata.category(sign) in UNSHOWN for sign in name)
        ):
            raise ValueError(
                f"classes has {name[:60]!r}; give names of one line, at most 200 characters, "
                "without control characters"
            )
