"""ResNet-50 dilated to 1/8: the backbone of most later work on context."""

from __future__ import annotations

from torch import Tensor, nn

from scaseg.models.backbones.base import Backbone, Level, Map
from scaseg.models.padding import AddsUp, PaddedBatchNorm2d, keep_real, strided

# blocks, channels of the 3x3 convolution, stride and dilation of each stage: strides 2 of the last
# two became dilations, the way of torchvision's replace_stride_with_dilation
STAGES = ((3, 64, 1, 1), (4, 128, 2, 1), (6, 256, 1, 2), (3, 512, 1, 4))


class ResNet50(Backbone):
    """(B, in_channels, H, W) -> (B, 2048, ceil(H / 8), ceil(W / 8)).

    Where a stage would have strided, its first block computes the same values, only more of them,
    and later blocks are dilated to see what they saw. Weights have torchvision's names, which are
    timm's too: conv1, bn1, layer1.0.conv1, ..., layer4.2.bn3; the classifier fc is left out.
    """

    out_channels = 2048
    finer = (Level(256, 4),)
    hub = "timm/resnet50.tv_in1k"

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = PaddedBatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels, before = 64, 1
        for stage, (count, width, stride, dilation) in enumerate(STAGES, start=1):
            blocks = [Bottleneck(channels, width, stride, before)]
            channels, before = width * Bottleneck.expansion, dilation
            blocks += [Bottleneck(channels, width, 1, dilation) for _ in range(count - 1)]
            self.add_module(f"layer{stage}", nn.ModuleList(blocks))
        self.initialize()

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        real = strided(real)
        x = keep_real(self.relu(self.bn1(self.conv1(images), real)), real)
        # nothing is below 0 here, so zeros are to a largest value what lies beyond the edge
        x, real = self.maxpool(x), strided(real)
        x = keep_real(x, real)
        for stage in range(1, len(STAGES) + 1):
            for block in self.get_submodule(f"layer{stage}").children():
                x, real = self.run(block, x, real)
            if stage == 1:
                finer = keep_real(x, real), real
        return [finer, (keep_real(x, real), real)]


class Bottleneck(AddsUp):
    """1x1 to fewer channels, 3x3, 1x1 to many; the input is added, through `downsample` if needed.

    The 3x3 convolution has the stride, as in torchvision (ResNet V1.5).
    """

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        wide = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = PaddedBatchNorm2d(width)
        self.conv2 = nn.Conv2d(
            width, width, 3, stride, padding=dilation, dilation=dilation, bias=False
        )
        self.bn2 = PaddedBatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = PaddedBatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.ModuleList | None = None
        if stride != 1 or channels != wide:
            self.downsample = nn.ModuleList(
                [nn.Conv2d(channels, wide, 1, stride, bias=False), PaddedBatchNorm2d(wide)]
            )

    def forward(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Take and return a map (B, C, H, W) and which of its neurons are real (B, H, W).

        Padding is set to zero only before what looks around; between blocks it holds anything.
        """
        # the norm's bias fills the padding, which the next convolution would look at
        out = keep_real(self.relu(self.bn1(self.conv1(x), real)), real)
        if self.conv2.stride == (2, 2):
            real = strided(real)
        out = self.relu(self.bn2(self.conv2(out), real))
        out = self.bn3(self.conv3(out), real)
        if self.downsample is not None:
            convolution, norm = self.downsample
            x = norm(convolution(x), real)
        return self.relu(self.add_up(out, x)), real
