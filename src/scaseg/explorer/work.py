"""The server's work with the networks: one copy of each, one thread, a bounded queue."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from scaseg.errors import UserError
from scaseg.explanation.features import ContextFeatures, extract_features
from scaseg.explanation.occlusion import occluded, strongest_sources
from scaseg.explorer.payload import picture_payloads
from scaseg.explorer.pictures import Picture
from scaseg.models.segmenter import Segmenter

QUEUED = 16  # requests that wait; more are told to come again
FEATURES = 4  # maps of pictures that are kept: a pin's occlusion is asked for again and again
_Result = TypeVar("_Result")


class BusyError(Exception):
    """The queue is full."""


class Work:
    """Runs functions on one thread, in order; pictures that wait together form a batch."""

    def __init__(self, load: Callable[[], Mapping[str, Segmenter]], queued: int = QUEUED) -> None:
        self._load, self._queued = load, queued
        self._models: Mapping[str, Segmenter] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scaseg")
        self._waiting: list[tuple[Picture, Future[None]]] = []
        self._features: OrderedDict[tuple[str, str], ContextFeatures] = OrderedDict()
        self.pending = 0

    async def run(self, function: Callable[[], _Result]) -> _Result:
        """Run a function; BusyError where too many wait."""
        return await self._counted(self._thread.submit, function)

    async def segment(self, picture: Picture) -> None:
        """Segment a picture, in a batch with all that wait."""

        def submit(_: Any) -> Future[None]:
            done: Future[None] = Future()
            self._waiting.append((picture, done))
            self._thread.submit(self._segment_waiting)
            return done

        await self._counted(submit, None)

    async def _counted(self, submit: Callable[[Any], Future[_Result]], function: Any) -> _Result:
        if self.pending >= self._queued:
            raise BusyError
        self.pending += 1
        try:
            return await asyncio.wrap_future(submit(function))
        finally:
            self.pending -= 1

    def _segment_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return  # an earlier call took it
        try:
            named = [(picture.name, picture.pixels) for picture, _ in batch]
            for (picture, _), (payload, found) in zip(
                batch, picture_payloads(named, self.models()), strict=True
            ):
                labels = {}
                for name, segmentation in found.items():
                    buffer = io.BytesIO()
                    segmentation.as_image().save(buffer, "PNG")
                    labels[name] = buffer.getvalue()
                picture.keep(payload, labels)
        except BaseException as error:
            for _, done in batch:
                done.set_exception(error)
            return
        for _, done in batch:
            done.set_result(None)

    def models(self) -> Mapping[str, Segmenter]:
        """The models by name; loaded by the first who asks, on the thread that uses them."""
        if self._models is None:
            self._models = self._load()
        return self._models

    def features(self, picture: Picture, model: str | None) -> ContextFeatures:
        """Return a picture's features before the context; UserError where a model has none."""
        name = model or next(iter(self.models()))
        if name not in self.models():
            raise UserError.choice("model", name, self.models())
        key = picture.id, name
        if key not in self._features:
            self._features[key] = extract_features(self.models()[name], picture.pixels)
            while len(self._features) > FEATURES:
                self._features.popitem(last=False)
        self._features.move_to_end(key)
        return self._features[key]

    @torch.no_grad()
    def dependency(self, picture: Picture, model: str | None, row: int, col: int) -> dict[str, Any]:
        """Return the dependency map of a neuron as JSON types, row by row."""
        features = self.features(picture, model)
        found = features.context.dependency_map(features.features, row, col)[0]
        height, width = features.grid.map_size
        shares = found.float().cpu().flatten().tolist()
        return {"height": height, "width": width, "row": row, "col": col, "shares": shares}

    def occlusion(
        self, picture: Picture, model: str | None, row: int, col: int, part: float
    ) -> dict[str, Any]:
        """Return a neuron's probabilities with all sources, and without the strongest ones.

        part: of the map that is taken away, from 0 to 1, the largest shares first.
        """
        features = self.features(picture, model)
        height, width = features.grid.map_size
        if not (0 <= row < height and 0 <= col < width):
            raise UserError("row, col", f"{row}, {col}", f"the map has {height} x {width} neurons")
        own = row * width + col
        kept = torch.ones(2, height * width, dtype=torch.bool)
        if part > 0:
            shares = features.coefficients(torch.tensor([own]))[0].cpu()
            generator = torch.Generator().manual_seed(0)
            kept[1, strongest_sources(shares, own, part, generator)] = False
        before, after = occluded(features, kept)[:, :, own]
        removed = np.flatnonzero(~kept[1].numpy()).tolist()
        classes = features.model.classes
        return {
            "before": dict(zip(classes, before.tolist(), strict=True)),
            "after": dict(zip(classes, after.tolist(), strict=True)),
            "removed": removed,
        }
