"""The model card: what a model is, what it was trained on, how good it is, from its own record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import yaml

from scaseg.config.model import ModelConfig
from scaseg.config.reading import Dumper
from scaseg.config.recipe import describe

if TYPE_CHECKING:
    from scaseg.models.segmenter import Segmenter

# settings that say nothing about the model
ASIDE = {"data.root", "data.cache", "data.cache_dir", "data.check", "model.palette"}
ASIDE |= {"training.checkpoint_every", "training.checkpoint_minutes", "training.loggers"}
ASIDE |= {"model.backbone_options"}  # whole networks stand there, and config.json has them
MEANS = {"PPA/aAcc": "PPA", "CAA/mAcc": "CAA", "mIoU": "mIoU"}


def model_card(model: Segmenter, name: str, license: str | None = None) -> str:  # noqa: A002
    """Return README.md of a model, as the Hugging Face hub shows it; name: of its repository."""
    config = model.config
    record = without_paths(config.training)
    recipe, judged = record.get("recipe", {}), record.get("validation") or {}
    data = recipe.get("data", {}).get("root") or recipe.get("data", {}).get("name")
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    lines = [f"# {name.rpartition('/')[2]}", ""]
    lines += [
        f"A segmentation model by scaseg: backbone `{config.backbone}`, context "
        f"`{config.context}`, head `{config.head}`, {millions:.1f} million weights. It assigns "
        f"every pixel one of {len(config.classes)} classes: {', '.join(config.classes)}.",
        *("", "## Use", "", "```sh", f"scaseg predict photo.jpg --model hf:{name} --overlay"),
        *("```", "", "```python", "import scaseg", "", f'model = scaseg.load_model("{name}")'),
        'segmentation = model.predict("photo.jpg")  # .labels, .confidence, .overlay()',
        *("```", "", "## Training", ""),
    ]
    if started := record.get("started_from"):
        lines += [f"Started from {PurePosixPath(started['model']).name}.", ""]
    lines += [f"Data: {data}." if data else "Its record does not say on which data.", ""]
    if settings := list(changed_settings(recipe)):
        lines += ["| setting | value | what for |", "|---|---|---|"]
        lines += [f"| `{key}` | `{value}` | {about} |" for key, value, about in settings] + [""]
    lines += ["## Metrics", "", *_metrics(config, judged), "", *_limits(config, data)]
    return f"---\n{_front_matter(config, name, data, judged, license)}---\n\n" + "\n".join(lines)


def _metrics(config: ModelConfig, judged: dict[str, Any]) -> Iterator[str]:
    means = [f"{name} {float(judged[key]):.1f}" for name, key in MEANS.items() if judged.get(key)]
    if not means:
        yield "None are recorded: it was not validated in training. Evaluate it before you use it."
        return
    yield f"On the validation images of its training, which chose the epoch: {', '.join(means)}."
    if config.temperature != 1:
        yield ""
        yield f"Confidence is calibrated on the same images (temperature {config.temperature:.2f})."
    if classes := judged.get("per_class"):
        yield from ("", "| class | accuracy | IoU |", "|---|---|---|")
        for name, shares in classes.items():
            cells = [shares[key] for key in ("accuracy", "IoU")]
            texts = ("n/a" if cell is None else f"{cell:.1f}" for cell in cells)
            yield f"| {name} | {' | '.join(texts)} |"


def _limits(config: ModelConfig, data: str | None) -> Iterator[str]:
    yield from ("## Intended use and limits", "")
    kind = "photographs" if config.bands is None else f"images of {config.bands} bands"
    yield f"Meant for {kind} like those of {data or 'its training'}; for others, measure it first:"
    yield "`scaseg evaluate`. It knows no class but its own and gives every pixel one of them, also"
    yield "where none fits; `scaseg predict --min-confidence 0.6` leaves such pixels out. It has"
    yield "the gaps and the bias of its training images, and is no basis for decisions about people"
    yield "or safety by itself."
    if config.fit is not None:
        yield f"Images are resized to fit {config.fit[0]} x {config.fit[1]} pixels: what is smaller"
        yield "than a few pixels then is not found."
    yield ""


def _front_matter(
    config: ModelConfig,
    name: str,
    data: str | None,
    judged: dict[str, Any],
    license: str | None,  # noqa: A002
) -> str:
    facts: dict[str, Any] = {"library_name": "scaseg", "pipeline_tag": "image-segmentation"}
    if license is not None:
        facts["license"] = license
    facts["tags"] = ["semantic-segmentation", config.context, config.backbone.replace(":", "-")]
    found = [
        {"type": kind, "name": key, "value": round(float(judged[key]), 2)}
        for key, kind in (("mIoU", "mean_iou"), ("PPA", "accuracy"))
        if judged.get(key)
    ]
    if found and data:
        result = {
            "task": {"type": "image-segmentation"},
            "dataset": {"name": data, "type": data.replace(" ", "_"), "split": "validation"},
            "metrics": found,
        }
        facts["model-index"] = [{"name": name.rpartition("/")[2], "results": [result]}]
    return yaml.dump(facts, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def changed_settings(recipe: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Give key, value and purpose of the settings of a recipe that are not the defaults."""
    for key, usual, _, about in describe():
        section, name = key.split(".")
        value = recipe.get(section, {}).get(name, usual)
        usual = list(usual) if isinstance(usual, tuple) else usual
        value = list(value) if isinstance(value, tuple) else value
        if value != usual and section != "machine" and key not in ASIDE:
            yield key, value, about


def without_paths(value: Any) -> Any:
    """Reduce every absolute path, at any depth, to its last name.

    >>> without_paths({"root": "/home/me/photos", "scale": [0.5, 2]})
    {'root': 'photos', 'scale': [0.5, 2]}
    """
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return kind(value).name
    return value
