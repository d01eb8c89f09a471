"""Backbones of other libraries: what they all need around them to be one of ours.

Foreign layers know nothing of padding. A batch of images of different sizes is therefore computed
size by size: padding is never seen, by convolutions, norms or attention, so a padded batch gives
what single images give. (While batch norms learn, they learn from each size apart.)

Images are enlarged to a multiple of the stride, edges to edges: some layers refuse others, some
drop the rest, and the map of any size then covers the image exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.errors import UserError
from scaseg.models.backbones.base import Backbone, Facts, Level, Map
from scaseg.models.padding import real_pixels, real_sizes

FINEST = 4  # pixels between the neurons of the finest map that a head reads
REPAIR = "pip uninstall torchvision, or install the torchvision that belongs to your torch"


class ForeignBackbone(Backbone):
    """A network of another library; a subclass says how its maps are computed and what they are.

    levels: [channels, stride] of the maps that `compute` gives, finest first.
    """

    usual_head = "pyramid"
    _checkpoints = False
    channels_last = False  # not measured
    hub = "its own repository"

    def __init__(
        self,
        network: nn.Module,
        levels: Sequence[Sequence[int]],
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
    ) -> None:
        super().__init__()
        self.network = network
        *finer, last = (Level(*level) for level in levels)
        self.finer = tuple(finer)
        self.out_channels, self.stride = last
        self.multiple = last.stride
        self.mean, self.std = tuple(mean or self.mean), tuple(std or self.std)
        # patches side by side see around their middle; overlapping windows around a pixel
        first = next((m for m in network.modules() if isinstance(m, nn.Conv2d)), None)
        if first is not None and first.kernel_size == first.stride:
            self.offset = (self.stride - 1) / 2

    @property
    def checkpoints_activations(self) -> bool:
        """Whether its layers are computed once more in the backward pass, instead of kept."""
        return self._checkpoints

    @checkpoints_activations.setter
    def checkpoints_activations(self, wanted: bool) -> None:
        self._checkpoints = wanted
        network: Any = self.network
        if not wanted:
            return
        if getattr(network, "supports_gradient_checkpointing", False):  # of transformers
            options = {"use_reentrant": False}
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        elif hasattr(network, "set_grad_checkpointing"):  # of timm
            network.set_grad_checkpointing(True)
        else:
            problem = f"{type(network).__name__} has no layers to compute again"
            raise UserError("machine.activation_checkpointing", problem, "leave it out")

    def compute(self, images: Tensor) -> Sequence[Tensor]:
        """Return the maps of all levels, finest first; images: of a multiple of the stride."""
        raise NotImplementedError

    @classmethod
    def facts(cls, options: Mapping[str, Any]) -> Facts:
        mean, std = (tuple(options.get(name) or getattr(cls, name)) for name in ("mean", "std"))
        has_finer = len(options.get("levels", ())) > 1
        return Facts(mean, std, cls.usual_head if has_finer else "light")

    def map_size(self, height: int, width: int, stride: int | None = None) -> tuple[int, int]:
        """Return (h, w) of the features, or of a finer level, of an image."""
        # not -(-side // stride): ONNX divides negative numbers towards 0
        last = self.stride
        rows, columns = ((side + last - 1) // last * last for side in (height, width))
        return rows // (stride or last), columns // (stride or last)

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        if real is None:
            return [(one, None) for one in self._maps(images)]
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (height, width) in enumerate(real_sizes(real).tolist()):
            members[height, width].append(index)
        found: dict[int, list[Tensor]] = {}
        for (height, width), indices in members.items():
            maps = self._maps(images[indices, :, :height, :width])
            found |= {image: [one[at] for one in maps] for at, image in enumerate(indices)}
        whole: list[Map] = []
        for number, level in enumerate(self.levels):
            rows, columns = self.map_size(images.shape[-2], images.shape[-1], level.stride)
            own = [found[image][number] for image in range(len(images))]
            filled = [
                F.pad(one, (0, columns - one.shape[2], 0, rows - one.shape[1])) for one in own
            ]
            cells = torch.tensor([one.shape[1:] for one in own], device=images.device)
            whole.append((torch.stack(filled), real_pixels(cells, rows, columns)))
        return whole

    def _maps(self, images: Tensor) -> Sequence[Tensor]:
        size = self.map_size(images.shape[-2], images.shape[-1], 1)
        if torch.compiler.is_exporting() or tuple(images.shape[-2:]) != size:
            images = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
        maps = self.compute(images)
        for one, level in zip(maps, self.levels, strict=True):
            wanted = (level.channels, *self.map_size(*size, level.stride))
            if not torch.compiler.is_compiling() and tuple(one.shape[1:]) != wanted:
                problem = f"a map of shape {tuple(one.shape[1:])}, where {wanted} was said"
                raise UserError("backbone_options.levels", problem, "build the model again")
        return maps


def choose_levels(maps: Sequence[tuple[int, float]], most: int | None = None) -> list[int]:
    """Return the indices of the maps to take, given (channels, stride) of each, finest first.

    Of each stride the last, from 1/4 on; most: the largest stride wanted. A network whose maps all
    have one stride gives its last alone.
    """
    for _, stride in maps:
        if stride != int(stride):
            raise UserError("stride", f"{stride}", "give a backbone whose maps divide its images")
    last = {int(stride): index for index, (_, stride) in enumerate(maps)}
    kept = [index for stride, index in sorted(last.items()) if stride <= (most or stride)]
    if not kept:
        raise UserError("stride", f"{most}", f"give one of {', '.join(map(str, sorted(last)))}")
    return [index for index in kept if maps[index][1] >= FINEST] or kept[-1:]


def missing_library(library: str, extra: str, fault: Exception) -> UserError:
    """Say why a library cannot be imported, and what to do."""
    faults = []
    link: BaseException | None = fault
    while link is not None:  # transformers hides the reason behind errors of its own
        faults.append(str(link))
        link = link.__cause__ or link.__context__
    said = " ".join(faults)
    if "torchvision::" in said:
        problem = (
            f"{library} cannot be imported: torchvision is installed, but not for this torch "
            "(its operators are missing)"
        )
        return UserError("backbone", problem, REPAIR)
    if "No module named 'torchvision'" in said:
        remedy = "install the torchvision that belongs to your torch"
        return UserError("backbone", f"{library} needs torchvision", remedy)
    if isinstance(fault, ModuleNotFoundError) and fault.name == library:
        return UserError("backbone", f"{library} is not installed", extra)
    return UserError.cannot_be("imported", library, fault, extra)
