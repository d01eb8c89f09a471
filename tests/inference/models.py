"""Small networks at 1/8 with every context, and pictures to show them."""

import numpy as np
import torch
from torch import nn

from scaseg.config.model import ModelConfig
from scaseg.models.backbones import base
from scaseg.models.segmenter import Segmenter
from scaseg.registry import CONTEXTS

CLASSES = ("sky", "tree", "road", "water", "house")


class Backbone(base.Backbone):
    """Patches of 8 x 8 pixels, then their neighbours: a neuron sees 24 x 24 pixels.

    Rounds sizes down, as VGG16 does, or up, as MobileNetV2 does.
    """

    def __init__(self, *, up=False, channels=3):
        super().__init__()
        self.up = up
        self.patches = nn.Conv2d(channels, 16, 8, stride=8)
        self.look = nn.Conv2d(16, 16, 3, padding=1)

    def map_size(self, height, width, stride=None):
        return super().map_size(height, width) if self.up else (height // 8, width // 8)

    def forward(self, images, real=None):
        if self.up:
            height, width = images.shape[-2:]
            images = nn.functional.pad(images, (0, -width % 8, 0, -height % 8))
        if real is not None:
            assert not self.up
            real = real[:, 7::8, 7::8]
        features = torch.relu(self.patches(images))
        if real is not None:
            features = features * real.unsqueeze(1)
        return self.look(features), real


def small_model(context="none", *, up=False, fit=None, classes=CLASSES, channels=3, **options):
    torch.manual_seed(0)
    if context == "sca":
        options = {"hidden": 8, **options}
    block = CONTEXTS[context](16, **options)
    model = Segmenter(
        backbone=Backbone(up=up, channels=channels),
        context=block,
        head=nn.Conv2d(16, len(classes), 1),
        config=ModelConfig(
            classes=classes,
            in_channels=channels,
            mean=(0.5,) * channels,
            std=(0.25,) * channels,
            fit=fit,
        ),
    )
    with torch.no_grad():
        model.head.weight.normal_(0, 2)
        if context == "sca":  # far from the plain average
            block.predictor.score.weight.normal_(0, 2)
    return model.eval()


def picture(height, width, seed=0):
    """Something that differs from place to place: (H, W, 3)."""
    rows, columns = np.mgrid[:height, :width]
    waves = [
        127 + 80 * np.sin(columns / (40 + 17 * k) + k) + 40 * np.cos(rows / (23 + 9 * k))
        for k in range(3)
    ]
    image = np.stack(waves, -1)
    image[:, : width // 2] *= 0.5
    image[height // 2 :] += 50
    image += np.random.default_rng(seed).normal(0, 15, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def as_tensor(image):
    return torch.from_numpy(image).permute(2, 0, 1)


def refuse_unwaited_copies(monkeypatch):
    """As on MPS, where nothing says when a copy that nobody waits for has arrived."""

    def waiting(copy):
        def checked(*where, non_blocking=False, **how):
            assert not non_blocking
            return copy(*where, **how)

        return checked

    for name in ("to", "copy_"):
        monkeypatch.setattr(torch.Tensor, name, waiting(getattr(torch.Tensor, name)))
