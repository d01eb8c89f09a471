"""Models by their folders: what is none is refused before anything slow is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.model_folder import BEST, WEIGHTS, find_model

if TYPE_CHECKING:
    from scaseg.models import Segmenter


def find(option: str, folder: str) -> Path:
    """Find a model's folder, in no time; ValueError names the option that it was given by."""
    try:
        found = find_model(folder)
        if not (found / WEIGHTS).is_file():  # nor a pipe, nor a device: both are read for ever
            raise ValueError(f"{found}: has no {WEIGHTS}; give a folder written by save_pretrained")
        if found == Path(folder) / BEST:
            sys.stderr.write(f"{folder}: an unfinished run; its best model so far is taken\n")
        return found
    except OSError as fault:  # a name too long, a folder that may not be looked into
        raise ValueError(
            f"{option}: {folder} cannot be read ({fault.strerror}); give another folder"
        ) from fault
    except ValueError as fault:
        raise ValueError(f"{option}: {fault}") from fault


def load(option: str, folder: str, device: str) -> Segmenter:
    """Load a model onto a device; ValueError names the option that it was given by."""
    import torch

    from scaseg.build import load_model

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        device = "cuda" if cuda else "mps" if mps else "cpu"
    if (device == "cuda" and not cuda) or (device == "mps" and not mps):
        raise ValueError(f"--device: {device} is not available here; use cpu or auto")
    try:
        return load_model(folder).to(device)
    except ValueError as fault:
        raise ValueError(f"{option}: {fault}") from fault
