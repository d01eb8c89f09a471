"""The built-in model's network on a CPU beside ONNX Runtime on the same graph.

    OMP_NUM_THREADS=1 python benchmarks/onnxruntime_cpu.py [--size 240 320] [--rounds 6]

CPU time of one image, one thread, the best of several rounds, in turn: as it is, with folded norms
as `predict` has it, and ONNX Runtime on the folded graph. Needs `pip install 'scaseg[export]'`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import scaseg
from scaseg.models.folding import fold_batch_norms


class Scores(nn.Module):
    """The scores of neurons, of a model."""

    def __init__(self, model: scaseg.Segmenter) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model.coarse(images)[0]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, nargs=2, default=(240, 320))
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = Scores(scaseg.load_model("outdoor")).eval()
    folded = Scores(scaseg.load_model("outdoor")).eval()
    fold_batch_norms(folded.model)
    image = torch.randn(1, 3, *options.size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outdoor.onnx"
        torch.onnx.export(folded, (image,), path, dynamo=True, verbose=False)
        one = onnxruntime.SessionOptions()
        one.intra_op_num_threads = one.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, one, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: image.numpy()}
    ways = {
        "as it is": lambda: plain(image),
        "folded": lambda: folded(image),
        "onnxruntime": lambda: session.run(None, given),
    }
    print("largest difference", np.abs(session.run(None, given)[0] - plain(image).numpy()).max())
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for name, way in ways.items():
            way()
            began = time.process_time()
            for _ in range(3):
                way()
            best[name] = min(best[name], (time.process_time() - began) / 3)
    for name, seconds in best.items():
        print(f"{name:12} {1000 * seconds:7.1f} ms")


if __name__ == "__main__":
    main()
