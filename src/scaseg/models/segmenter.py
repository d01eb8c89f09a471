"""The whole network: backbone, context, head, and back to the size of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from scaseg.config.model import ModelConfig
from scaseg.data.sample import check_unit_range, normalize
from scaseg.errors import UserError
from scaseg.io.atomic import write_json, write_text
from scaseg.io.hub import OFFLINE, probe, reaching
from scaseg.io.model_folder import CONFIG, WEIGHTS
from scaseg.io.tensors import write_tensors
from scaseg.models.backbones.base import Backbone, Map
from scaseg.models.card import model_card, without_paths
from scaseg.models.heads import PyramidHead
from scaseg.models.padding import enlarge, keep_real, real_pixels

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import NDArray
    from PIL import Image

    from scaseg.inference.predict import Options
    from scaseg.inference.preprocessing import ImageLike
    from scaseg.inference.segmentation import Segmentation
    from scaseg.inference.tta import TestTimeAugmentation
    from scaseg.system import Precision


class Features(NamedTuple):
    """What a head reads.

    x (B, M, h, w): features and their context; real (B, h, w): which neurons are no padding, None:
    all; finer: the backbone's finer maps, for a head that reads them.
    """

    x: Tensor
    real: Tensor | None = None
    finer: Sequence[Map] = ()


class Segmenter(nn.Module):
    """Normalized images (B, C, H, W) -> scores of the classes (B, classes, H, W).

    `config` describes the model for `save_pretrained`; the parts are what counts. Built by
    `scaseg.create_model`, loaded by `scaseg.load_model`.
    """

    def __init__(
        self, *, backbone: Backbone, context: nn.Module, head: nn.Module, config: ModelConfig
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.context = context
        self.head = head
        self.config = config
        self.origin = "model"  # how errors name it: the folder that it was loaded from

    def forward(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Score every pixel. `sizes` (B, 2): height and width of each image in a padded batch.

        Padding must lie to the right and below. With sizes, each image gets what it would get
        alone, and the scores of padding are 0: padding is nobody's context, and at every layer it
        is what a convolution puts beyond the edge of a single image.
        """
        scores, real = self.coarse(images, sizes)
        return enlarge(scores, images.shape[-2:], sizes, real)

    def coarse(self, images: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Score every neuron, (B, classes, h, w), and say which are real, (B, h, w) or None: all.

        What `forward` enlarges. The neurons are those of the head: of the features, or finer.
        """
        return self.score(self.features(images, sizes))

    def score(self, features: Features) -> Map:
        """Score the neurons of the head, (B, classes, h, w), and say which are real."""
        if isinstance(self.head, PyramidHead):
            return self.head(features.x, features.real, features.finer)
        return self.head(features.x), features.real

    def features(
        self,
        images: Tensor,
        sizes: Tensor | None = None,
        *,
        context: Callable[[Tensor], Tensor] | None = None,
    ) -> Features:
        """Return what the head reads. `context` takes the place of the model's own."""
        self._check(images, sizes)
        real = None
        if sizes is not None:
            real = real_pixels(sizes.to(images.device), *images.shape[-2:])
            images = keep_real(images, real)
        *finer, (x, real) = self.pyramid(images, real)
        x = self.context(x, mask=real) if context is None else context(x)
        return Features(keep_real(torch.relu(x), real), real, finer)

    def pyramid(self, images: Tensor, real: Tensor | None = None) -> list[Map]:
        """Return the backbone's maps: its features last, before them those that the head reads."""
        if isinstance(self.head, PyramidHead):
            return self.backbone.pyramid(images, real)
        return [self.backbone(images, real)]

    @property
    def score_stride(self) -> int:
        """Pixels between the neurons that the head scores."""
        is_finer = isinstance(self.head, PyramidHead)
        return self.backbone.finer[0].stride if is_finer else self.backbone.stride

    def score_size(self, height: int, width: int) -> tuple[int, int]:
        """Return (h, w) of the neurons that the head scores, of an image."""
        return self.backbone.map_size(height, width, self.score_stride)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes, in the order of the scores."""
        return self.config.classes

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    def normalize(self, images: Tensor) -> Tensor:
        """Prepare pixels for `forward`: what the model learned from, on its device, float32.

        images: (B, C, H, W) or (C, H, W); uint8, or floats from 0 to 1 (bands of another type: as
        they are stored, in floats). `predict` does it itself.

        >>> import scaseg
        >>> model = scaseg.create_model("mobilenet_v2", head="light", classes=2).eval()
        >>> batch = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)
        >>> model(model.normalize(batch)).shape
        torch.Size([2, 2, 64, 96])
        """
        channels = self.config.in_channels
        if images.dim() not in (3, 4) or images.shape[-3] != channels:
            problem = f"shape {tuple(images.shape)}"
            raise UserError("images", problem, f"give (B, {channels}, H, W)")
        if images.dtype != torch.uint8 or self.config.dtype != "uint8":
            if not images.is_floating_point():
                fits = "uint8, or floats from 0 to 1" if self.config.dtype == "uint8" else "floats"
                raise UserError("images", f"{images.dtype}", f"give {fits}")
            if self.config.dtype == "uint8":
                check_unit_range(images)
        return normalize(images.to(self.device), *self.statistics)

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, on its device: what `normalize` takes."""
        mean, std = (_on_device(one, self.device) for one in (self.config.mean, self.config.std))
        return mean, std

    @overload
    def predict(  # type: ignore[overload-overlap]  # a path is a sequence too
        self, images: str | Path | Image.Image, **options: Unpack[Options]
    ) -> Segmentation: ...
    @overload
    def predict(self, images: NDArray[Any] | Tensor, **options: Unpack[Options]) -> Any: ...
    @overload
    def predict(
        self, images: Iterable[ImageLike], **options: Unpack[Options]
    ) -> list[Segmentation]: ...
    def predict(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        scores: bool = False,
        tta: TestTimeAugmentation | None = None,
        batch_size: int | None = None,
        precision: Precision = "32",
        min_confidence: float | None = None,
    ) -> Any:
        """Segment a photograph, or several: see `scaseg.predict`.

        A path, a PIL image, an array (H, W, 3) or a tensor (3, H, W) gives a Segmentation; a list
        of these, an array (B, H, W, 3) or a tensor (B, 3, H, W) a list of them. Pixels are uint8,
        or floats from 0 to 1: not normalized.
        """
        from scaseg.inference.predict import predict

        options: Options = {"scores": scores, "tta": tta, "batch_size": batch_size}
        options |= {"precision": precision, "min_confidence": min_confidence}
        return predict(self, images, **options)

    def save_pretrained(self, folder: str | Path, *, half: bool = False) -> None:
        """Write config.json and model.safetensors; each appears whole or not at all.

        half: matrices and filters in 16 bits, half the size. Vectors stay as they are: the
        statistics of norms span more than 16 bits do.
        """
        folder = Path(folder)
        state = self.state_dict()
        if half:
            for name, tensor in state.items():
                if tensor.dim() > 1 and tensor.is_floating_point():
                    state[name] = tensor.half()
                    if not torch.isfinite(state[name]).all():
                        problem = f"{name} has numbers beyond 16 bits"
                        raise UserError("half", problem, "save it whole")
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / WEIGHTS, state, {"format": "pt"})
        write_json(folder / CONFIG, self.config.to_dict())  # last: a folder with one is complete

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, classes: Sequence[str] | None = None, **hub: Any
    ) -> Segmenter:
        """Load a saved model: the same as `scaseg.load_model`."""
        from scaseg.models.build import load_model

        return load_model(name, classes=classes, **hub)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        half: bool = False,
        license: str | None = None,  # noqa: A002
        **options: Any,
    ) -> str:
        """Upload the model to the Hugging Face hub, with a card; return the address of the commit.

        The card is written from the record of its training; license: such as apache-2.0. Paths of
        this machine are left out of both. options: of huggingface_hub.ModelHubMixin.push_to_hub:
        private, token, commit_message, ... UserError where the hub cannot be reached or refuses.
        """
        # Here, and not a base class: it takes a third of a second to import, its save_pretrained
        # removes the old config.json before the new one is there, and its from_pretrained reads
        # whatever stands in one.
        from huggingface_hub import ModelHubMixin, constants

        if constants.HF_HUB_OFFLINE:
            raise UserError(repo_id, f"cannot be uploaded, {OFFLINE} is set", f"unset {OFFLINE}")
        model, own = self, self.config

        class Upload(ModelHubMixin, library_name="scaseg", pipeline_tag="image-segmentation"):
            def _save_pretrained(self, save_directory: Path) -> None:
                model.save_pretrained(save_directory, half=half)
                write_text(save_directory / "README.md", model_card(model, repo_id, license))

        self.config = replace(own, training=without_paths(own.training))
        try:
            with reaching(f"uploading to {repo_id}"):
                probe(constants.ENDPOINT)
                return Upload().push_to_hub(repo_id, **options)
        except UserError:
            raise
        except Exception as error:  # whatever its client and the network come up with
            remedy = "check the name, and log in with `hf auth login` or give token="
            raise UserError.cannot_be("uploaded", repo_id, error, remedy) from error
        finally:
            self.config = own

    def _check(self, images: Tensor, sizes: Tensor | None) -> None:
        channels, least = self.config.in_channels, self.backbone.least_side
        fits = f"at least {least} x {least} pixels"
        if images.dim() != 4 or images.shape[1] != channels or min(images.shape[-2:]) < least:
            problem = f"shape {tuple(images.shape)}"
            raise UserError("images", problem, f"give (B, {channels}, H, W) of {fits}")
        if sizes is None:
            return
        if not isinstance(sizes, Tensor):
            raise UserError("sizes", f"a {type(sizes).__name__}", "give a tensor (B, 2)")
        if sizes.shape != (len(images), 2) or sizes.dtype.is_floating_point:
            problem = f"shape {tuple(sizes.shape)}, dtype {sizes.dtype}"
            remedy = f"give whole numbers ({len(images)}, 2): height and width of each image"
            raise UserError("sizes", problem, remedy)
        if not torch.compiler.is_compiling() and sizes.device.type == "cpu":
            small, large = sizes.min(0).values, sizes.max(0).values
            if int(small.min()) < least or (large > torch.tensor(images.shape[-2:])).any():
                problem = (
                    f"from {tuple(small.tolist())} to {tuple(large.tolist())} in a batch of "
                    f"{tuple(images.shape[-2:])}"
                )
                remedy = f"each image must lie within it and have {fits}"
                raise UserError("sizes", problem, remedy)


@lru_cache(maxsize=16)
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Hold a few numbers on a device: to bring them there makes it wait."""
    with torch.inference_mode(False):  # a caller may be in it, and the next one not
        return torch.tensor(values, device=device)


def require_finite(model: Segmenter, values: Tensor, what: str = "scores") -> Tensor:
    """Return values that a model computed; UserError names it where they are not finite.

    NaN has no largest class: every pixel of it would become the first one without a word.
    """
    if not torch.isfinite(values).all():
        low = values.dtype == torch.float16 or torch.is_autocast_enabled(values.device.type)
        raise not_finite(model, what, low_precision=low)
    return values


def not_finite(model: Segmenter, what: str = "scores", *, low_precision: bool) -> UserError:
    """Return the error of a model that computes numbers that are not finite."""
    remedy = "its weights are unfit, train it again"
    if low_precision:
        remedy = "use --precision 32; if that does not help, its weights are unfit"
    return UserError(model.origin, f"its {what} of this image are not finite numbers", remedy)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode for a while; each of its modules gets its own mode back."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
