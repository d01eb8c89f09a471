"""The ONNX file of a model in the user's cache: exported and compared once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scaseg.errors import UserError, located
from scaseg.io.model_folder import find_model
from scaseg.io.paths import CACHE, user_cache
from scaseg.version import __version__


def cached_onnx(model: str | Path | None, on_note: Callable[[str], None]) -> Path:
    """Return the ONNX file of a model; the first time it is made, which takes half a minute."""
    from scaseg.export.export import export_model
    from scaseg.inference.outputs import fingerprint
    from scaseg.models.build import read_model

    if (cache := user_cache()) is None:
        raise UserError("--engine", "onnx needs a place for its files", f"set {CACHE} to a folder")
    with located("--model"):
        folder = find_model(model)
    path = cache / "onnx" / f"{fingerprint(folder)}-{__version__}.onnx"
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = f"set {CACHE} to another folder"
            raise UserError.cannot_be("written", path.parent, error, remedy) from error
        on_note(f"exporting the model for ONNX Runtime, once: {path}")
        export_model(read_model(folder), path)
    return path
