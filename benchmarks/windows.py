"""Measure how much predictions in sliding windows differ from those of the whole image.

    python benchmarks/windows.py PHOTOS [MODEL ...] [--window 128] [--overlap 64] [--count 16]
                                [--scale 1]

For each model, and for untrained MobileNetV2 networks with `sca` and `average` (seed 0), over the
first images: the mean over pixels and classes of |windows - whole| of the probabilities, with the
context of each window and with that of the whole image; and the share of pixels whose class
changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import scaseg
from scaseg.inference.inputs import Inputs
from scaseg.inference.tta import TestTimeAugmentation, predict_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--overlap", type=int, default=64)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--scale", type=float, default=1, help="resize images by this factor first")
    options = parser.parse_args()
    photographs = [one.path for one in Inputs([options.photos], Path("nowhere"))][: options.count]
    images = [opened(path, options.scale) for path in photographs]
    networks = {name: scaseg.load_model(name) for name in options.models}
    for context in ("sca", "average"):
        torch.manual_seed(0)
        fresh = scaseg.create_model("mobilenet_v2", context, "compact", classes=8).eval()
        networks[f"fresh {context}"] = fresh
    print(f"{'model':40} {'scope':8} {'error':>8} {'other class':>12}")
    for name, model in networks.items():
        whole = [predict_scores(model, image) for image in images]
        for scope in ("window", "image"):
            tta = TestTimeAugmentation(
                window=options.window, overlap=options.overlap, context_scope=scope
            )
            found = [predict_scores(model, image, tta) for image in images]
            pairs = list(zip(found, whole, strict=True))
            error = np.mean([float((one - other).abs().mean()) for one, other in pairs])
            changed = np.mean(
                [float((a.argmax(0) != b.argmax(0)).float().mean()) for a, b in pairs]
            )
            print(f"{name[-40:]:40} {scope:8} {error:8.4f} {changed:12.2%}", flush=True)


def opened(path: Path, scale: float) -> torch.Tensor:
    """A photograph, perhaps larger than it is: uint8 (3, H, W)."""
    with Image.open(path) as picture:
        size = (round(picture.width * scale), round(picture.height * scale))
        image = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


if __name__ == "__main__":
    main()
