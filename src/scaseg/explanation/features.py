"""What a network makes of one photograph, up to its context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg.explanation.geometry import NeuronGrid
from scaseg.inference.image_input import Photograph, as_pixels, as_tensor
from scaseg.inference.predict import evaluating
from scaseg.inference.preprocessing import as_seen
from scaseg.models.segmenter import Segmenter
from scaseg.nn.context import Context
from scaseg.nn.contexts.baselines import NoContext


@dataclass(frozen=True)
class Look:
    """A photograph (H, W, C), its feature map (1, C, h, w) before the context, and its neurons."""

    image: NDArray[np.uint8]
    features: Tensor
    grid: NeuronGrid


@torch.no_grad()
def look(model: Segmenter, image: Photograph) -> Look:
    """Run the backbone as `inference.score` would; the model's mode is left as it was."""
    pixels = as_pixels(model, image)
    view = as_seen(model, as_tensor(pixels, next(model.parameters()).device))
    with evaluating(model):
        features, _ = model.backbone(view)
    height, width = view.shape[-2:]
    rows, columns = features.shape[-2:]
    grid = NeuronGrid.of(model.backbone, pixels.shape[:2], (height, width), (rows, columns))
    return Look(pixels, features, grid)


def context_of(model: Segmenter) -> Context:
    """How the neurons of a model weigh each other; ValueError where they do not."""
    context = model.context
    if not isinstance(context, Context) or isinstance(context, NoContext):
        raise ValueError(
            f"model: its context is {model.config.context!r}, in which no neuron depends on "
            "another; give one with sca, dot or average"
        )
    return context


@torch.no_grad()
def decide(model: Segmenter, features: Tensor) -> Tensor:
    """Finish what `look` began: features -> the class of each neuron, (h, w), on the CPU."""
    with evaluating(model):
        scores = model.head(torch.relu(model.context(features)))
    return scores[0].argmax(0).cpu()


@torch.no_grad()
def shares(context: Context, features: Tensor, targets: Tensor) -> Tensor:
    """Rows of coefficients of the neurons `targets` (P,), each normalised to sum 1: (P, n)."""
    return context.shares(features, targets)[0]
