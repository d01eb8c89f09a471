"""What a model is: enough to build it again, and to read what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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
        if len(set(self.classes)) != len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"classes names {twice!r} twice; each class needs a name of its own")
        if self.palette is not None and len(self.palette) != len(self.classes):
            raise ValueError(
                f"palette has {len(self.palette)} colours for {len(self.classes)} classes; "
                "give one (r, g, b) for each class"
            )
        if self.fit is not None and (len(self.fit) != 2 or min(self.fit) < 8):
            raise ValueError(f"fit is {self.fit}; give (height, width) of at least 8, or None")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.in_channels:
                raise ValueError(
                    f"{name} has {len(values)} entries for {self.in_channels} input channels; "
                    "give one for each"
                )

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
        arguments = {name: plain[name] for name in known & set(plain)}
        for name in ("classes", "mean", "std"):
            if name in arguments:
                arguments[name] = tuple(arguments[name])
        if arguments.get("fit") is not None:
            arguments["fit"] = tuple(arguments["fit"])
        if arguments.get("palette") is not None:
            arguments["palette"] = tuple(tuple(colour) for colour in arguments["palette"])
        return cls(**arguments)
