"""Train a saved model further: its architecture and weights, and what of them stays."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scaseg.config.model import ModelConfig, read_config
from scaseg.config.run import RunConfig
from scaseg.errors import UserError, located, some_of
from scaseg.io.model_folder import BUILTIN, find_model
from scaseg.models.build import read_model
from scaseg.models.classes import change_classes, shared_classes
from scaseg.models.segmenter import Segmenter
from scaseg.training.data import TrainingData
from scaseg.training.run_folder import START

KEY = "model.start_from"
# the keys of each section that a model decides
ARCHITECTURE = defaultdict(
    tuple,
    model=("backbone", "context", "head", "context_options", "backbone_options"),
    data=("bands", "mean", "std"),
)


@dataclass(frozen=True)
class StartingPoint:
    """The model that a run starts from: as it was named, its config, and its folder.

    folder: None where the run is resumed; its weights are in the training state then.
    """

    source: str
    config: ModelConfig
    folder: Path | None

    @classmethod
    def of(cls, run: RunConfig, resume: Path | None) -> StartingPoint | None:
        """Find the model of a run, or what the folder of a resumed one has recorded of it."""
        source = run.model.start_from
        if source is None:
            return None
        if resume is not None:
            with suppress(OSError, ValueError, KeyError, TypeError):  # torn or foreign: read again
                plain = json.loads((resume / START).read_text(encoding="utf-8"))
                return cls(source, ModelConfig.from_dict(plain["config"]), None)
        with located(f"--{KEY}"):
            folder = find_model(source)
            return cls(source, read_config(folder), folder)

    def fit_data(self, data: TrainingData) -> TrainingData:
        """Take the labels of data that name no classes for those of the model, if it has enough.

        UserError where images are not of its type.
        """
        if data.bands is not None and data.bands.dtype != self.config.dtype:
            problem = f"images of {data.bands.dtype}, but {self.source} takes {self.config.dtype}"
            raise UserError("--data.root", problem, "give images of that type")
        own, found = self.config.classes, len(data.classes)
        is_unnamed = data.classes == tuple(f"class {index}" for index in range(found))
        if not is_unnamed or found > len(own):
            return data
        for images in (data.train, data.val):
            if images is not None:
                images.classes = own
        pixels = data.pixels and (*data.pixels, *(0,) * (len(own) - found))
        return replace(data, classes=own, pixels=pixels)

    def record(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """What the model of the run says of where it comes from; classes: those of the run."""
        rows = shared_classes(self.config.classes, classes)
        kept = [name for name, row in zip(classes, rows, strict=True) if row is not None]
        return {"model": self.source, "classes_kept": kept}

    def load(self, config: ModelConfig) -> Segmenter:
        """Load the model, and give it the classes and the record of `config`."""
        assert self.folder is not None
        with located(f"--{KEY}"):
            model = read_model(self.folder)
        change_classes(model, config.classes, palette=config.palette)
        colors = config.palette or model.config.palette
        model.config = replace(config, palette=colors)
        return model

    def describe(self, classes: tuple[str, ...]) -> str:
        """Say in a line what is kept for these classes."""
        config, kept = self.config, self.record(classes)["classes_kept"]
        parts = f"{self.source} ({config.backbone}, {config.context}, {config.head})"
        if config.classes == classes:
            return f"starts from {parts}: all of it, for the same {len(classes)} classes"
        fresh = [name for name in classes if name not in kept]
        known = f", and of that what is known of {some_of(kept)}" if kept else ""
        new = f"; fresh: {some_of(fresh)}" if fresh else ""
        return f"starts from {parts}: all but the last layer{known}{new}"


def adopt_architecture(run: RunConfig, given: Collection[str], out: Path | None) -> RunConfig:
    """Put the architecture of the model that a run starts from into the run.

    given: keys that came together with the model's name, and must agree with it. The others give
    way: a recipe is written for a network of its own. out: the folder of the run, which may be
    emptied.
    """
    network = run.model
    if network.start_from is None:
        return run
    if KEY not in given:  # it stands in the recipe, as other keys of it do
        plain, usual = asdict(run), asdict(RunConfig())
        given = {
            f"{section}.{name}"
            for section, names in plain.items()
            for name, value in names.items()
            if value != usual[section][name]
        }
    with located(f"--{KEY}"):
        folder = find_model(network.start_from)
        config = read_config(folder)
        if out is not None and folder.resolve().is_relative_to(out.resolve()):
            raise UserError("", f"{network.start_from} lies in --out {out}", "give another --out")
    for key in sorted(given):
        section, name, *inner = key.split(".")
        if name not in (*ARCHITECTURE[section], "backbone_weights"):
            continue
        own, theirs = getattr(getattr(run, section), name), getattr(config, name, None)
        for part in inner:
            own, theirs = own.get(part), theirs.get(part) if theirs else None
        if own not in (theirs, "auto", None):
            has = "all weights are its own" if name == "backbone_weights" else f"it has {theirs}"
            problem = f"{own}, but with --start-from {network.start_from} {has}"
            raise UserError(f"--{key}", problem, "leave one of them out")
    source = network.start_from
    if folder.parent != BUILTIN:  # the run may be resumed from another working folder
        source = str(Path(source).absolute())
    parts: dict[str, Any] = {name: getattr(config, name) for name in ARCHITECTURE["model"]}
    parts |= {"start_from": source, "backbone_weights": None}
    # what its weights were trained on, also where the new images have another mean
    data = replace(run.data, bands=config.bands, mean=config.mean, std=config.std)
    return replace(run, data=data, model=replace(network, **parts))
