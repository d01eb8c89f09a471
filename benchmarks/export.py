"""Time an exported model in ONNX Runtime beside torch, and measure what int8 costs.

    scaseg export --out outdoor.onnx; scaseg export --labels --out labels.onnx
    python benchmarks/export.py outdoor.onnx [--labels labels.onnx --data stanford_background]

Times: the built-in model's scores of one image of 360 x 480 (--size), the smallest of the repeats,
which alternate: eager as loaded, eager as `scaseg predict` runs it (`for_prediction`), ONNX
Runtime, and ONNX Runtime in int8 (static, calibrated on 32 training images, convolutions alone,
weights by channel). With --data, the test mIoU of the float and the int8 labels. --cpu-time: what
all threads work, where others use the machine too; with OMP_WAIT_POLICY=PASSIVE those that wait are
asleep.

    python benchmarks/export.py --contexts

exports a small network with each context of the registry, and says how close it is or why not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import scaseg
from scaseg.config.run import DataConfig
from scaseg.data.splits import build_dataset
from scaseg.metrics import ConfusionMatrix
from scaseg.models.folding import for_prediction
from scaseg.registry import CONTEXTS

CALIBRATION = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scores", nargs="?", type=Path)
    parser.add_argument("--contexts", action="store_true")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--size", type=int, nargs=2, default=(360, 480))
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    if options.contexts:
        every_context()
        return
    torch.set_num_threads(options.threads)
    model, folded = scaseg.load_model("outdoor"), scaseg.load_model("outdoor")
    for_prediction(folded)
    images = torch.randn(1, 3, *options.size)
    session = open_session(options.scores, options.threads)
    ways = {
        "eager": lambda: model(images),
        "eager, as predict runs it": lambda: folded(images),
        "ONNX Runtime": lambda: session.run(None, {"images": images.numpy()}),
    }
    with tempfile.TemporaryDirectory() as place, torch.inference_mode():
        if options.data:
            small = Path(place) / "int8.onnx"
            quantize(options.labels, small, build_dataset(DataConfig(root=options.data), "train"))
            whole, eight = (open_session(p, options.threads) for p in (options.labels, small))
            pixels = np.random.default_rng(0).integers(0, 256, (1, 360, 480, 3), np.uint8)
            ways["ONNX Runtime, labels"] = lambda: whole.run(None, {"images": pixels})
            ways["ONNX Runtime, labels, int8"] = lambda: eight.run(None, {"images": pixels})
            size = small.stat().st_size / options.labels.stat().st_size
            print(f"int8: {100 * size:.0f} % of the size")
        best = dict.fromkeys(ways, float("inf"))
        clock = time.process_time if options.cpu_time else time.perf_counter
        for _ in range(options.repeats + 1):
            for name, work in ways.items():
                began = clock()
                work()
                best[name] = min(best[name], clock() - began)
        for name, seconds in best.items():
            print(f"{name}: {1000 * seconds:.1f} ms")
        if options.data:
            test = build_dataset(DataConfig(root=options.data), "test")
            for name, one in (("float32", whole), ("int8", eight)):
                print(f"{name}: mIoU {mean_iou(one, test):.2f}")


def every_context() -> None:
    with tempfile.TemporaryDirectory() as place:
        for name in CONTEXTS:
            model = scaseg.create_model("tiny", name, "pointwise", classes=3).eval()
            try:
                done = scaseg.export_model(model, Path(place) / "m.onnx", overwrite=True)
                print(f"{name}: {done.difference:.1e}", flush=True)
            except (scaseg.UserError, scaseg.WorkError) as error:
                print(error, flush=True)


def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would count
    return onnxruntime.InferenceSession(str(path), options)


def quantize(source: Path, target: Path, dataset) -> None:
    class Reader(CalibrationDataReader):
        def __init__(self):
            indices = np.linspace(0, len(dataset) - 1, CALIBRATION).round().astype(int)
            self.images = (dataset[int(i)].image[None] for i in indices)

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {"images": image}

    quantize_static(
        source,
        target,
        Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv"],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=True,  # without VNNI, products of 8 bits overflow in pairs
    )


def mean_iou(session, dataset) -> float:
    matrix = ConfusionMatrix(8)
    for index in range(len(dataset)):
        sample = dataset[index]
        (labels,) = session.run(None, {"images": sample.image[None]})
        truth = torch.from_numpy(np.ascontiguousarray(sample.labels))
        matrix.update(torch.from_numpy(labels[0]).int(), truth)
    return matrix.scores().summary()["mIoU"]


if __name__ == "__main__":
    main()
