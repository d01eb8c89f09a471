"""What the page gets of a picture: its segmentation, and what every dependency map follows from."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scaseg.config.run import SMALLEST_SIDE
from scaseg.data.decode.bands import picture, read_pixels
from scaseg.data.decode.files import Embedded
from scaseg.errors import UserError
from scaseg.explanation.features import NeuronGrid, extract_features
from scaseg.inference.predict import predict
from scaseg.inference.segmentation import Segmentation
from scaseg.io.paths import shown
from scaseg.models.segmenter import Segmenter
from scaseg.nn.context import Context, MapFactors
from scaseg.nn.contexts.baselines import NoContext
from scaseg.ops.activation import ACTIVATIONS
from scaseg.plots.palette import default_palette

MOST_SIDE = 1600  # pixels; a larger picture is made smaller before it is segmented
MOST_SCORES = 100_000_000  # probabilities that are held at once
MOST_COEFFICIENTS = 2048  # neurons: where a context has no factors, n x n numbers travel
ROWS = 256  # of coefficients at a time


def picture_payloads(
    pictures: Sequence[tuple[str, NDArray[Any]]], models: Mapping[str, Segmenter]
) -> Iterator[tuple[dict[str, Any], dict[str, Segmentation]]]:
    """Yield each named picture (H, W, C) as each model sees it, as JSON types, with the labels.

    Pictures of similar sizes are segmented in one batch where that is faster.
    """
    images = [shrink(image, models) for _, image in pictures]
    found = {name: predict(model, images, scores=True) for name, model in models.items()}
    for index, (title, _) in enumerate(pictures):
        height, width = images[index].shape[:2]
        buffer = io.BytesIO()
        Image.fromarray(picture(images[index])).save(buffer, "JPEG", quality=88)
        source = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        own = {name: segmentations[index] for name, segmentations in found.items()}
        payload = {
            "name": title,
            "image": {"width": width, "height": height, "src": source},
            "models": [
                model_payload(name, model, images[index], own[name])
                for name, model in models.items()
            ],
        }
        yield payload, own


def read_picture(
    path: Path | Embedded, models: Mapping[str, Segmenter], max_pixels: int | None = None
) -> NDArray[Any]:
    """Read a picture (H, W, C) as all the models take it."""
    kinds = {(model.config.bands, model.config.dtype) for model in models.values()}
    if len(kinds) > 1:
        said = " and ".join(sorted(f"{bands or 3} bands of {kind}" for bands, kind in kinds))
        raise UserError("--model", f"models of {said}", "give models of the same images")
    [(bands, dtype)] = kinds
    pixels = read_pixels(path, bands, dtype, max_pixels=max_pixels)
    if min(pixels.shape[:2]) < SMALLEST_SIDE:
        place = path.place if isinstance(path, Embedded) else shown(path)
        problem = f"smaller than {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels"
        raise UserError(place, problem, "give a larger one")
    return pixels


def shrink(image: NDArray[Any], models: Mapping[str, Segmenter]) -> NDArray[Any]:
    """Make a picture (H, W, C) as small as a screen and the memory for its scores want it."""
    height, width = image.shape[:2]
    classes = max(len(model.classes) for model in models.values())
    factor = min(1.0, MOST_SIDE / max(height, width))
    factor = min(factor, (MOST_SCORES / (classes * height * width)) ** 0.5)
    if factor == 1:
        return image
    size = [max(SMALLEST_SIDE, round(side * factor)) for side in (width, height)]
    if image.shape[2] == 3 and image.dtype == np.uint8:
        return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.LANCZOS))
    # bands hold measurements: means of them, not what a sharper filter puts beside an edge
    bands = [np.asarray(image[:, :, band], np.float32) for band in range(image.shape[2])]
    small = [Image.fromarray(band).resize(size, Image.Resampling.BOX) for band in bands]
    resized = np.stack([np.asarray(band) for band in small], axis=2)
    return resized.round().astype(np.uint8) if image.dtype == np.uint8 else resized


@torch.no_grad()
def model_payload(
    name: str, model: Segmenter, image: NDArray[Any], found: Segmentation
) -> dict[str, Any]:
    """Return one model's view of a picture (H, W, C), as JSON types; found: with scores.

    Without factors, `note` says why there are no maps.
    """
    assert found.scores is not None
    confidence = np.round(255 * found.scores.max(0)).astype(np.uint8)
    palette = model.config.palette or default_palette(len(model.classes))
    payload: dict[str, Any] = {
        "name": name,
        "context": model.config.context,
        "classes": list(model.classes),
        "palette": ["#{:02x}{:02x}{:02x}".format(*color) for color in palette],
        "areas": list(found.areas().values()),
        "labels": encode(found.labels),
        "confidence": encode(confidence),
        "factors": None,
        "note": "its neurons take no context",
    }
    if isinstance(model.context, NoContext):
        rows, columns = (-(-side // model.backbone.stride) for side in image.shape[:2])
        grid = NeuronGrid(
            image.shape[:2], image.shape[:2], (rows, columns), model.backbone.stride, 0
        )
        middles = np.indices((rows, columns)).reshape(2, -1).T
        x, y = np.array([grid.center(*middle) for middle in middles]).round().astype(int).T
        inside = y.clip(0, image.shape[0] - 1), x.clip(0, image.shape[1] - 1)
        payload |= {"grid": _grid(grid), "neurons": encode(found.labels[inside])}
        return payload
    features = extract_features(model, image)
    classes = features.classes().flatten().numpy().astype(found.labels.dtype)
    rows, columns = features.grid.map_size
    payload |= {"grid": _grid(features.grid), "neurons": encode(classes)}
    context = features.context
    if not context.has_maps:
        return payload | {"note": "its context is no weighted mean: there are no maps"}
    is_matrix = type(context).map_factors is Context.map_factors
    if is_matrix and rows * columns > MOST_COEFFICIENTS:
        note = f"{rows} x {columns} neurons are too many for its maps; give a smaller picture"
        return payload | {"note": note}
    factors = context.map_factors(features.features)
    payload["factors"] = factors_payload(factors, rows * columns, context.exclude_self)
    return payload


def _grid(grid: NeuronGrid) -> dict[str, Any]:
    return {
        "image": list(grid.image_size),
        "input": list(grid.input_size),
        "map": list(grid.map_size),
        "stride": grid.stride,
        "offset": grid.offset,
    }


def factors_payload(factors: MapFactors, neurons: int, excludes_self: bool) -> dict[str, Any]:
    """Return factors and the sums of their rows (maps.js says how they are read)."""
    # queries and keys are many, and maps want no more than the three digits of 16 bits
    kind = np.float16 if factors.form in ("dot", "matrix", "cross") else np.float32
    arrays = {
        name: np.asarray(value.detach().cpu().numpy(), kind if name != "weight" else np.float32)
        for name in ("target", "source", "weight")
        if (value := getattr(factors, name)) is not None
    }
    # as they travel, rounding included, so that shares add up to 1 on the page
    exact = {name: torch.from_numpy(one.astype(np.float64)) for name, one in arrays.items()}
    target, source, weight = (exact.get(name) for name in ("target", "source", "weight"))
    travelled = MapFactors(factors.form, target, source, weight, factors.activation)
    norm = row_sums(travelled, neurons, excludes_self)
    return {
        "form": factors.form,
        "activation": factors.activation,
        "excludesSelf": excludes_self,
        "norm": encode(norm.numpy().astype(np.float32)),
        **{name: encode(array) for name, array in arrays.items()},
    }


def row_sums(factors: MapFactors, neurons: int, excludes_self: bool) -> Tensor:
    """Return the sum of every row of coefficients (n,); its logarithm for dot and for exp."""
    if factors.form == "cross":
        return _cross_sums(factors)
    logarithmic = factors.form == "dot" or factors.activation == "exp"
    sums = []
    for own in torch.arange(neurons).split(ROWS):
        rows = _coefficients(factors, own, neurons)
        if excludes_self:
            rows[torch.arange(len(own)), own] = -torch.inf if logarithmic else 0.0
        sums.append(rows.logsumexp(1) if logarithmic else rows.sum(1))
    return torch.cat(sums)


def _cross_sums(factors: MapFactors) -> Tensor:
    assert factors.target is not None
    assert factors.source is not None
    width, height = factors.target.shape[-1], factors.source.shape[-1]
    gathered = torch.ones(height, width, dtype=torch.float64)
    for row, column in zip(factors.target, factors.source, strict=True):
        along_row = torch.einsum("hwv,hv->hw", row.view(height, width, width), gathered)
        along_column = torch.einsum("hwv,vw->hw", column.view(height, width, height), gathered)
        gathered = along_row + along_column
    return gathered.flatten()


def _coefficients(factors: MapFactors, own: Tensor, neurons: int) -> Tensor:
    """Return the coefficients of the targets `own`, (rows, n); of dot and exp their logarithms."""
    if factors.target is None:  # even
        return torch.ones(len(own), neurons, dtype=torch.float64)
    target, source, weight = factors.target[own], factors.source, factors.weight
    if source is None:  # the matrix itself
        return target
    if weight is None:  # dot, mixture
        return target @ source.T
    activation = ACTIVATIONS[factors.activation or ""]
    weight = weight[own] if weight.dim() == 2 else weight.expand_as(target)
    terms = (
        (target[:, channel, None] + source[:, channel], weight[:, channel, None])
        for channel in range(target.shape[1])
    )
    if activation.name == "exp":
        return reduce(torch.logaddexp, (scores + factor.log() for scores, factor in terms))
    return reduce(torch.add, (factor * activation.phi(scores) for scores, factor in terms))


def encode(array: NDArray[Any]) -> dict[str, Any]:
    """Pack an array as arrays.js reads it: base64 of zlib of little-endian numbers."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    packed = base64.b64encode(zlib.compress(plain.tobytes(), 6)).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": packed}
