"""ONNX Runtime computes a model's scores, from a file by `scaseg export`, on the CPU."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from scaseg.errors import UserError
from scaseg.models.backbones.base import Map
from scaseg.models.segmenter import Segmenter


def use_onnx(model: Segmenter, path: Path) -> None:
    """Let a graph take the place of `model.coarse`; padded batches stay with the model itself."""
    try:
        import onnxruntime
    except ImportError as error:
        remedy = "install it: pip install 'scaseg[export]'"
        raise UserError("--engine", "onnx", remedy) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(path, options, providers=providers)
    except Exception as error:  # its errors have no common class
        raise UserError.cannot_be("read", path, error, "remove it") from error
    own = model.coarse

    def scores(images: Tensor, sizes: Tensor | None = None) -> Map:
        if sizes is not None:
            return own(images, sizes)
        (found,) = session.run(["scores"], {"images": images.contiguous().numpy()})
        return torch.from_numpy(found), None

    model.coarse = scores  # type: ignore[method-assign]
