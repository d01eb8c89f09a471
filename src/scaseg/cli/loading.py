"""Models by their folders: what is none is refused before anything slow is imported."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.io.model_folder import BEST, BUILTIN, USUAL, WEIGHTS, class_names, find_model

if TYPE_CHECKING:
    from scaseg.models.segmenter import Segmenter


def add_model(parser: argparse._ActionsContainer) -> None:
    """Describe --model, for commands that need no model of the user's own."""
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help=f"a run folder, one by save_pretrained, or {USUAL}: built in, and taken where none "
        "is given",
    )


def find(option: str, folder: str | None) -> Path:
    """Find a model's folder, in no time; ValueError names the option that it was given by.

    None: the package's own, never a folder of its name that happens to lie here.
    """
    try:
        found = find_model(folder if folder is not None else BUILTIN / USUAL)
        if not (found / WEIGHTS).is_file():  # nor a pipe, nor a device: both are read for ever
            raise ValueError(f"{found}: has no {WEIGHTS}; give a folder written by save_pretrained")
        if folder is not None and found == Path(folder) / BEST:
            sys.stderr.write(f"{folder}: an unfinished run; its best model so far is taken\n")
        return found
    except OSError as fault:  # a name too long, a folder that may not be looked into
        raise ValueError(
            f"{option}: {folder} cannot be read ({fault.strerror}); give another folder"
        ) from fault
    except ValueError as fault:
        raise ValueError(f"{option}: {fault}") from fault


def load(option: str, folder: str | Path, device: str) -> Segmenter:
    """Load a model onto a device; ValueError names the option that it was given by."""
    import torch

    from scaseg.models.build import load_model

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        device = "cuda" if cuda else "mps" if mps else "cpu"
    if (device == "cuda" and not cuda) or (device == "mps" and not mps):
        raise ValueError(f"--device: {device} is not available here; use cpu or auto")
    try:
        return load_model(folder).to(device)
    except ValueError as fault:
        raise ValueError(f"{option}: {fault}") from fault


def say_builtin(model: str | None, *, quiet: bool) -> None:
    """Tell which model was taken where none was given, once nothing is left to refuse."""
    if model is None and not quiet:
        classes = ", ".join(class_names(BUILTIN / USUAL))
        print(f"no --model: the built-in {USUAL} model ({classes})", file=sys.stderr)
