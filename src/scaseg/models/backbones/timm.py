"""Any model of timm that has maps: timm:resnet50, timm:convnext_tiny.

timm imports torchvision, which must belong to the torch that is installed; it is no extra of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from scaseg.errors import UserError, one_line
from scaseg.io.hub import download
from scaseg.io.model_folder import WEIGHTS
from scaseg.models.backbones.base import State
from scaseg.models.backbones.foreign import ForeignBackbone, choose_levels, missing_library


class TimmBackbone(ForeignBackbone):
    """A model of timm, built from its name.

    output_stride: 8, 16 or 32; later strides become dilations, in models that can. The others are
    found out from the model: see `complete`.
    """

    def __init__(
        self,
        in_channels: int = 3,
        *,
        architecture: str = "",
        output_stride: int | None = None,
        levels: Sequence[Sequence[int]] = (),
        taken: Sequence[int] = (),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        if not architecture or not levels:
            raise UserError("architecture", "nothing", "give a model of timm: timm:resnet50")
        network = _create(architecture, output_stride, in_chans=in_channels, out_indices=taken)
        super().__init__(network, levels, mean, std)

    def compute(self, images: Tensor) -> Sequence[Tensor]:
        maps = self.network(images)
        return [  # some have the channels last
            one if one.shape[1] == level.channels else one.permute(0, 3, 1, 2).contiguous()
            for one, level in zip(maps, self.levels, strict=True)
        ]

    @classmethod
    def complete(cls, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Find out levels and normalization of a model, as options to be saved."""
        if "levels" in options:
            return dict(options)
        stride = options.get("output_stride")
        with torch.device("meta"):
            network = _create(name, stride)
        info = network.feature_info
        shapes = list(zip(info.channels(), info.reduction(), strict=True))
        step = max(stride for _, stride in shapes)
        try:
            network.eval()(torch.empty(1, 3, 7 * step, 8 * step, device="meta"))
        except Exception as fault:
            detail = one_line(f"{type(fault).__name__}: {fault}")
            problem = f"timm:{name} takes no images of any size"
            raise UserError("backbone", problem, "give another", detail) from fault
        indices = choose_levels(shapes)
        numbers = list(getattr(info, "out_indices", range(len(shapes))))
        settings = network.default_cfg if hasattr(network, "default_cfg") else {}
        facts = {key: list(settings[key]) for key in ("mean", "std") if key in settings}
        return {
            **options,
            "architecture": name,
            "taken": [numbers[index] for index in indices],
            "levels": [list(shapes[index]) for index in indices],
            **facts,
        }

    @classmethod
    def fetch(cls, name: str, options: Mapping[str, Any]) -> State:
        """Return the weights of timm's own repository on the hub, in the names that they have."""
        import timm

        settings = timm.get_pretrained_cfg(name)
        if settings is None or not settings.hf_hub_id:
            raise UserError("backbone_weights", f"timm:{name} has none", "give null")
        path = download(settings.hf_hub_id, WEIGHTS) / WEIGHTS
        given = {"pretrained": True, "pretrained_cfg_overlay": {"file": str(path)}}
        taken = {"out_indices": options["taken"]}
        network = _create(name, options.get("output_stride"), **given, **taken)
        return {f"network.{key}": tensor for key, tensor in network.state_dict().items()}


def _create(name: str, output_stride: int | None, **more: Any) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as fault:
        raise missing_library("timm", "pip install timm", fault) from fault
    # not hf-hub: or local-dir: names, which would read files
    if not timm.is_model(name) or ":" in name or "/" in name:
        near = timm.list_models(f"*{name[:20]}*")[:4] if name.isidentifier() else []
        raise UserError(
            "backbone",
            f"timm has no {name[:60]!r}",
            f"give {', '.join(near) or 'one of timm.list_models()'}",
        )
    options = {} if output_stride is None else {"output_stride": output_stride}
    try:
        # transformers take images of one size unless they are told; others know neither word
        for free in ({"strict_img_size": False}, {"dynamic_img_size": True}):
            with suppress(TypeError):
                return timm.create_model(name, features_only=True, **options, **free, **more)
        return timm.create_model(name, features_only=True, **options, **more)
    except Exception as fault:  # a model without maps, a stride that it cannot have
        detail = one_line(f"{type(fault).__name__}: {fault}")
        problem = f"timm cannot build {name} as a backbone"
        raise UserError("backbone", problem, "give another, or no output_stride", detail) from fault
