"""Models by their folders, for commands that start faster than Lightning does."""

from __future__ import annotations

from pathlib import Path

import torch

from scaseg.build import load_model
from scaseg.models import Segmenter


def load(option: str, folder: str, device: str) -> Segmenter:
    """Load a model onto a device; ValueError names the option that it was given by."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        device = "cuda" if cuda else "mps" if mps else "cpu"
    if (device == "cuda" and not cuda) or (device == "mps" and not mps):
        raise ValueError(f"--device: {device} is not available here; use cpu or auto")
    try:
        if not any((Path(folder) / name / "config.json").is_file() for name in (".", "model")):
            from scaseg.training.folder import find_model  # slow, and knows unfinished runs

            folder = str(find_model(folder))
        return load_model(folder).to(device)
    except ValueError as fault:
        raise ValueError(f"{option}: {fault}") from fault
