"""The whole network: backbone, context, head, and back to the size of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaseg.config.model import ModelConfig
from scaseg.models.backbones.base import Backbone
from scaseg.models.padding import keep_real, real_pixels

if TYPE_CHECKING:
    from scaseg.inference.preprocessing import ImageLike
    from scaseg.inference.segmentation import Segmentation


class Segmenter(nn.Module):
    """Normalised images (B, C, H, W) -> scores of the classes (B, classes, H, W).

    `config` describes the model for `save_pretrained`; the parts are what counts.
    """

    def __init__(
        self, *, backbone: Backbone, context: nn.Module, head: nn.Module, config: ModelConfig
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.context = context
        self.head = head
        self.config = config

    def forward(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Score every pixel. `sizes` (B, 2): height and width of each image in a padded batch.

        Padding must lie to the right and below. With sizes, each image gets what it would get
        alone, and the scores of padding are 0: padding is nobody's context, and at every layer it
        is what a convolution puts beyond the edge of a single image.
        """
        scores, real = self.coarse(images, sizes)
        height, width = images.shape[-2:]
        if sizes is None:
            return _resize(scores, height, width)
        return self._resize_each(scores, real, sizes, height, width)

    def coarse(self, images: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Score every neuron, (B, classes, h, w), and say which are real, (B, h, w) or None: all.

        What `forward` enlarges.
        """
        features, real = self.features(images, sizes)
        return self.head(features), real

    def features(
        self,
        images: Tensor,
        sizes: Tensor | None = None,
        *,
        context: Callable[[Tensor], Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What the head sees of images: (B, channels, h, w), and which neurons are real.

        `context` takes the place of the model's own.
        """
        self._check(images, sizes)
        real = None
        if sizes is not None:
            real = real_pixels(sizes, *images.shape[-2:])
            images = keep_real(images, real)
        features, real = self.backbone(images, real)
        features = self.context(features, mask=real) if context is None else context(features)
        return keep_real(torch.relu(features), real), real

    @overload
    def predict(self, images: ImageLike, **options: Any) -> Segmentation: ...
    @overload
    def predict(self, images: Iterable[ImageLike], **options: Any) -> list[Segmentation]: ...
    def predict(
        self, images: ImageLike | Iterable[ImageLike], **options: Any
    ) -> Segmentation | list[Segmentation]:
        """Segment a photograph, or a list of them: see `scaseg.inference.predict`.

        A path, a PIL image, an array (H, W, 3) or a tensor (3, H, W) of uint8; a list gives a list.
        """
        from scaseg.inference.predict import predict

        return predict(self, images, **options)

    @staticmethod
    def _resize_each(
        scores: Tensor, real: Tensor | None, sizes: Tensor, height: int, width: int
    ) -> Tensor:
        """Enlarge each image's own part of the map to its own size."""
        assert real is not None
        cells = torch.stack([real.any(2).sum(1), real.any(1).sum(1)], 1)  # (B, 2) of the map
        # one look at all numbers: each would make the GPU wait
        numbers = torch.cat([cells, sizes.to(cells)], 1).tolist()
        full = scores.new_zeros(*scores.shape[:2], height, width)
        for index, (rows, columns, own_height, own_width) in enumerate(numbers):
            part = scores[index : index + 1, :, :rows, :columns]
            full[index, :, :own_height, :own_width] = _resize(part, own_height, own_width)[0]
        return full

    def _check(self, images: Tensor, sizes: Tensor | None) -> None:
        channels = self.config.in_channels
        least = self.backbone.stride
        if images.dim() != 4 or images.shape[1] != channels or min(images.shape[-2:]) < least:
            raise ValueError(
                f"images have shape {tuple(images.shape)}; give (B, {channels}, H, W) of at least "
                f"{least} x {least} pixels"
            )
        if sizes is None:
            return
        if not isinstance(sizes, Tensor):
            raise ValueError(f"sizes is a {type(sizes).__name__}; give a tensor (B, 2)")
        if sizes.shape != (len(images), 2) or sizes.dtype.is_floating_point:
            raise ValueError(
                f"sizes has shape {tuple(sizes.shape)} and dtype {sizes.dtype}; give whole numbers "
                f"({len(images)}, 2): height and width of each image"
            )
        if not torch.compiler.is_compiling() and sizes.device.type == "cpu":
            small, large = sizes.min(0).values, sizes.max(0).values
            if int(small.min()) < least or (large > torch.tensor(images.shape[-2:])).any():
                raise ValueError(
                    f"sizes run from {tuple(small.tolist())} to {tuple(large.tolist())} but the "
                    f"batch is {tuple(images.shape[-2:])}; each image must lie within it and have "
                    f"at least {least} x {least} pixels"
                )


def _resize(scores: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(scores, size=(height, width), mode="bilinear", align_corners=False)
