"""Which folder holds a model: found before anything slow is imported."""

from __future__ import annotations

from pathlib import Path

CONFIG, WEIGHTS = "config.json", "model.safetensors"  # of a saved model
RECIPE = "recipe.yaml"  # of a run
MODEL, BEST = Path("model"), Path("checkpoints/best")  # where a run has its model


def find_model(path: str | Path) -> Path:
    """Find the model in a run folder, or take the folder of a saved model as it is.

    Of a run that was cut off, the best model so far. ValueError where there is none.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder; give a run folder or one by save_pretrained")
    for place in (path, path / MODEL, path / BEST):
        if (place / CONFIG).is_file():
            return place
    if (path / RECIPE).is_file():
        raise ValueError(f"{path}: this run has no model yet; continue it with --resume")
    raise ValueError(f"{path}: has no {CONFIG}; give a folder written by save_pretrained")
