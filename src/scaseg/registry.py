"""Every part that can be chosen by name, and where it lives. Adding one is a file and a line here.

Recipe choices, help texts and error messages come from these tables. A part is imported when it
is first asked for, so listing names costs nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from scaseg.errors import UserError, one_line


class Registry(Mapping[str, Any]):
    """A read-only mapping from names to objects, each given as "module:attribute"."""

    def __init__(
        self, kind: str, homes: Mapping[str, str], families: Mapping[str, str] | None = None
    ) -> None:
        """families: of names that cannot be listed, by what stands before their colon."""
        self.kind = kind
        self._homes = dict(homes)
        self.families = dict(families or {})

    def __getitem__(self, name: str) -> Any:
        family, colon, rest = name.partition(":")
        home = self.families[family] if colon and rest and family in self.families else None
        module, _, attribute = (home or self._homes[name]).partition(":")
        return getattr(import_module(module), attribute)

    def __contains__(self, name: object) -> bool:
        family, _, rest = str(name).partition(":")
        return name in self._homes or bool(rest and family in self.families)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def choose(self, name: str) -> Any:
        """Return what `name` stands for; UserError lists the choices."""
        if name in self:
            return self[name]
        if ":" in name and not self.families:
            remedy = f"if you trust it, --with-context {name} or scaseg.add_context lets it in"
            raise UserError(self.kind, f"{name!r} is code outside of scaseg", remedy)
        raise UserError.choice(self.kind, name, self.choices())

    def choices(self) -> list[str]:
        """What can be chosen, for people."""
        return [*self, *(f"{family}:NAME" for family in self.families)]

    def add(self, path: str) -> None:
        """Let in what an import path names, under that path, for this process."""
        self._homes[path] = path


def load_path(place: str, path: str) -> Any:
    """Import what "package.module:name" names; UserError names the place that it was given at.

    Modules beside the working folder are found too, after those that are installed. This runs
    code: such a path may only come from an option, a recipe or a caller, never from a model.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UserError(place, repr(path), "give package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module raises
        detail = one_line(f"{type(error).__name__}: {error}")
        raise UserError(place, f"{path} cannot be imported ({detail})", "check the path") from error
    return found


BACKBONES = Registry(
    "backbone",
    {
        "vgg16": "scaseg.models.backbones.vgg16:Vgg16",
        "mobilenet_v2": "scaseg.models.backbones.mobilenet_v2:MobileNetV2",
        "resnet50": "scaseg.models.backbones.resnet50:ResNet50",
        "tiny": "scaseg.models.backbones.tiny:Tiny",
    },
    families={
        "hf": "scaseg.models.backbones.hugging_face:HuggingFaceBackbone",
        "timm": "scaseg.models.backbones.timm:TimmBackbone",
    },
)
CONTEXTS = Registry(
    "context",
    {
        "none": "scaseg.nn.contexts.baselines:NoContext",
        "average": "scaseg.nn.contexts.baselines:AverageContext",
        "sca": "scaseg.nn.selective_context:SelectiveContext",
        "dot": "scaseg.nn.contexts.dot:DotContext",
        "heads": "scaseg.nn.contexts.heads:HeadsContext",
        "balanced": "scaseg.nn.contexts.balanced:BalancedContext",
        "gated": "scaseg.nn.contexts.gated:GatedContext",
        "position": "scaseg.nn.contexts.position:PositionContext",
        "agents": "scaseg.nn.contexts.agents:AgentContext",
        "cells": "scaseg.nn.contexts.cells:CellsContext",
        "object": "scaseg.nn.contexts.object:ObjectContext",
        "parsenet": "scaseg.nn.contexts.parsenet:ParsenetContext",
        "psp": "scaseg.nn.contexts.psp:PspContext",
        "dilated": "scaseg.nn.contexts.dilated:DilatedContext",
        "aspp": "scaseg.nn.contexts.aspp:AsppContext",
        "ccnet": "scaseg.nn.contexts.ccnet:CcnetContext",
        "gcnet": "scaseg.nn.contexts.gcnet:GcnetContext",
        "a2": "scaseg.nn.contexts.a2:DoubleAttentionContext",
        "ema": "scaseg.nn.contexts.ema:EmaContext",
        "psa": "scaseg.nn.contexts.psa:PsaContext",
        "dagrnn": "scaseg.nn.contexts.dagrnn:DagrnnContext",
        "crf": "scaseg.nn.contexts.crf:CrfContext",
    },
)
HEADS = Registry(
    "head",
    {
        "fcn": "scaseg.models.heads:FCN",
        "compact": "scaseg.models.heads:COMPACT",
        "light": "scaseg.models.heads:LIGHT",
        "pointwise": "scaseg.models.heads:POINTWISE",
        "pyramid": "scaseg.models.heads:PYRAMID",
    },
)
DATASETS = Registry(
    "data.name",
    {
        "folder": "scaseg.data.datasets.folder:FolderDataset",
        "sift_flow": "scaseg.data.datasets.sift_flow:SiftFlow",
        "sift_flow_geo": "scaseg.data.datasets.sift_flow:SiftFlowGeo",
        "pascal_context": "scaseg.data.datasets.pascal_context:PascalContext",
        "coco_stuff_10k": "scaseg.data.datasets.coco_stuff:CocoStuff10k",
        "coco_stuff_164k": "scaseg.data.datasets.coco_stuff:CocoStuff164k",
        "voc": "scaseg.data.datasets.voc:VocSegmentation",
        "cityscapes": "scaseg.data.datasets.cityscapes:Cityscapes",
        "ade20k": "scaseg.data.datasets.ade20k:Ade20k",
        "atlantis": "scaseg.data.datasets.atlantis:Atlantis",
        "loveda": "scaseg.data.datasets.loveda:LoveDA",
        "mapillary": "scaseg.data.datasets.mapillary:MapillaryVistas",
        "roboflow": "scaseg.data.datasets.roboflow:Roboflow",
        "colors": "scaseg.data.datasets.colors:ColorDataset",
        "suffix": "scaseg.data.datasets.suffix:SuffixDataset",
        "coco": "scaseg.data.datasets.coco:CocoInstances",
        "coco_panoptic": "scaseg.data.datasets.coco:CocoPanoptic",
        "labelme": "scaseg.data.datasets.labelme:LabelMe",
        "cvat": "scaseg.data.datasets.cvat:Cvat",
        "supervisely": "scaseg.data.datasets.supervisely:Supervisely",
        "yolo": "scaseg.data.datasets.yolo:Yolo",
        "hf": "scaseg.data.datasets.hugging_face:HuggingFace",
        "shards": "scaseg.data.datasets.shards:ShardDataset",
        "context_scenes_global": "scaseg.data.datasets.context_scenes:ContextScenesGlobal",
        "context_scenes_selective": "scaseg.data.datasets.context_scenes:ContextScenesSelective",
    },
)
# drawn by code, so they have no folder and no files
GENERATED_DATASETS = frozenset({"context_scenes_global", "context_scenes_selective"})


def options_of(part: str, parts: Registry = CONTEXTS) -> list[str]:
    """The options of a context or a backbone: everything after in_channels and out_channels."""
    return list(signature(parts[part]).parameters)[2 if parts is CONTEXTS else 1 :]


def require_taken(
    options: Iterable[str], chosen: Sequence[str], prefix: str = "", parts: Registry = CONTEXTS
) -> None:
    """Refuse options that other contexts (backbones) take, and none of those that are chosen."""
    for name in options:
        known = dict.fromkeys([*parts, *(part for part in chosen if part in parts)])
        takers = [part for part in known if name in options_of(part, parts)]
        # an unknown part or option is refused elsewhere, with what is known
        if takers and set(chosen) <= known.keys() - set(takers):
            problem = f"has no effect: {', '.join(chosen)} does not take it"
            raise UserError(f"{prefix}{name}", problem, f"it is for {', '.join(takers)}")


def taken_options(part: str, options: Mapping[str, Any], parts: Registry) -> dict[str, Any]:
    """Return the options that a part takes; those of other parts are left out.

    One recipe serves several: its options concern some of them. UserError for what none knows.
    """
    names = {one: options_of(one, parts) for one in (*parts, part)}
    known = dict.fromkeys(one for own in names.values() for one in own if one != "classes")
    for one in options:
        if one not in known:
            raise UserError(one, "unknown key", f"give some of {', '.join(known)}")
    return {one: value for one, value in options.items() if one in names[part]}
