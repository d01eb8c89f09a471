"""Features of a photograph before the context, and where their neurons lie on the photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scaseg.data.decode.bands import picture
from scaseg.errors import UserError
from scaseg.inference.preprocessing import ImageLike, Preprocessed, as_array, as_tensor
from scaseg.models.backbones.base import Map
from scaseg.models.segmenter import Features, Segmenter, evaluating, require_finite
from scaseg.nn.context import Context
from scaseg.nn.contexts.baselines import NoContext

Array = NDArray[np.float32]
Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class NeuronGrid:
    """Neurons of a feature map on the photograph that it was computed from.

    Three sizes: of the photograph, of the network's input (`fit` may have resized it, edges to
    edges), and of the map. Neuron r lies in the middle of its receptive field, at pixel
    `offset + stride * r` of the input. (The upsampled scores, edges to edges, lie up to half a
    neuron beside that; a dependency is on receptive fields.)
    """

    image_size: Size
    input_size: Size
    map_size: Size
    stride: float
    offset: float

    def neuron_at(self, x: float, y: float) -> tuple[int, int]:
        """Return row and column of the neuron nearest to a pixel (x, y) of the photograph."""
        height, width = self.image_size
        return int(self._nearest(0, y, height)), int(self._nearest(1, x, width))

    def center(self, row: int, column: int) -> tuple[float, float]:
        """Return the pixel (x, y) of the photograph in the middle of a neuron's receptive field."""
        pixel = self.offset + self.stride * np.array([row, column])
        y, x = (pixel + 0.5) * np.divide(self.image_size, self.input_size) - 0.5
        return float(x), float(y)

    def cell(self, row: int, column: int, size: Size | None = None) -> tuple[slice, slice]:
        """Return the rows and columns of pixels that are nearest to one neuron."""
        found = []
        for axis, index in enumerate((row, column)):
            length = (size or self.image_size)[axis]
            nearest = self._nearest(axis, np.arange(length), length)
            found.append(slice(*np.searchsorted(nearest, (index, index + 1)).tolist()))
        return found[0], found[1]

    def upsample(self, values: NDArray[np.generic], size: Size | None = None) -> Array:
        """Resize a map (h, w) to the photograph (H, W), or to another size for all of it.

        Bilinear between the neurons; beyond the outermost, their values.
        """
        resized = np.asarray(values, np.float32)
        for axis, length in enumerate(size or self.image_size):
            positions = self._positions(axis, np.arange(length), length)
            low = np.floor(positions).astype(np.intp)
            high = np.minimum(low + 1, len(resized) - 1)
            share = (positions - low).astype(np.float32)[:, None]
            resized = (resized[low] * (1 - share) + resized[high] * share).T  # the other axis next
        return resized

    def _nearest(self, axis: int, pixels: ArrayLike, length: int) -> NDArray[np.float64]:
        return np.floor(self._positions(axis, pixels, length) + 0.5)

    def _positions(self, axis: int, pixels: ArrayLike, length: int) -> NDArray[np.float64]:
        """Map pixels of a picture of the photograph, `length` long, to positions among neurons."""
        scale = self.input_size[axis] / length
        of_input = (np.asarray(pixels, np.float64) + 0.5) * scale - 0.5
        return ((of_input - self.offset) / self.stride).clip(0, self.map_size[axis] - 1)


@dataclass(frozen=True)
class ContextFeatures:
    """A photograph (H, W, 3), its features (1, C, h, w) before the context, and their grid."""

    model: Segmenter
    context: Context
    image: NDArray[np.uint8]
    features: Tensor
    grid: NeuronGrid
    finer: Sequence[Map] = ()  # other maps of the backbone, for a head that reads them

    def scores(self, x: Tensor) -> Tensor:
        """Score the classes at each neuron: features with their context (B, M, h, w) -> the same.

        A head that scores finer neurons is averaged over those of each one.
        """
        finer = [(one.expand(len(x), -1, -1, -1), None) for one, _ in self.finer]
        scores, _ = self.model.score(Features(torch.relu(x), None, finer))
        return F.adaptive_avg_pool2d(scores, (x.shape[2], x.shape[3])) if finer else scores

    @torch.no_grad()
    def classes(self) -> Tensor:
        """Predict the class of each neuron: (h, w), on the CPU."""
        with evaluating(self.model):
            scores = self.scores(self.context(self.features))
        return require_finite(self.model, scores)[0].argmax(0).cpu()

    @torch.no_grad()
    def coefficients(self, targets: Tensor) -> Tensor:
        """Return the coefficients of neurons `targets` (P,), each row normalised to sum 1: (P, n).

        A row's own entry is 0, but for "dot", which keeps it.
        """
        with evaluating(self.model):
            shares = self.context.shares(self.features, targets.to(self.features.device))[0]
        return require_finite(self.model, shares, "coefficients")


@torch.no_grad()
def extract_features(model: Segmenter, image: ImageLike) -> ContextFeatures:
    """Run the backbone as `scaseg.predict` does; the model's mode is left as it was."""
    context = context_of(model)
    pixels = as_array(model, image)
    view = Preprocessed(model, as_tensor(pixels, model.device)).whole()
    with evaluating(model):
        *finer, (features, _) = model.pyramid(view)
    require_finite(model, features, "features")
    grid = NeuronGrid(
        image_size=pixels.shape[:2],
        input_size=(view.shape[2], view.shape[3]),
        map_size=(features.shape[2], features.shape[3]),
        stride=model.backbone.stride,
        offset=model.backbone.offset,
    )
    return ContextFeatures(model, context, picture(pixels), features, grid, finer)


def context_of(model: Segmenter) -> Context:
    """Return the context of a model; UserError where its neurons have none."""
    context = model.context
    if not isinstance(context, Context) or isinstance(context, NoContext):
        raise UserError(
            "model",
            f"its context is {model.config.context!r}, in which no neuron depends on another",
            "give one with sca, dot or average",
        )
    return context
