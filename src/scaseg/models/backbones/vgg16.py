"""VGG16 up to conv5_3, dilated to 1/8 as the paper says."""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from scaseg.models.backbones.base import Backbone, Level, Map, State
from scaseg.models.padding import keep_real, pooled
from scaseg.nn.convolution import halved, rectified, watched
from scaseg.ops.checks import check_whole_number

# Convolutions between the pools of VGG16; torchvision counts every layer, which gives the names
# of the weights: features.0 (conv1_1) to features.28 (conv5_3).
STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class Vgg16(Backbone):
    """(B, in_channels, H, W) -> (B, 512, H // 8, W // 8).

    pool1 to pool3 stay; pool4 and pool5 are removed, and the convolutions after pool4 (conv5)
    get dilation 2, so that each still sees what it saw. What follows pool5 in VGG16, fc6, needs
    dilation 4 for the same reason: see the head `fcn`.

    stages: how many of the five blocks of convolutions it has (2 to 5). With fewer it sees less;
    pools stay up to 1/8, so that the map does.
    """

    offset = 3.5  # pools halve, and drop what is left over: neuron r sees around pixel 8 r + 3.5
    usual_head = "fcn"  # the paper's
    hub = "timm/vgg16.tv_in1k"

    def __init__(self, in_channels: int = 3, *, stages: int = 5) -> None:
        super().__init__()
        check_whole_number("stages", stages, 2, len(STAGES))
        layers: list[nn.Module] = []
        channels = in_channels
        for stage, widths in enumerate(STAGES, start=1):
            dilation = 2 if stage == 5 else 1
            for width in widths if stage <= stages else ():
                layers += [
                    nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            if stage < 4:
                layers.append(nn.MaxPool2d(2, 2))
            elif stage == 4:
                layers.append(nn.Identity())  # pool4's place: the names after it stay as they are
        self.out_channels = channels
        self.finer = (Level(STAGES[min(stages, 3) - 1][-1], 4),)
        self.features = nn.Sequential(*layers)
        self.initialize()

    def map_size(self, height: int, width: int, stride: int | None = None) -> tuple[int, int]:
        """Return (h, w) of the map of an image: pools drop what is left over."""
        stride = stride or self.stride
        return height // stride, width // stride

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        layers = list(self.features)
        *pools, last = (at for at, one in enumerate(layers) if isinstance(one, nn.MaxPool2d))
        # parts that end with a pool keep little for the backward pass; not the last one, whose
        # input, at 1/4, a head may read
        cuts = [0, *(pool + 1 for pool in pools), last]
        cuts += [at for at, one in enumerate(layers) if isinstance(one, nn.Identity)]
        x, finer = images, (images, real)
        for start, stop in pairwise([*cuts, len(layers)]):
            if start == last:
                finer = x, real
            x, real = self.run(partial(_apply, layers[start:stop]), x, real)
        return [finer, (x, real)]

    @staticmethod
    def rename(state: State) -> State:
        """The classifier's first layers become fc6 and fc7; timm calls them pre_logits."""
        fc6, fc7 = r"^(classifier\.0|pre_logits\.fc1)\.", r"^(classifier\.3|pre_logits\.fc2)\."
        return {
            re.sub(fc7, "head.fc7.", re.sub(fc6, "head.fc6.", name)): tensor
            for name, tensor in state.items()
        }


def _apply(layers: list[nn.Module], x: Tensor, real: Tensor | None) -> Map:
    steps = list(layers)
    while steps:
        layer = steps.pop(0)
        if type(layer) is nn.Conv2d and steps and _is_plain(steps[0]):
            x, layer = rectified(layer, x), steps.pop(0)
        elif isinstance(layer, nn.MaxPool2d):
            x = halved(layer, x)
        else:
            x = layer(x)
        if isinstance(layer, nn.MaxPool2d):
            real = pooled(real)  # less: windows across the edge of an odd size are dropped
        if isinstance(layer, nn.MaxPool2d | nn.ReLU):
            x = keep_real(x, real)
    return x, real


def _is_plain(layer: nn.Module) -> bool:
    """Whether it is a ReLU that nobody watches."""
    return type(layer) is nn.ReLU and not watched(layer)
