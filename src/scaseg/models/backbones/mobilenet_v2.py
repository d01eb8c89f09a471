"""MobileNetV2 at 1/8: the light backbone, for laptops."""

from __future__ import annotations

import re

from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.models.backbones.base import Backbone, Level, Map, State
from scaseg.models.padding import AddsUp, PaddedBatchNorm2d, apply_layers, keep_real, strided
from scaseg.ops.checks import check_whole_number

# expansion, channels, blocks, stride of the first block: table 2 of Sandler et al. 2018
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# timm's names of the layers of a block, and the numbers that they have here
TIMM = {"conv_pw": 0, "bn1": 1, "conv_dw": 3, "bn2": 4, "conv_pwl": 6, "bn3": 7}
TIMM_FIRST = {"conv_dw": 0, "bn1": 1, "conv_pw": 3, "bn2": 4}  # it does not expand


class MobileNetV2(Backbone):
    """(B, in_channels, H, W) -> (B, 320, ceil(H / stride), ceil(W / stride)).

    stride: 8, 16 or 32. From there on, strides become dilations: the block that would have strided
    computes the same values, only more of them, and later blocks look further to see what they saw.
    stages: how many of the seven rows of STAGES it has (3 to 7); with fewer it sees less, and has
    fewer channels. The last 1x1 convolution (320 -> 1280) belongs to the classifier and is left
    out. The names of the weights number every layer of a block.
    """

    channels_last = (
        None  # by cuDNN's depthwise kernels: 10 instead of 16 ms of a step (docs/speed.md)
    )
    channels_last_on_cpu = True  # 1.0 instead of 1.4 s of CPU time for a step of own_folder
    launch_bound = True
    hub = "timm/mobilenetv2_100.ra_in1k"
    numbering = r"features\.(\d+)"

    def __init__(self, in_channels: int = 3, *, stride: int = 8, stages: int = 7) -> None:
        super().__init__()
        if stride not in (8, 16, 32):
            raise UserError("stride", f"{stride!r}", "give 8, 16 or 32")
        check_whole_number("stages", stages, 3, len(STAGES))
        blocks: list[nn.Module] = [nn.Sequential(*_convolution(in_channels, 32, 3, stride=2))]
        channels, reached, dilation = 32, 2, 1
        levels: dict[int, tuple[Level, int]] = {}  # by stride, with the number of its last block
        for expansion, width, count, first_stride in STAGES[:stages]:
            for index in range(count):
                step = first_stride if index == 0 else 1
                seen = dilation
                if step == 2 and reached == stride:
                    step, dilation = 1, 2 * dilation
                reached *= step
                blocks.append(InvertedResidual(channels, width, expansion, step, seen))
                channels = width
            levels[reached] = Level(channels, reached), len(blocks) - 1
        self.stride, self.out_channels = reached, channels  # few stages do not reach a stride of 32
        kept = [levels[one] for one in levels if 4 <= one < reached]
        self.finer = tuple(level for level, _ in kept)
        self._last_blocks = [last for _, last in kept]
        self.features = nn.Sequential(*blocks)
        self.initialize()

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        real, maps = strided(real), []
        stem, *blocks = self.features
        x = keep_real(apply_layers(stem, images, real), real)
        for number, block in enumerate(blocks, start=1):
            x, real = self.run(block, x, real)
            if number in self._last_blocks:
                maps.append((keep_real(x, real), real))
        return [*maps, (keep_real(x, real), real)]

    @staticmethod
    def rename(state: State) -> State:
        """torchvision nests the layers of a block (conv.1.0), timm names them; we number them."""
        nested = re.compile(r"^features\.(\d+)\.conv\.(\d)\.(\d)\.(\w+)$")
        is_nested = any(nested.match(name) for name in state)

        def ours(name: str) -> str:
            if found := nested.match(name):
                block, part, layer, kind = found.groups()
                return f"features.{block}.conv.{3 * int(part) + int(layer)}.{kind}"
            found = re.match(r"^features\.(\d+)\.conv\.(\d)\.(\w+)$", name)
            if found and is_nested:  # the projection, behind one or two nested parts
                block, layer, kind = found.groups()
                return f"features.{block}.conv.{int(layer) + (2 if block == '1' else 4)}.{kind}"
            if found := re.match(r"^blocks\.(\d)\.(\d)\.(\w+)\.(\w+)$", name):
                stage, block, layer, kind = found.groups()
                number = 1 + sum(count for _, _, count, _ in STAGES[: int(stage)]) + int(block)
                place = (TIMM_FIRST if stage == "0" else TIMM).get(layer)
                return f"features.{number}.conv.{place}.{kind}"
            return re.sub(
                r"^bn1\.", "features.0.1.", re.sub(r"^conv_stem\.", "features.0.0.", name)
            )

        return {ours(name): tensor for name, tensor in state.items()}


class InvertedResidual(AddsUp):
    """Expand, look around channel by channel, project; add the input where shapes allow."""

    def __init__(
        self, channels: int, width: int, expansion: int, stride: int, dilation: int
    ) -> None:
        super().__init__()
        hidden = channels * expansion
        self.expands = expansion != 1
        expand = _convolution(channels, hidden, 1) if self.expands else []
        look = _convolution(hidden, hidden, 3, stride=stride, dilation=dilation, groups=hidden)
        project = [nn.Conv2d(hidden, width, 1, bias=False), PaddedBatchNorm2d(width)]
        self.conv = nn.Sequential(*expand, *look, *project)  # one flat list: the weights' names
        self.strides = stride == 2
        self.adds_input = stride == 1 and channels == width

    def forward(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Take and return a map (B, C, H, W) and which of its neurons are real (B, H, W).

        Padding is set to zero only before what looks around. Between blocks it holds anything, but
        for the first block, which does not expand.
        """
        out = x
        if self.expands:  # its bias fills the padding, which the next layer would look at
            out = keep_real(apply_layers(self.conv[:3], out, real), real)
        if self.strides:
            real = strided(real)
        out = apply_layers(self.conv[3 if self.expands else 0 :], out, real)
        if self.adds_input:
            out = self.add_up(out, x)
        return out, real


def _convolution(
    channels: int, width: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
) -> list[nn.Module]:
    padding = dilation * (kernel // 2)
    return [
        nn.Conv2d(channels, width, kernel, stride, padding, dilation, groups, bias=False),
        PaddedBatchNorm2d(width),
        nn.ReLU6(inplace=True),
    ]
