"""Networks from names: built afresh, or loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from scaseg.config.model import MOST_CLASSES, ModelConfig, read_config
from scaseg.errors import UserError, located
from scaseg.io.hub import download
from scaseg.io.model_folder import CONFIG, WEIGHTS, find_model, is_repository
from scaseg.models.backbones.base import Backbone
from scaseg.models.classes import change_classes
from scaseg.models.heads import build_head
from scaseg.models.pretrained import load_pretrained, read_weights
from scaseg.models.segmenter import Segmenter
from scaseg.nn.build import build_context
from scaseg.registry import BACKBONES, CONTEXTS, HEADS, require_taken, taken_options
from scaseg.system import available_memory, in_words


def create_model(
    backbone: str = "vgg16",
    context: str = "sca",
    head: str = "fcn",
    *,
    classes: int | Sequence[str],
    backbone_weights: str | Path | None = None,
    in_channels: int = 3,
    backbone_options: Mapping[str, Any] | None = None,
    **context_options: Any,
) -> Segmenter:
    """Build a segmentation network; the defaults are the paper's.

    classes: their names, or how many there are. backbone_weights: None, "imagenet" (from the
    Hugging Face hub), a safetensors file in torchvision's or timm's names, or a model whose
    backbone is taken: "outdoor", a run folder. backbone: one of ours, hf:REPOSITORY (any backbone
    of transformers) or timm:NAME. backbone_options: of the backbone, such as {"stride": 16},
    {"stages": 4} or {"output_stride": 8}. context_options go to the context: hidden, layers,
    activation, pair_channels, ... of SelectiveContext

    >>> import torch
    >>> model = create_model("mobilenet_v2", head="compact", classes=["sky", "tree", "road"])
    >>> model.eval()(torch.randn(1, 3, 61, 90)).shape
    torch.Size([1, 3, 61, 90])
    """
    if isinstance(classes, (bool, str)):
        raise UserError("classes", f"{classes!r}", "give a list of names, or how many there are")
    if isinstance(classes, int):
        if classes > MOST_CLASSES:
            raise UserError("classes", f"{classes}", f"label maps have room for {MOST_CLASSES}")
        classes = [f"class {index}" for index in range(classes)]
    kind: type[Backbone] = BACKBONES.choose(backbone)
    require_taken(context_options, [context], "context_options.")
    require_taken(backbone_options or {}, [backbone], "backbone_options.", BACKBONES)
    options = kind.complete(backbone.partition(":")[2], backbone_options or {})
    facts = kind.facts(options)
    config = ModelConfig(
        classes=tuple(classes),
        backbone=backbone,
        context=context,
        head=head,
        in_channels=in_channels,
        context_options=dict(context_options),
        backbone_options=options,
        # for channels that are not red, green and blue nobody knows better
        mean=facts.mean if in_channels == 3 else (0.5,) * in_channels,
        std=facts.std if in_channels == 3 else (0.25,) * in_channels,
    )
    model = build_model(config)
    if backbone_weights is not None:
        load_pretrained(model, backbone_weights)
    return model


def build_model(config: ModelConfig) -> Segmenter:
    """Build the network that a config describes, its weights fresh."""
    outline_model(config)
    return _assemble(config)


def load_model(name: str | Path, *, classes: Sequence[str] | None = None, **hub: Any) -> Segmenter:
    """Load a saved model, in eval mode.

    name: a folder by `save_pretrained`, a run folder, a built-in model, or a repository of the
    Hugging Face hub ("user/model"); what lies on the disk comes first. classes: names of other
    classes, to train it further for them: those that it knows by name keep their weights in the
    last layer, the others start fresh (from torch's seed). hub: options of
    huggingface_hub.snapshot_download: revision, token, cache_dir, local_files_only, ...

    >>> load_model("outdoor").classes[:3]
    ('sky', 'tree', 'road')
    >>> load_model("outdoor", classes=["road", "car", "sky"]).classes
    ('road', 'car', 'sky')
    """
    if is_repository(name):
        model = read_model(download(str(name), CONFIG, WEIGHTS, **hub))
    else:
        model = read_model(find_model(name))
    if classes is not None:
        known = change_classes(model, classes)
        record = {"started_from": {"model": str(name), "classes_kept": list(known)}}
        model.config = replace(model.config, training=record)
    return model


def read_model(folder: Path) -> Segmenter:
    """Load the model of a folder that `find_model` gave. No random number is drawn."""
    config = read_config(folder)
    with located(folder / CONFIG):
        model = outline_model(config)
        kept = set(model.state_dict())
        if any(name not in kept for name, _ in model.named_buffers()):  # they are computed
            with torch.random.fork_rng(devices=[]), _NoDraws():
                model = _assemble(config)
    read_weights(model, folder)
    model.origin = str(folder)
    return model.eval()


def outline_model(config: ModelConfig) -> Segmenter:
    """Build a network on the meta device: names and shapes, which take no memory.

    UserError for what `build_model` could not build, or what the memory could not hold.
    """
    BACKBONES.choose(config.backbone)
    CONTEXTS.choose(config.context)
    HEADS.choose(config.head)
    with torch.device("meta"), _NoDraws():
        outline = _assemble(config)
    needed = sum(
        tensor.numel() * tensor.element_size()
        for tensor in [*outline.parameters(), *outline.buffers()]
    )
    free = available_memory(torch.device("cpu"))
    if free is not None and needed > free:
        problem = f"the network would take {in_words(needed)}, but {in_words(free)} are free"
        remedy = "give fewer layers, hidden, pair_channels, key_channels or branch_channels"
        raise UserError("context_options", problem, remedy)
    return outline


class _NoDraws(TorchFunctionMode):
    """Leaves random numbers out: for tensors without memory, torch would import its compiler."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        if function in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0]
        return function(*args, **kwargs)


def _assemble(config: ModelConfig) -> Segmenter:
    with located("backbone_options", "."):
        own = taken_options(config.backbone, config.backbone_options, BACKBONES)
        backbone: Backbone = BACKBONES[config.backbone](config.in_channels, **own)
    channels, classes = backbone.out_channels, len(config.classes)
    with located("context_options", "."):
        options = config.context_options
        context = build_context(config.context, channels, classes=classes, options=options)
    return Segmenter(
        backbone=backbone,
        context=context,
        head=build_head(HEADS[config.head], backbone, classes),
        config=config,
    )
