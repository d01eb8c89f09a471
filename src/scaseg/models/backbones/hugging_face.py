"""Any backbone of Hugging Face's transformers: hf:microsoft/resnet-50, hf:facebook/dinov2-small.

What transformers calls AutoBackbone, and SegFormer's encoder. Its config is saved with the model,
so that the network is built again without the hub. Code of a repository is never run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scaseg.errors import UserError, located, one_line
from scaseg.io.hub import download
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.models.backbones.base import State
from scaseg.models.backbones.foreign import ForeignBackbone, choose_levels, missing_library

PREPROCESSOR = "preprocessor_config.json"
ENCODERS = ("segformer",)  # no AutoBackbone, but their hidden states are maps
# of a classifier, of the file, or what would load code or weights from elsewhere
DROPPED = (
    *("id2label", "label2id", "architectures", "auto_map", "transformers_version", "dtype"),
    *("torch_dtype", "quantization_config", "attn_implementation", "backbone", "backbone_config"),
    *("backbone_kwargs", "use_timm_backbone", "use_pretrained_backbone"),
)
MOST_LAYERS = 1000  # of a config: more would take minutes to build
MOST_BYTES = 1 << 22  # of a config


class HuggingFaceBackbone(ForeignBackbone):
    """A backbone of transformers, built from its config.

    config: as in a repository's config.json. stride: the largest wanted; coarser stages are left
    out. The others are found out from the network: see `complete`.
    """

    def __init__(
        self,
        in_channels: int = 3,
        *,
        config: Mapping[str, Any] | None = None,
        stride: int | None = None,
        levels: Sequence[Sequence[int]] = (),
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        if config is None or not levels:
            raise UserError("config", "nothing", "give a repository: hf:microsoft/resnet-50")
        super().__init__(_network(config, in_channels), levels, mean, std)
        # an encoder gives all of its stages
        self._taken = config.get("taken") if config.get("model_type") in ENCODERS else None

    def compute(self, images: Tensor) -> Sequence[Tensor]:
        if self._taken is None:
            return self.network(images).feature_maps
        hidden = self.network(images, output_hidden_states=True).hidden_states
        return [hidden[index] for index in self._taken]

    @classmethod
    def complete(cls, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Find out what the network is: config, normalization and levels, as options to be saved.

        name: a repository of the hub, or a folder with its config.json. With options["config"] no
        file is read, and the name is only a name.
        """
        if "levels" in options:
            return dict(options)
        _library()
        found = dict(options)
        if "config" not in found:
            folder = _folder(name, CONFIG)
            found["config"] = _read(folder / CONFIG)
            if (folder / PREPROCESSOR).is_file():
                found |= _normalization(folder / PREPROCESSOR)
        with located("backbone_options", "."):
            # whole: what is left out of a repository's are defaults of one version
            config = _cleaned(_config(found["config"]).to_dict())
            if "use_mask_token" in config:
                config["use_mask_token"] = False  # a weight that nothing would ever train
            found["config"], found["levels"] = _measure(config, found.get("stride"))
        return found

    @classmethod
    def fetch(cls, name: str, options: Mapping[str, Any]) -> State:
        """Return the weights of the repository, in the names that they have here."""
        folder = _folder(name, CONFIG, WEIGHTS)
        settings = _config(options["config"])
        kind = _kind(settings)
        from transformers.utils import logging

        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()  # that a backbone has no classifier is no news
        logging.disable_progress_bar()
        try:
            network, report = kind.from_pretrained(
                str(folder),
                config=settings,
                use_safetensors=True,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except Exception as fault:  # whatever transformers comes up with
            raise UserError.cannot_be("loaded", name, fault, "give another repository") from fault
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
        state = network.state_dict()
        # norms behind stages, which a classifier has not, start as they are; not those within
        loaded = state.keys() - report["missing_keys"]
        for key in sorted(report["missing_keys"]):
            within = f"{key.rsplit('.', 2)[0]}."
            is_within = "norm" not in key or any(one.startswith(within) for one in loaded)
            if is_within and not key.endswith("num_batches_tracked"):
                raise UserError(name, f"its {WEIGHTS} has no {key}", "give another repository")
        return {f"network.{key}": tensor for key, tensor in state.items()}


def _network(config: Mapping[str, Any], in_channels: int) -> nn.Module:
    settings = _config(config)
    if hasattr(settings, "num_channels"):
        settings.num_channels = in_channels
    elif in_channels != 3:
        problem = f"{in_channels}, but {config['model_type']} takes 3"
        raise UserError("in_channels", problem, "give another backbone")
    kind = _kind(settings)
    try:
        network: nn.Module = kind._from_config(settings, attn_implementation=_attention(config))
        return network
    except Exception as fault:  # a config of strangers: sizes that do not divide, and so on
        raise _unfit(fault) from fault


def _attention(config: Mapping[str, Any]) -> str:
    """The fused attention where a network has it; never one that a file names."""
    return "sdpa" if config["model_type"].startswith("dinov2") else "eager"


def _library() -> Any:
    """The tables of transformers; UserError says why it cannot be imported."""
    try:
        import transformers
        from transformers.models.auto import modeling_auto

        _ = transformers.PreTrainedModel  # imports what models need, torchvision where it is
        return modeling_auto
    except (ImportError, RuntimeError) as fault:
        raise missing_library("transformers", "pip install 'scaseg[hf]'", fault) from fault


def _kind(settings: Any) -> Any:
    """The class of a network: not AutoBackbone, which may ask the hub, or run what it finds."""
    tables = _library()
    if settings.model_type in ENCODERS:
        return tables.MODEL_MAPPING[type(settings)]
    return tables.MODEL_FOR_BACKBONE_MAPPING[type(settings)]


def _config(config: Mapping[str, Any]) -> Any:
    """A config of transformers; UserError for one that is no backbone's, or too deep."""
    kind = config.get("model_type")
    known = {*_library().MODEL_FOR_BACKBONE_MAPPING_NAMES, *ENCODERS} - {"timm_backbone"}
    if not isinstance(kind, str) or kind not in known:
        problem, few = f"model_type {kind!r} is no backbone", "resnet, convnext, swin, dinov2"
        raise UserError("config", problem, f"give {few}, segformer or another of transformers")
    layers = [config.get(key, 0) for key in ("depths", "num_hidden_layers", "num_layers")]
    try:
        total = sum(sum(one) if isinstance(one, list | tuple) else one or 0 for one in layers)
        if total > MOST_LAYERS:
            raise UserError("config", f"{total} layers", f"give at most {MOST_LAYERS}")
        from transformers import AutoConfig

        return AutoConfig.for_model(**_cleaned(config))
    except UserError:
        raise
    except Exception as fault:
        raise _unfit(fault) from fault


def _cleaned(config: Mapping[str, Any]) -> dict[str, Any]:
    dropped = (*DROPPED, "taken")
    return {k: v for k, v in config.items() if k not in dropped and not k.startswith("_")}


def _unfit(fault: Exception) -> UserError:
    detail = one_line(f"{type(fault).__name__}: {fault}")
    return UserError("config", "no network can be built from it", "give another", detail)


def _measure(config: dict[str, Any], most: int | None) -> tuple[dict[str, Any], list[list[int]]]:
    """Return the config with the stages to take, and (channels, stride) of their maps.

    Measured on a network without memory, which computes shapes alone.
    """
    is_encoder = config.get("model_type") in ENCODERS
    if not is_encoder:
        config = {key: value for key, value in config.items() if key != "out_indices"}
        names = _config({**config, "out_features": None}).stage_names
        config["out_features"] = [name for name in names if name != "stem"]
    patch = config.get("patch_size", 1)
    patch = patch if isinstance(patch, int) else max(patch)
    step = math.lcm(32, patch)
    size = (step * -(-224 // step), step * -(-224 // step) + step)  # no square: some refuse others
    try:
        with torch.device("meta"):
            network = _network(config, 3).eval()
            images = torch.empty(1, 3, *size)
            if is_encoder:
                maps = network(images, output_hidden_states=True).hidden_states
            else:
                maps = network(images).feature_maps
        shapes = [(one.shape[1], size[0] / one.shape[2]) for one in maps]
        if any(
            one.dim() != 4 or one.shape[3] * stride != size[1]
            for one, (_, stride) in zip(maps, shapes, strict=True)
        ):
            raise ValueError("its maps do not cover images of every size")
    except UserError:
        raise
    except Exception as fault:
        raise _unfit(fault) from fault
    taken = choose_levels(shapes, most)
    if is_encoder:
        config["taken"] = taken
    else:
        config["out_features"] = [config["out_features"][index] for index in taken]
    return config, [[shapes[index][0], int(shapes[index][1])] for index in taken]


def _folder(name: str, *files: str) -> Path:
    """The folder with files of a repository, on this machine or fetched."""
    if Path(name).is_dir():
        for file in files:
            if not (Path(name) / file).is_file():
                raise UserError(name, f"has no {file}", "give a repository of the hub or its copy")
        return Path(name)
    return download(name, *files, optional=(PREPROCESSOR,))


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        plain = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(plain, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(path, "not JSON", "fetch it again", str(error)) from error
    return plain


def _normalization(path: Path) -> dict[str, Any]:
    """Mean and std of pixels from 0 to 1, by the repository's preprocessing."""
    plain, keys = _read(path), {"mean": "image_mean", "std": "image_std"}
    try:
        scale = 255 * plain.get("rescale_factor", 1 / 255) if plain.get("do_rescale", True) else 255
        if not plain.get("do_normalize", True):
            return {"mean": [0.0] * 3, "std": [1 / scale] * 3}
        given = {name: plain[key] for name, key in keys.items() if key in plain}
        return {name: [value / scale for value in values] for name, values in given.items()}
    except (TypeError, ZeroDivisionError) as error:
        remedy = "give mean and std as backbone_options"
        raise UserError(path, "no mean and std of pixels", remedy, str(error)) from error
