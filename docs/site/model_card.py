r"""Finish the card and the config of the built-in model after its files were copied there.

    scaseg evaluate --data stanford_background --split test --device cpu --json \
        > src/scaseg/builtin/outdoor/metrics.json
    python docs/site/model_card.py

Writes the tables between the card's marks from metrics.json and config.json, and removes from the
latter the paths of the machine that trained it.
"""

from __future__ import annotations

import json
import re
import sys
from math import prod
from pathlib import Path
from typing import Any

from scaseg.comparison.tables import markdown_table
from scaseg.errors import UserError
from scaseg.io.atomic import write_json, write_text
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.models.card import MEANS, changed_settings, without_paths

FOLDER = Path(__file__).parents[2] / "src" / "scaseg" / "builtin" / "outdoor"
CARD, METRICS = "README.md", "metrics.json"
# colours of the classes, where the model has none of its own
COLORS = {
    "sky": (142, 201, 240),
    "tree": (46, 125, 50),
    "road": (138, 138, 148),
    "grass": (164, 214, 94),
    "water": (31, 95, 196),
    "building": (217, 101, 59),
    "mountain": (123, 90, 69),
    "foreground": (217, 56, 127),
}
# the size to which images are brought, chosen on validation images: docs/log.md
FIT = (480, 480)
DATA = "stanford_background"  # the name of its data, wherever they lie


def metrics_table(metrics: dict[str, Any], weights: Path) -> str:
    """A table of what `evaluate --json` printed, and of the size of the model."""
    millions, size = count_weights(weights) / 1e6, weights.stat().st_size / 1e6
    means = (f"{name} **{metrics[key]:.1f}**" for name, key in MEANS.items())
    rows = [
        [name, f"{scores['accuracy']:.1f}", f"{scores['IoU']:.1f}"]
        for name, scores in metrics["per_class"].items()
    ]
    parts = [
        f"{metrics['images']} test photographs: {', '.join(means)}.",
        f"{millions:.1f} million weights, {size:.1f} MB.",
        markdown_table(["class", "accuracy", "IoU"], rows).rstrip(),
    ]
    return "\n\n".join(parts)


def count_weights(path: Path) -> int:
    """Count the trained numbers by the header of a safetensors file."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    aside = ("running_mean", "running_var", "num_batches_tracked", "__metadata__")
    return sum(prod(of["shape"]) for name, of in header.items() if not name.endswith(aside))


def training_table(training: dict[str, Any]) -> str:
    """A table of the settings that are not the defaults, and of the epoch that was chosen."""
    rows = [
        [f"`{key}`", f"`{value}`", about]
        for key, value, about in changed_settings(training["recipe"])
    ]
    notes = []
    if kept := training.get("validation"):
        score = f"mIoU {float(kept['mIoU']):.1f} on the photographs held out for choices"
        notes.append(f"Kept: the weights after epoch {kept['epoch']}, {score}.")
    return markdown_table(["setting", "value", "what for"], rows, *notes).rstrip()


def with_part(card: str, name: str, made: str) -> str:
    """Replace what stands between two marks of a card."""
    begin, end = f"<!-- begin {name} -->\n\n", f"\n\n<!-- end {name} -->"
    found = re.fullmatch(f"(.*{begin}).*({end}.*)", card, re.DOTALL)
    if found is None:
        raise UserError(CARD, f"lacks the marks <!-- begin {name} --> and <!-- end {name} -->")
    return f"{found[1]}{made}{found[2]}"


def finished_card(folder: Path, config: dict[str, Any]) -> str:
    """Return the card of a model, its tables made from the files beside it."""
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    card = (folder / CARD).read_text(encoding="utf-8")
    card = with_part(card, "metrics", metrics_table(metrics, folder / WEIGHTS))
    return with_part(card, "training", training_table(config["training"]))


def finished_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without paths, with colours for its classes and a size for images."""
    config = without_paths(config)
    config["training"]["recipe"]["data"]["root"] = DATA
    config["fit"] = config["fit"] or list(FIT)
    if config["palette"] is None:
        config["palette"] = [list(COLORS[name]) for name in config["classes"]]
    return config


def main(folder: Path = FOLDER) -> None:
    """Finish the files of one model; nothing is written if one of them is wrong."""
    try:
        config = finished_config(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
        card = finished_card(folder, config)
    except (OSError, ValueError, KeyError) as fault:
        sys.exit(f"error: {folder}: {fault!r}; copy the model, then evaluate it into {METRICS}")
    write_json(folder / CONFIG, config)
    write_text(folder / CARD, card)
    for name in (CARD, METRICS, CONFIG, WEIGHTS):
        (folder / name).chmod(0o644)  # a wheel keeps what it finds, and others must read it
    print(f"wrote {folder / CARD} and {folder / CONFIG}")


if __name__ == "__main__":
    main()
