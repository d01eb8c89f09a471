"""What a backbone says about itself: everything that the rest of the package needs to know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scaseg.config.model import IMAGENET_MEAN, IMAGENET_STD
from scaseg.config.run import SMALLEST_SIDE
from scaseg.errors import UserError
from scaseg.io.hub import download
from scaseg.io.model_folder import WEIGHTS
from scaseg.io.tensors import read_tensors

State = dict[str, Tensor]
# features (B, C, h, w), and which neurons are real and no padding (B, h, w); None: all
Map = tuple[Tensor, Tensor | None]


class Level(NamedTuple):
    """One of the maps that a backbone computes: its channels, and the pixels between neurons."""

    channels: int
    stride: int


class Facts(NamedTuple):
    """What must be known of a backbone before it is built."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    usual_head: str


class Backbone(nn.Module):
    """Base class: images (B, in_channels, H, W) -> features (B, out_channels, h, w).

    A new backbone is one file with a subclass, built from `in_channels` and options of its own
    (`backbone_options`), and its line in `scaseg.registry.BACKBONES`. It computes `pyramid`.
    """

    out_channels: int
    stride: int = SMALLEST_SIDE  # pixels between neurons
    least_side: int = SMALLEST_SIDE  # of an image
    multiple: int = 1  # images are enlarged to a multiple of it, before they are predicted
    finer: tuple[Level, ...] = ()  # maps before the features, finest first, that a head may read
    offset: float = 0.0  # the pixel in the middle of what neuron 0 sees
    mean: tuple[float, ...] = IMAGENET_MEAN  # of the pixels in [0, 1] that its weights expect
    std: tuple[float, ...] = IMAGENET_STD
    usual_head: str = "compact"  # what `head: auto` means
    # faster in this layout, on a GPU; None: in long trainings as CUDA graphs alone
    channels_last: ClassVar[bool | None] = True
    channels_last_on_cpu: ClassVar[bool] = False  # faster in it there
    launch_bound: ClassVar[bool] = False  # a GPU runs its kernels faster than they are launched
    hub: str | None = None  # repository of its ImageNet weights on the Hugging Face hub
    checkpoints_activations = False  # see `run`
    # how names of weights number the layers, or stages and their blocks: "layer3.5.conv1.weight"
    numbering: ClassVar[str] = r"(?:\w+\.)*?[a-z_]*(\d+)\.(?:(?:(?!down)[a-z_]+\.)?(\d+)\.)?"

    def map_size(self, height: int, width: int, stride: int | None = None) -> tuple[int, int]:
        """Return (h, w) of the features of an image: here of convolutions that step and pad.

        stride: of a finer level; None: of the features.
        """
        stride = stride or self.stride
        return -(-height // stride), -(-width // stride)

    @property
    def levels(self) -> tuple[Level, ...]:
        """All maps of `pyramid`: the finer ones, then the features."""
        return (*self.finer, Level(self.out_channels, self.stride))

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        """Return the map of every level: its features, 0 where padding is, and its real neurons.

        `real` (B, H, W) says which pixels are not padding; None: all of them.
        """
        raise NotImplementedError

    def forward(self, images: Tensor, real: Tensor | None = None) -> Map:
        """Return the features alone (B, out_channels, h, w), and which neurons are real."""
        return self.pyramid(images, real)[-1]

    def run(
        self, part: Callable[[Tensor, Tensor | None], Map], x: Tensor, real: Tensor | None
    ) -> Map:
        """Apply a part of the network.

        Where `checkpoints_activations`, only its input is kept for the backward pass, which
        computes it once more.
        """
        if not (self.checkpoints_activations and torch.is_grad_enabled()):
            return part(x, real)
        found: Map = checkpoint(
            part, x, real, use_reentrant=False, preserve_rng_state=False, context_fn=self._contexts
        )
        return found

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), self._frozen_statistics()

    @contextmanager
    def _frozen_statistics(self) -> Iterator[None]:
        """Keep norms, within `with`, from counting a batch a second time."""
        norms = [one for one in self.modules() if isinstance(one, nn.BatchNorm2d) and one.training]
        counts = [norm.num_batches_tracked for norm in norms]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum, norm.num_batches_tracked = 0.0, None
        try:
            yield
        finally:
            for norm, momentum, count in zip(norms, momenta, counts, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, count

    @classmethod
    def complete(cls, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with all that is needed to build it again, wherever that may be.

        name: what follows hf: or timm: in the name of a foreign one.
        """
        return dict(options)

    @classmethod
    def facts(cls, options: Mapping[str, Any]) -> Facts:
        """What its options, completed, say of it."""
        return Facts(cls.mean, cls.std, cls.usual_head)

    @classmethod
    def fetch(cls, name: str, options: Mapping[str, Any]) -> State:
        """Return its pretrained weights from the Hugging Face hub, in our names."""
        if cls.hub is None:
            raise UserError("", f"{cls.__name__} has no pretrained weights", "give null")
        path = download(cls.hub, WEIGHTS) / WEIGHTS
        return cls.rename(read_tensors(path, remedy="fetch it again")[0])

    def layers(self) -> list[list[nn.Parameter]]:
        """Its weights, layer by layer from the image on, for rates that fall towards it."""
        groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        place: tuple[int, ...] = (-1,)  # of weights before the first number: the stem's
        for name, weight in self.named_parameters():
            if found := re.match(self.numbering, name.removeprefix("network.")):
                place = tuple(int(number) for number in found.groups() if number is not None)
            elif groups:  # a last norm belongs to the last layer
                place = max(groups)
            groups.setdefault(place, []).append(weight)
        blocks = sorted(place for place in groups if len(place) == 2)
        for place in [one for one in groups if len(one) == 1 and one[0] >= 0 and blocks]:
            # what belongs to a whole stage goes with its first block, or with the last before it
            own = next((block for block in blocks if block[0] == place[0]), None)
            before = [block for block in blocks if block[0] < place[0]]
            groups[own or (before or blocks)[-1]] += groups.pop(place)
        return [groups[place] for place in sorted(groups)]

    @staticmethod
    def rename(state: State) -> State:
        """Give weights in torchvision's or timm's names ours, `head.` before those of the head."""
        return state

    def initialize(self) -> None:
        """Draw fresh weights: PyTorch's own would fade away in a dozen layers."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # by what a neuron reads: the usual fan_out takes a depthwise layer for a full one,
                # and only batch statistics hide that its output all but vanishes
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
