"""Contexts against public implementations of their papers: the same weights, the same map.

In an environment of its own, since torchvision must not be installed beside scaseg:

    python -m venv venv && venv/bin/pip install torch numpy pillow safetensors pydensecrf2 \
        timm torchvision mmengine mmcv-lite==2.1.0 mmsegmentation==1.2.2 ftfy regex
    PYTHONPATH=src venv/bin/python benchmarks/public_implementations.py

Prints a Markdown table: the largest difference in float64, beside the size of what is compared.
Where a paper's module has more than the common form h = W_d x + context allows (a second
transform, another combination), the part that both have is compared; each check says how.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.inference.crf import DenseCrf
from scaseg.nn.build import build_context

Check = Callable[[], Iterator[tuple[str, str, Tensor, Tensor]]]


class Compiled(types.ModuleType):
    """Stands for compiled parts that are not there: what is compared here is plain PyTorch."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(name)

        return absent


def prepare() -> None:
    """Let torchvision and mmcv be imported beside a CPU build of torch."""
    warnings.simplefilter("ignore")
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    globals()["_library"] = library  # its operators live as long as it does
    sys.modules["mmcv._ext"] = Compiled("mmcv._ext")


def context(name: str, channels: int, **options: Any) -> Any:
    """A context in float64, with parameters that nothing has set to 0 or alike."""
    block = build_context(name, channels, classes=5, options=options).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    return block


def random(module: nn.Module) -> Any:
    """A public module in float64, ready to be compared: random weights, no biases that differ."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


def identity(layer: nn.Module) -> None:
    """Make a 1x1 convolution the identity."""
    layer.weight.data = torch.eye(layer.weight.shape[0]).double()[:, :, None, None]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def non_local() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmcv.cnn import NonLocal2d

    theirs = random(NonLocal2d(16, reduction=2, use_scale=True, mode="embedded_gaussian"))
    for layer in (theirs.g.conv, theirs.conv_out.conv):
        layer.bias.data.zero_()  # the values of `dot` have none
    ours = context("dot", 16, key_channels=8)
    ours.query.load_state_dict(theirs.theta.conv.state_dict())
    ours.key.weight.data = theirs.phi.conv.weight.data
    out, value = (one.conv.weight.flatten(1) for one in (theirs.conv_out, theirs.g))
    ours.context.weight.data = (out @ value)[:, :, None, None]
    identity(ours.identity)
    x = normal(2, 16, 9, 11)
    yield "dot", "mmcv NonLocal2d", ours(x), theirs(x)


def gcnet() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmcv.cnn import ContextBlock
    from timm.layers import GlobalContext

    x, ours = normal(2, 32, 9, 11), context("gcnet", 32, reduction=4)
    identity(ours.identity)
    narrow, norm, _, wide = ours.transform
    options = {"rd_ratio": 0.25, "rd_divisor": 1, "fuse_add": True, "fuse_scale": False}
    timms, mmcvs = random(GlobalContext(32, **options)), random(ContextBlock(32, 0.25))
    mlp, steps = timms.mlp_add, mmcvs.channel_add_conv
    mlp.norm.eps = norm.eps  # 1e-6 there, 1e-5 in PyTorch
    for theirs, score, first, second, third in (
        (timms, timms.conv_attn, mlp.fc1, mlp.norm, mlp.fc2),
        (mmcvs, mmcvs.conv_mask, steps[0], steps[1], steps[3]),
    ):
        score.weight.data = ours.score.weight.data
        for layer, own in ((first, narrow), (second, norm), (third, wide)):
            layer.weight.data = own.weight.data.reshape(layer.weight.shape)
            layer.bias.data = own.bias.data.reshape(layer.bias.shape)
        where = "timm GlobalContext" if theirs is timms else "mmcv ContextBlock"
        yield "gcnet", where, ours(x), theirs(x)


def pyramid_pooling() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmseg.models.decode_heads.psp_head import PPM

    bins = (1, 2, 3, 6)
    theirs = random(PPM(bins, 16, 8, None, None, {"type": "ReLU"}, False))
    ours = context("psp", 16, bins=bins, branch_channels=8)
    for level, own in zip(theirs, ours.levels, strict=True):
        own.load_state_dict(level[1].conv.state_dict())
    x = normal(2, 16, 12, 18)  # cells of whole neurons: theirs have no others
    ours.project.weight.data = torch.eye(32).double()[:, :, None, None]  # theirs ends before it
    found = ours.target_context(x, None, None).mT.unflatten(2, (12, 18))
    yield "psp", "mmseg PPM, four levels", found, torch.cat(theirs(x), 1)


def atrous_pyramid() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from torchvision.models.segmentation.deeplabv3 import ASPP

    theirs = ASPP(16, [2, 4, 6], 8).double().eval()  # its norms change nothing but by their epsilon
    ours = context("aspp", 16, rates=(2, 4, 6), branch_channels=8)
    scale = (1 + theirs.project[1].eps) ** -0.5
    pairs = [(one[0], own) for one, own in zip(theirs.convs[:4], ours.around, strict=True)]
    ours_project = nn.Conv2d(40, 8, 1, bias=False).double()
    pairs += [(theirs.convs[4][1], ours.everywhere), (theirs.project[0], ours_project)]
    for layer, own in pairs:
        own.weight.data = layer.weight.data * scale
        if own.bias is not None:
            own.bias.data.zero_()
    x = normal(2, 16, 13, 17)
    found = ours_project(ours.branches(x, None, None)).relu()
    yield "aspp", "torchvision ASPP", found, theirs(x)


def criss_cross() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmcv.ops.cc_attention import CrissCrossAttention

    theirs = random(CrissCrossAttention(16))
    theirs.gamma.scale.data.fill_(1)
    theirs.value_conv.bias.data.zero_()
    ours = context("ccnet", 16, rounds=1, key_channels=2)
    ours.query.weight.data = theirs.query_conv.weight.data * 2**0.5  # ours divides by sqrt(d)
    ours.query.bias.data = theirs.query_conv.bias.data * 2**0.5
    ours.key.weight.data = theirs.key_conv.weight.data
    theirs.key_conv.bias.data.zero_()
    ours.context.weight.data = theirs.value_conv.weight.data
    identity(ours.identity)
    x = normal(2, 16, 9, 11)
    yield "ccnet", "mmcv CrissCrossAttention, one round", ours(x), theirs(x)


def expectation_maximization() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmseg.models.decode_heads.ema_head import EMAModule

    theirs = EMAModule(16, 6, 3, 0.1).double().eval()
    ours = context("ema", 16, pair_channels=6, key_channels=16, steps=3)
    theirs.bases = F.normalize(theirs.bases, dim=1)  # in float64, as ours are
    ours.bases.data = theirs.bases[0].mT.clone()
    identity(ours.feature)
    ours.feature.bias.data.zero_()
    x = normal(2, 16, 9, 11)
    belongs, share = ours.factors(x, None, None)
    # theirs gives the bases back, of length 1; ours the means of W_c x, as long as they are
    found = belongs @ F.normalize(share.mT @ x.flatten(2).mT, dim=-1)
    yield "ema", "mmseg EMAModule, 3 steps", found.mT.unflatten(2, (9, 11)), theirs(x)


def object_context() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from mmseg.models.decode_heads.ocr_head import ObjectAttentionBlock, SpatialGatherModule

    gather = SpatialGatherModule(1)
    theirs = random(ObjectAttentionBlock(16, 8, 1, None, None, {"type": "ReLU"}))
    for name, parameter in theirs.named_parameters():
        # nothing negative: a ReLU of theirs, which ours has not, changes nothing
        parameter.data = parameter.data.abs() * (0.3 if "weight" in name else 0)
    ours = context("object", 16, key_channels=8)

    def matrix(*layers: Any) -> Tensor:
        found = layers[0].conv.weight.flatten(1)
        for layer in layers[1:]:
            found = layer.conv.weight.flatten(1) @ found
        return found

    after, beside = theirs.bottleneck.conv.weight.flatten(1).chunk(2, 1)
    ours.query.weight.data = matrix(*theirs.query_project)[:, :, None, None]
    ours.query.bias.data.zero_()
    ours.key.weight.data = matrix(*theirs.key_project)[:, :, None, None]
    passed = after @ matrix(theirs.value_project, theirs.out_project)
    ours.context.weight.data = passed[:, :, None, None]
    ours.identity.weight.data = beside[:, :, None, None]
    x = normal(2, 16, 9, 11).abs()
    found = theirs(x, gather(x, ours.classifier(x)))
    yield "object", "mmseg SpatialGather, ObjectAttention", ours(x), found


def dense_crf() -> Iterator[tuple[str, str, Tensor, Tensor]]:
    from PIL import Image
    from pydensecrf.densecrf import DenseCRF2D

    path = Path(__file__).parents[1] / "docs" / "images" / "photograph.jpg"
    with Image.open(path) as photograph:
        pixels = np.array(photograph.convert("RGB").resize((360, 90)))
    torch.manual_seed(1)
    scores = F.interpolate(3 * torch.randn(1, 6, 12, 45), (90, 360), mode="bilinear")[0]
    probabilities = scores.softmax(0)
    theirs = DenseCRF2D(360, 90, 6)
    theirs.setUnaryEnergy(np.ascontiguousarray(-probabilities.log().flatten(1).numpy()))
    theirs.addPairwiseGaussian(sxy=3, compat=3)
    theirs.addPairwiseBilateral(sxy=80, srgb=13, rgbim=pixels, compat=10)
    expected = torch.tensor(np.array(theirs.inference(5))).view(6, 90, 360)
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    found = DenseCrf(near_weight=3, weight=10).refine(probabilities, image)
    yield "`--crf`, float32", "pydensecrf DenseCRF2D, 5 steps", found, expected


CHECKS: tuple[Check, ...] = (
    non_local,
    gcnet,
    pyramid_pooling,
    atrous_pyramid,
    criss_cross,
    expectation_maximization,
    object_context,
    dense_crf,
)
PACKAGES = ("torch", "timm", "torchvision", "mmcv-lite", "mmsegmentation", "pydensecrf2")


def main() -> None:
    """Run every check; exit code 1 where one differs by more than 1e-9 (float32: 1e-4)."""
    prepare()
    print(
        "| context | public implementation | largest difference | largest value |\n"
        "|---|---|---|---|"
    )
    worst = 0.0
    for check in CHECKS:
        torch.manual_seed(0)
        for name, where, found, expected in check():
            apart = (found - expected).abs()
            worst = max(
                worst, float(apart.max()) / (1e-9 if apart.dtype == torch.float64 else 1e-4)
            )
            print(f"| {name} | {where} | {apart.max():.1e} | {expected.abs().max():.1f} |")
    print("\n" + ", ".join(f"{name} {version(name)}" for name in PACKAGES))
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
