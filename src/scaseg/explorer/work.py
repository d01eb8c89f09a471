"""The server's work with the networks: one copy of each, a few threads, a bounded queue."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock
from threading import enumerate as enumerate_threads
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray

from scaseg.errors import UserError
from scaseg.explanation.features import ContextFeatures, extract_features
from scaseg.explanation.occlusion import occluded, strongest_sources
from scaseg.explorer.payload import picture_payloads
from scaseg.explorer.pictures import Picture
from scaseg.inference.predict import predict, usual_batch_size
from scaseg.inference.segmentation import Segmentation
from scaseg.models.segmenter import Segmenter
from scaseg.system import Precision, usable_cores

THREADS = "scaseg_work"  # how their names begin
QUEUED = 16  # requests that wait; more are told to come again
FEATURES = 4  # maps of pictures that are kept: a pin's occlusion is asked for again and again
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class BusyError(Exception):
    """The queue is full."""


class Work:
    """Runs functions on threads, in order; pictures that wait together form a batch.

    workers: threads, which share the cores; batch_size: pictures of a batch (1 on a CPU, 8
    elsewhere); precision: of `label`.
    """

    def __init__(
        self,
        models: Mapping[str, Segmenter],
        *,
        queued: int = QUEUED,
        workers: int = 1,
        batch_size: int | None = None,
        precision: Precision = "32",
    ) -> None:
        self.models, self.queued, self._precision = models, queued, precision
        self._batch = usual_batch_size(batch_size, next(iter(models.values())).device.type)
        threads = max(1, min(usable_cores(), torch.get_num_threads()) // workers)
        self._threads = ThreadPoolExecutor(workers, THREADS, torch.set_num_threads, (threads,))
        # decoding and encoding go on while the networks compute
        self._small = ThreadPoolExecutor(usable_cores(), f"{THREADS}_small")
        self._waiting: dict[Any, deque[tuple[Any, Future[Any]]]] = defaultdict(deque)
        self._features: OrderedDict[tuple[str, str], ref[Picture]] = OrderedDict()
        self._lock = Lock()
        self.pending = 0
        self.on_batch: Callable[[int], None] = lambda size: None

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place in the queue, for all that one request needs; BusyError where it is full."""
        if self.pending >= self.queued:
            raise BusyError
        self.pending += 1
        try:
            yield
        finally:
            self.pending -= 1

    async def run(self, function: Callable[[], _Result]) -> _Result:
        """Run a function."""
        return await asyncio.wrap_future(self._threads.submit(function))

    async def run_small(self, function: Callable[[], _Result]) -> _Result:
        """Run a function that takes no network, beside those that do."""
        return await asyncio.wrap_future(self._small.submit(function))

    async def batched(
        self, function: Callable[[list[_Item]], Iterable[_Result]], item: _Item
    ) -> _Result:
        """Run a function of several items on one, together with those that wait for the same."""
        done: Future[_Result] = Future()
        self._waiting[function].append((item, done))
        self._threads.submit(self._run_waiting, function)
        return await asyncio.wrap_future(done)

    def close(self) -> bool:
        """Drop what waits; return whether something is being computed still."""
        for pool in (self._threads, self._small):
            pool.shutdown(wait=False, cancel_futures=True)
        own = [thread for thread in enumerate_threads() if thread.name.startswith(THREADS)]
        for thread in own:
            thread.join(0.2)
        return any(thread.is_alive() for thread in own)

    def _run_waiting(self, function: Any) -> None:
        batch: list[tuple[Any, Future[Any]]] = []
        waiting = self._waiting[function]
        while len(batch) < self._batch:
            try:
                item, done = waiting.popleft()
            except IndexError:  # an earlier call took it
                break
            if done.set_running_or_notify_cancel():  # else the visitor has left
                batch.append((item, done))
        if batch:
            self.on_batch(len(batch))
            self._run_batch(function, batch)

    def _run_batch(self, function: Any, batch: list[tuple[Any, Future[Any]]]) -> None:
        try:
            results = function([item for item, _ in batch])
            for (_, done), result in zip(batch, results, strict=True):
                done.set_result(result)
        except BaseException as error:
            left = [one for one in batch if not one[1].done()]
            if len(batch) == 1:
                left[0][1].set_exception(error)
            else:  # the fault of one must not be that of all
                for one in left:
                    self._run_batch(function, [one])

    def segment(self, pictures: list[Picture]) -> Iterable[None]:
        """Segment pictures, and keep with each what the page gets of it."""
        named = [(picture.name, picture.pixels) for picture in pictures]
        for picture, (payload, found) in zip(
            pictures, picture_payloads(named, self.models), strict=True
        ):
            picture.keep(payload, {name: as_png(one) for name, one in found.items()})
            yield

    def label(self, images: list[tuple[str, NDArray[Any]]]) -> list[Segmentation]:
        """Segment images (H, W, C), each by the model of the name beside it; nothing is kept."""
        found: list[Segmentation | None] = [None] * len(images)
        for name in {name for name, _ in images}:
            places = [place for place, (other, _) in enumerate(images) if other == name]
            results = predict(
                self.models[name],
                [images[place][1] for place in places],
                batch_size=self._batch,
                precision=self._precision,
            )
            for place, one in zip(places, results, strict=True):
                found[place] = one
        return [one for one in found if one is not None]

    def named(self, model: str | None) -> str:
        """The name of a model, the first where none is given; UserError where there is none."""
        name = model or next(iter(self.models))
        if name not in self.models:
            raise UserError.choice("model", name, self.models)
        return name

    def features(self, picture: Picture, model: str | None) -> ContextFeatures:
        """Return a picture's features before the context; UserError where a model has none."""
        name = self.named(model)
        with self._lock:
            if name not in picture.features:
                picture.features[name] = extract_features(self.models[name], picture.pixels)
            self._features[picture.id, name] = ref(picture)  # what is forgotten must be free
            self._features.move_to_end((picture.id, name))
            while len(self._features) > FEATURES:
                (_, oldest), other = self._features.popitem(last=False)
                if (found := other()) is not None:
                    found.features.pop(oldest, None)
            return picture.features[name]

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


def as_png(found: Segmentation) -> bytes:
    """Labels as the bytes of a palette PNG."""
    buffer = io.BytesIO()
    found.as_image().save(buffer, "PNG")
    return buffer.getvalue()
