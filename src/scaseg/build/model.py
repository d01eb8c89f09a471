"""The network, from names."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from scaseg.config import IMAGENET_MEAN, IMAGENET_STD, ModelConfig
from scaseg.models.backbones import MobileNetV2, Tiny, Vgg16
from scaseg.models.heads import HEADS, SegmentationHead
from scaseg.models.saving import CONFIG, read_config, read_weights
from scaseg.models.segmenter import Segmenter
from scaseg.models.weights import load_pretrained
from scaseg.nn.selective_context import SelectiveContext

BACKBONES: dict[str, type[Vgg16] | type[MobileNetV2] | type[Tiny]] = {
    "vgg16": Vgg16,
    "mobilenet_v2": MobileNetV2,
    "tiny": Tiny,
}
# The contexts of the paper and attention: what each makes of SelectiveContext's options
CONTEXTS = {"none": "none", "average": "average", "sca": "predicted", "dot": "dot"}

# What `head: auto` means in a run: the paper's behind its backbone, a light one behind a light one
USUAL_HEADS = {"vgg16": "fcn", "mobilenet_v2": "compact", "tiny": "pointwise"}


def create_model(
    backbone: str = "vgg16",
    context: str = "sca",
    head: str = "fcn",
    *,
    classes: int | Sequence[str],
    backbone_weights: str | Path | None = None,
    in_channels: int = 3,
    **context_options: Any,
) -> Segmenter:
    """Build a segmentation network; the defaults are the paper's.

    classes: their names, or how many there are. backbone_weights: None, "imagenet" (from the
    Hugging Face hub), or a safetensors file in torchvision's or timm's names. context_options go to
    SelectiveContext: hidden, layers, activation, pair_channels, ...

    >>> import torch
    >>> model = create_model("mobilenet_v2", head="compact", classes=["sky", "tree", "road"])
    >>> model.eval()(torch.randn(1, 3, 61, 90)).shape
    torch.Size([1, 3, 61, 90])
    """
    if isinstance(classes, (bool, str)):
        raise ValueError(f"classes is {classes!r}; give a list of names, or how many there are")
    if isinstance(classes, int):
        classes = [f"class {index}" for index in range(classes)]
    config = ModelConfig(
        classes=tuple(classes),
        backbone=backbone,
        context=context,
        head=head,
        in_channels=in_channels,
        context_options=dict(context_options),
        # for channels that are not red, green and blue nobody knows better
        mean=IMAGENET_MEAN if in_channels == 3 else (0.5,) * in_channels,
        std=IMAGENET_STD if in_channels == 3 else (0.25,) * in_channels,
    )
    model = build_model(config)
    if backbone_weights is not None:
        load_pretrained(model, backbone, backbone_weights)
    return model


def build_model(config: ModelConfig) -> Segmenter:
    """Build the network that a config describes, its weights fresh."""
    _check_choice("backbone", config.backbone, BACKBONES)
    _check_choice("context", config.context, CONTEXTS)
    _check_choice("head", config.head, HEADS)
    body = BACKBONES[config.backbone](config.in_channels)
    return Segmenter(
        backbone=body,
        context=_build_context(config, body.out_channels),
        head=SegmentationHead(body.out_channels, len(config.classes), shape=HEADS[config.head]),
        config=config,
    )


def load_model(folder: str | Path) -> Segmenter:
    """Load what `save_pretrained` wrote, or the model of a run folder: weights in, eval mode."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file() and (folder / "model" / CONFIG).is_file():
        folder = folder / "model"
    model = build_model(read_config(folder))
    read_weights(model, folder)
    return model.eval()


def _build_context(config: ModelConfig, channels: int) -> nn.Module:
    taken = ("self", "channels", "out_channels", "dependency")
    known = [name for name in signature(SelectiveContext.__init__).parameters if name not in taken]
    for name in config.context_options:
        if name not in known:
            raise ValueError(
                f"context_options.{name}: unknown key; a context has {', '.join(known)}"
            )
    try:
        return SelectiveContext(
            channels, dependency=CONTEXTS[config.context], **config.context_options
        )
    except TypeError as fault:
        raise ValueError(f"context_options: {fault}; see SelectiveContext") from fault
    except ValueError as fault:
        raise ValueError(f"context_options.{fault}") from fault


def _check_choice(name: str, value: str, choices: dict[str, Any]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
