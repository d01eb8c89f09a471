"""`own_folder` beside the decoders of other libraries: the same backbone, images, crops, epochs.

    PYTHONPATH=src python3 benchmarks/peers.py atlantis [--weights WEIGHTS.safetensors]
        [--nets new fpn deeplab] [--enlarged] [--seeds 3] [--key data.limit=800] --out runs.csv

new: the recipe on crops of 240 x 320 of photographs at their own size; --enlarged: as it stands,
fitted into 512 x 512, crops of 384 x 384. fpn, deeplab: the decoders of segmentation-models-pytorch
(FPN of 256 and 128 channels; DeepLabV3+ of 256), written anew, with exactly as many parameters;
behind the same MobileNetV2 with its last convolution, AdamW 2e-4 and 2e-3,
cross-entropy, no running mean. mIoU is that on val, of the last epoch. (deeplab wants no batch of a
single image: choose data.limit so.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.config.recipe import load_recipe
from scaseg.io.table import read_rows, write_rows
from scaseg.io.tensors import read_tensors
from scaseg.models.backbones.base import Map
from scaseg.models.heads import Head, PyramidHead
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train

LAST = 1280  # channels of MobileNetV2's last convolution
STRIDES = {"fpn": 32, "deeplab": 16}
SIZES = {False: ("null", "[240, 320]", "320"), True: ("[512, 512]", "[384, 384]", "512")}
PLAIN = {"training.lr": 2e-4, "training.head_lr": 2e-3, "training.class_weights": "none"}
PLAIN |= {"training.ema": "null", "training.calibrate": False, "model.context": "none"}
PLAIN |= {"model.context_options": "{}"}


class LastConvolution(nn.Sequential):
    """MobileNetV2's last convolution, where a network of ours has its context."""

    def __init__(self, channels: int, weights: Path | None) -> None:
        norm = nn.BatchNorm2d(LAST)
        super().__init__(nn.Conv2d(channels, LAST, 1, bias=False), norm, nn.ReLU6())
        if weights is not None and not norm.weight.is_meta:
            start, (own, _) = "features.18.", read_tensors(weights)
            self.load_state_dict(
                {name.removeprefix(start): own[name] for name in own if name.startswith(start)}
            )

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        assert mask is None  # nothing is padded: crops of one size, images one by one
        found: Tensor = super().forward(x)
        return found


class Decoder(PyramidHead):
    """A head that reads a backbone's finer maps, without the layers of ours."""

    def __init__(self) -> None:
        Head.__init__(self)

    def forward(self, x: Tensor, real: Tensor | None, finer: Sequence[Map]) -> Map:
        return self.decode(x, [one for one, _ in finer]), None

    def decode(self, x: Tensor, finer: Sequence[Tensor]) -> Tensor:
        """The scores at 1/4."""
        raise NotImplementedError


class Fpn(Decoder):
    """Lin et al. 2017; Kirillov et al., Panoptic feature pyramid networks, 2019."""

    def __init__(self, finer: Sequence[int], classes: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(channels, 256, 1) for channels in (*finer, LAST))
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(
                    nn.Conv2d(128 if index else 256, 128, 3, padding=1, bias=False),
                    nn.GroupNorm(32, 128),
                    nn.ReLU(inplace=True),
                )
                for index in range(max(1, level))
            )
            for level in range(len(self.lateral))
        )
        self.dropout = nn.Dropout2d(0.2)
        self.score = nn.Conv2d(128, classes, 1)

    def decode(self, x: Tensor, finer: Sequence[Tensor]) -> Tensor:
        maps = [layer(one) for layer, one in zip(self.lateral, (*finer, x), strict=True)]
        for level in reversed(range(len(finer))):
            maps[level] = maps[level] + F.interpolate(maps[level + 1], maps[level].shape[-2:])
        sizes = [one.shape[-2:] for one in maps]
        for level, block in enumerate(self.blocks):
            for index, layer in enumerate(block):
                maps[level] = layer(maps[level])
                if level:
                    maps[level] = larger(maps[level], sizes[level - index - 1])
        found: Tensor = self.score(self.dropout(torch.stack(maps).sum(0)))
        return found


class DeepLab(Decoder):
    """DeepLabV3+: Chen et al., Encoder-decoder with atrous separable convolution, 2018."""

    def __init__(self, finer: Sequence[int], classes: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [convolution(LAST, 256), *(separable(LAST, 256, rate) for rate in (12, 24, 36))]
        )
        self.pooled = convolution(LAST, 256)
        self.project = nn.Sequential(
            convolution(5 * 256, 256), nn.Dropout(0.5), separable(256, 256)
        )
        self.fine = convolution(finer[0], 48)
        self.merge = separable(256 + 48, 256)
        self.score = nn.Conv2d(256, classes, 1)

    def decode(self, x: Tensor, finer: Sequence[Tensor]) -> Tensor:
        pooled = self.pooled(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[-2:])
        x = self.project(torch.cat([*(branch(x) for branch in self.branches), pooled], 1))
        x = larger(x, finer[0].shape[-2:])
        found: Tensor = self.score(self.merge(torch.cat([x, self.fine(finer[0])], 1)))
        return found


def convolution(channels: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )


def separable(channels: int, width: int, rate: int = 1) -> nn.Module:
    wide = nn.Conv2d(channels, channels, 3, 1, rate, rate, groups=channels, bias=False)
    return nn.Sequential(wide, convolution(channels, width))


def larger(x: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=True)


@contextmanager
def built_as(net: str, weights: Path | None) -> Iterator[None]:
    """Let networks that are built meanwhile have the decoder of a peer; `new`: their own."""
    if net not in STRIDES:
        yield
        return
    kind: Callable[..., Decoder] = {"fpn": Fpn, "deeplab": DeepLab}[net]

    def head(shape: object, backbone: object, classes: int) -> Decoder:
        return kind([level.channels for level in backbone.finer], classes)  # type: ignore[attr-defined]

    def context(name: str, channels: int, **options: object) -> LastConvolution:
        return LastConvolution(channels, weights)

    build = "scaseg.models.build"
    with patch(f"{build}.build_head", head), patch(f"{build}.build_context", context):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--nets", nargs="+", choices=("new", *STRIDES), default=("new", *STRIDES))
    parser.add_argument("--enlarged", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--key", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    fit, crop, side = SIZES[options.enlarged]
    for seed in range(options.seeds):
        for net in options.nets:
            keys = {"data.root": str(options.data), "data.val": "val", "training.seed": seed}
            keys |= {"augment.fit": fit, "augment.crop": crop, "training.epochs": options.epochs}
            keys |= {"training.validate_every": options.epochs, "training.pictures": 0}
            keys["model.backbone_weights"] = str(options.weights or "null")
            if net in STRIDES:
                keys |= PLAIN | {"model.backbone_options": f"{{stride: {STRIDES[net]}}}"}
            run = load_recipe("own_folder", keys | dict(one.split("=", 1) for one in options.key))
            SegmentationModule.validation_batch = 1 if net in STRIDES else None  # none is padded
            began = time.perf_counter()
            with built_as(net, options.weights):
                result = train(run, None, quiet=True)
            last = result.rows[-1]
            row = {
                "name": f"{net}_512" if options.enlarged else net,
                "set": options.data.name,
                "seed": seed,
                "epochs": options.epochs,
                "net": "pyramid" if net == "new" else net,
                "fit": side,
                **{name: round(float(last[name]), 3) for name in ("mIoU", "CAA", "PPA")},
                "final_loss": round(float(last["loss"]), 4),
                "seconds": round(time.perf_counter() - began, 1),
                "images_s": round(max(float(one["images_per_second"]) for one in result.rows)),
                "parameters": sum(one.numel() for one in result.model.parameters()),
            }
            write_rows(options.out, [*read_rows(options.out), row])
            print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
