"""Write a model as one file for another runtime, and check it there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.config.model import ModelConfig
from scaseg.errors import UserError
from scaseg.export.check import Comparison, Run, compare
from scaseg.export.onnx_file import OPSET, add_labels, describe, require_onnx, to_onnx
from scaseg.export.trace import cannot, check_exportable, prepare, quiet, trace
from scaseg.io.atomic import whole_file
from scaseg.io.ownership import MARK, check_replaceable
from scaseg.io.paths import check_file
from scaseg.models.segmenter import Segmenter, evaluating
from scaseg.plots.palette import default_palette
from scaseg.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

Format = Literal["onnx", "torch-export"]
FORMATS: tuple[str, ...] = get_args(Format)
METADATA = "scaseg.json"  # its name among the extra files of a torch.export archive


@dataclass(frozen=True)
class Export:
    """What was written, and how close it is to the model."""

    path: Path
    graph: str  # its inputs and outputs, in words
    comparisons: tuple[Comparison, ...]

    @property
    def difference(self) -> float:
        """The largest difference from the model; `Comparison` says of what."""
        return max(one.difference for one in self.comparisons)


def export_model(
    model: Segmenter,
    path: str | Path,
    *,
    format: Format = "onnx",  # noqa: A002
    labels: bool = False,
    overwrite: bool = False,
) -> Export:
    """Write a model as one file that runs without scaseg, after comparing the two.

    Batch, height and width stay free. images (batch, C, height, width), float32 and normalized as
    by `model.normalize` -> scores (batch, classes, height, width). labels: fold resizing,
    normalization and argmax in (ONNX alone): images (batch, height, width, C) uint8 -> labels
    (batch, height, width), what `predict` gives. Classes, palette, mean, std and `fit`, the size
    at which the model sees, are in the file's metadata. format: "onnx", or "torch-export" for
    `torch.export.load`.

    UserError for a model that cannot be exported; WorkError, and no file, where the graph differs
    from the model by more than 1e-4 on one of five sizes.

    >>> import scaseg
    >>> scaseg.export_model(scaseg.load_model("outdoor"), "outdoor.onnx")  # doctest: +SKIP
    Export(path=PosixPath('outdoor.onnx'), ...)
    """
    path = Path(path)
    if format not in FORMATS:
        raise UserError.choice("format", format, FORMATS)
    if labels and format != "onnx":
        raise UserError("labels", f"not with {format}", "it goes with onnx")
    check_suffix("format", path, format)
    check_file("path", path, overwrite=overwrite)
    check_replaceable(path)
    check_exportable(model, format)
    if format == "onnx":
        require_onnx()
    with evaluating(model):
        plain = prepare(model)
        program = trace(plain)
        if format == "onnx":
            proto = to_onnx(plain, program)
            if labels:
                proto = add_labels(proto, model.config, model.backbone.multiple)
            describe(proto, {name: _text(value) for name, value in metadata(model.config).items()})
            comparisons = compare(model, _onnx_runtime(model, proto), labels=labels)
            with whole_file(path) as temporary:
                temporary.write_bytes(proto.SerializeToString())
        else:
            module = program.module()
            run: Run = lambda images: module(torch.from_numpy(images)).numpy()  # noqa: E731
            comparisons = compare(model, run, labels=False)
            text = json.dumps({"software": MARK, **metadata(model.config)}, ensure_ascii=False)
            with whole_file(path) as temporary, quiet():
                torch.export.save(program, temporary, extra_files={METADATA: text})
    return Export(path, _in_words(model.config, format, labels), comparisons)


def check_suffix(place: str, path: Path, format: Format) -> None:  # noqa: A002
    """Refuse a name that promises the other format."""
    if path.suffix == {"onnx": ".pt2", "torch-export": ".onnx"}[format]:
        raise UserError(place, f"{format} for {path}", "give the other one, or another suffix")


def metadata(config: ModelConfig) -> dict[str, Any]:
    """What a user of the file must know of the model; in ONNX each entry is JSON of its own."""
    return {
        "scaseg": __version__,
        "classes": list(config.classes),
        "palette": config.palette or default_palette(len(config.classes)),
        "dtype": config.dtype,  # of the pixels; uint8 is divided by 255 before it is normalized
        "mean": list(config.mean),
        "std": list(config.std),
        "temperature": config.temperature,  # by which scores are divided before softmax
        "fit": config.fit,  # (height, width) that images are resized into; null: taken as they are
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _onnx_runtime(model: Segmenter, proto: ModelProto) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # fatal ones: we word the others
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(images: NDArray[np.generic]) -> NDArray[np.generic]:
        try:
            return session.run(None, {"images": images})[0]
        except Exception as error:  # a graph that fits no size but the example's
            raise cannot(model, "ONNX Runtime", error) from error

    return run


def _in_words(config: ModelConfig, kind: str, labels: bool) -> str:
    channels, classes = config.in_channels, len(config.classes)
    stored = "uint8" if config.dtype == "uint8" else "float32"
    ends = f"(batch, {channels}, height, width) float32 -> scores (batch, {classes}, height, width)"
    if labels:
        ends = f"(batch, height, width, {channels}) {stored} -> labels (batch, height, width)"
    version = f"onnx, opset {OPSET}" if kind == "onnx" else "torch.export"
    return f"{version}: images {ends}"
