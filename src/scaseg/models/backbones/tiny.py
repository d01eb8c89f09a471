"""Five convolutions at 1/8: learns small pictures from random weights within a minute on a CPU."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from scaseg.models.backbones.base import Backbone, Level, Map
from scaseg.models.padding import PaddedBatchNorm2d, apply_layers, keep_real, strided

# channels, kernel, stride of each convolution
LAYERS = ((16, 3, 2), (32, 3, 2), (48, 3, 1), (64, 3, 2), (64, 1, 1))


class Tiny(Backbone):
    """(B, in_channels, H, W) -> (B, 64, ceil(H / 8), ceil(W / 8)).

    A neuron sees 23 x 23 pixels and no more: whatever it knows of the rest of the image comes
    from the context module. That makes it the backbone of `context_scenes`, where contexts are
    compared, and not one for photographs.
    """

    out_channels = 64
    finer = (Level(48, 4),)
    usual_head = "pointwise"
    numbering = r"features\.(\d+)"

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        layers = []
        channels = in_channels
        for width, kernel, stride in LAYERS:
            layers.append(
                nn.Sequential(
                    nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False),
                    PaddedBatchNorm2d(width),
                    nn.ReLU(inplace=True),
                )
            )
            channels = width
        self.features = nn.Sequential(*layers)
        self.initialize()

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        x, maps = images, []
        for layer, (_, _, stride) in zip(self.features, LAYERS, strict=True):
            if stride == 2:
                real = strided(real)
            x, real = self.run(partial(_apply, layer), x, real)
            maps.append((x, real))
        return [maps[2], maps[4]]


def _apply(layer: nn.Module, x: Tensor, real: Tensor | None) -> Map:
    return keep_real(apply_layers(layer, x, real), real), real
