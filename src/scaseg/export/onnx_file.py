"""A traced model as one ONNX file: named axes, metadata, and the steps around the network."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram

from scaseg.config.model import ModelConfig
from scaseg.config.run import SMALLEST_SIDE
from scaseg.errors import UserError
from scaseg.export.trace import cannot, quiet
from scaseg.io.ownership import MARK
from scaseg.models.segmenter import Segmenter
from scaseg.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18  # what torch's exporter writes by itself, and the first whose Resize has antialias
IR_VERSION = 10


def require_onnx() -> None:
    """UserError where the packages of the extra are not installed."""
    for name in ("onnx", "onnxruntime", "onnxscript"):
        if find_spec(name) is None:
            raise UserError("onnx", f"{name} is not installed", "pip install 'scaseg[export]'")


def to_onnx(model: Segmenter, program: ExportedProgram) -> ModelProto:
    """Write images (batch, C, height, width) -> scores (batch, classes, height, width) in ONNX."""
    with quiet():
        try:
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=["images"],
                output_names=["scores"],
                verbose=False,
            )
            assert exported is not None
            proto: ModelProto = exported.model_proto
        except Exception as error:  # an operation that ONNX has not
            raise cannot(model, "torch.onnx", error) from error
    _clean(proto)
    _name_axes(proto, {0: "batch", 2: "height", 3: "width"})
    return proto


def describe(proto: ModelProto, metadata: dict[str, str]) -> None:
    """Write what a user of the file must know into it."""
    from onnx import helper

    proto.producer_name, proto.producer_version = "scaseg", __version__
    proto.doc_string = MARK  # so that --overwrite knows it again
    helper.set_model_props(proto, metadata)


def _clean(proto: ModelProto) -> None:
    """Drop what the exporter notes for its developers: lines of code, paths of this machine."""
    graph = proto.graph
    for part in (*graph.node, *graph.initializer, *graph.value_info, graph):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]  # shapes in the exporter's own symbols; runtimes infer them


def _name_axes(proto: ModelProto, names: dict[int, str]) -> None:
    for value in (*proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
        for axis, name in names.items():
            value.type.tensor_type.shape.dim[axis].dim_param = name


def add_labels(proto: ModelProto, config: ModelConfig, multiple: int = 1) -> ModelProto:
    """Fold resizing, normalization and argmax in: pixels as they are stored -> labels.

    images (batch, height, width, C), uint8 (float32 for bands of another type) -> labels
    (batch, height, width), uint8 (uint16 for more than 256 classes): what `predict` gives.
    multiple: of which the backbone takes its images.
    """
    from onnx import compose, parser

    before = parser.parse_model(_before(config, multiple))
    after = parser.parse_model(_after(config))
    network = compose.add_prefix(proto, "network/")  # a copy
    network.ir_version = IR_VERSION
    # ONNX Runtime takes axes of one name for equal, and would reuse buffers of the other size
    _name_axes(network, {0: "batch", 2: "h", 3: "w"})
    ends = [("normalized", "network/images")]
    joined = compose.merge_models(before, network, io_map=ends)
    ends = [("network/scores", "scores"), ("full_size", "back")]
    whole: ModelProto = compose.merge_models(joined, after, io_map=ends)
    del whole.opset_import[1:]  # each part brought the same one
    return whole


def _header(name: str) -> str:
    return f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}]>\n{name}'


def _before(config: ModelConfig, multiple: int) -> str:
    """The steps before the network, in ONNX's own words."""
    stored = "uint8" if config.dtype == "uint8" else "float"
    channels, unit = config.in_channels, 255.0 if config.dtype == "uint8" else 1.0
    return f"""{_header("before")}
({stored}[batch, height, width, {channels}] images) =>
(float[batch, {channels}, h, w] normalized, int64[2] full_size)
<float unit = {{{unit}}}, int64[1] channels = {{{channels}}},
 float[{channels}, 1, 1] mean = {{{_list(config.mean)}}},
 float[{channels}, 1, 1] std = {{{_list(config.std)}}}>
{{
    batch_size = Shape <start = 0, end = 1> (images)
    full_size = Shape <start = 1, end = 3> (images)
{_fitted(config)}
    step = Constant <value_ints = [{multiple}]> ()
    short = Constant <value_ints = [{multiple - 1}]> ()
    over_next = Add (fitted, short)
    steps = Div (over_next, step)
    size = Mul (steps, step)
    planes = Transpose <perm = [0, 3, 1, 2]> (images)
    pixels = Cast <to = 1> (planes)
    sizes = Concat <axis = 0> (batch_size, channels, size)
    resized = Resize <mode = "linear", antialias = 1, exclude_outside = 1> (pixels, , , sizes)
    scaled = Div (resized, unit)
    centered = Sub (scaled, mean)
    normalized = Div (centered, std)
}}"""


def _fitted(config: ModelConfig) -> str:
    """The size that the network sees, (height, width), from `full_size`: `fitted_size` in ONNX.

    In whole numbers, halves to even. Python computes in floats there, which round 1 of 70,000
    sizes the other way.
    """
    least = f"    least = Constant <value_ints = [{SMALLEST_SIDE}]> ()\n"
    if config.fit is None:
        return f"{least}    fitted = Max (full_size, least)"
    height, width = config.fit
    return f"""{least}    box = Constant <value_ints = [{height}, {width}]> ()
    one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> ()
    box_height, box_width = Split <num_outputs = 2> (box)
    full_height, full_width = Split <num_outputs = 2> (full_size)
    if_high = Mul (box_height, full_width)
    if_wide = Mul (box_width, full_height)
    is_high = LessOrEqual (if_high, if_wide)
    over = Where (is_high, box_height, box_width)
    under = Where (is_high, full_height, full_width)
    product = Mul (full_size, over)
    doubled = Mul (product, two)
    raised = Add (doubled, under)
    divisor = Mul (under, two)
    upward = Div (raised, divisor)
    rest = Mod (raised, divisor)
    odd = Mod (upward, two)
    is_odd = Equal (odd, one)
    zero = Sub (one, one)
    is_half = Equal (rest, zero)
    is_wrong = And (is_half, is_odd)
    excess = Cast <to = 7> (is_wrong)
    rounded = Sub (upward, excess)
    at_least = Max (rounded, least)
    fitted = Min (at_least, box)"""


def _after(config: ModelConfig) -> str:
    """The steps after the network: probabilities at the image's own size, and their largest."""
    classes = len(config.classes)
    kind, code = ("uint8", 2) if classes <= 256 else ("uint16", 4)
    return f"""{_header("after")}
(float[batch, {classes}, h, w] scores, int64[2] back) => ({kind}[batch, height, width] labels)
<int64[1] classes = {{{classes}}}>
{{
    probabilities = Softmax <axis = 1> (scores)
    count = Shape <start = 0, end = 1> (scores)
    wanted = Concat <axis = 0> (count, classes, back)
    enlarged = Resize <mode = "linear"> (probabilities, , , wanted)
    largest = ArgMax <axis = 1, keepdims = 0> (enlarged)
    labels = Cast <to = {code}> (largest)
}}"""


def _list(numbers: Any) -> str:
    return ", ".join(repr(float(number)) for number in numbers)
