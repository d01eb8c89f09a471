"""What config.json holds: enough to build a model again, and to read its labels."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from scaseg.config.reading import read
from scaseg.config.run import LARGEST_SIDE, SMALLEST_SIDE, DataConfig
from scaseg.errors import UserError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_CLASSES, MOST_CHANNELS = 2**16 - 1, 2**10
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
    palette: tuple[tuple[int, int, int], ...] | None = None  # one RGB colour for each class
    mean: tuple[float, ...] = IMAGENET_MEAN  # of the pixels in [0, 1] that it was trained on
    std: tuple[float, ...] = IMAGENET_STD
    # photographs are brought to the largest size within (height, width); None: taken as they are
    fit: tuple[int, int] | None = None
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
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != channels:
                problem = f"{len(values)} entries for {channels} input channels"
                raise UserError(name, problem, "give one for each")
        if not all(value > 0 for value in self.std):
            raise UserError("std", f"{self.std}", "give numbers above 0")

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
