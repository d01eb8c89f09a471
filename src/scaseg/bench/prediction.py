"""Images per second of a prediction: network, decoding and writing alone, and `scaseg predict`."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from scaseg.bench.measure import images_per_second
from scaseg.inference import predict
from scaseg.inference.pipeline import Pipeline, Settings, write_behind
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile
from scaseg.system import autocast

Seen = list[tuple[Any, ...]]


def prediction_parts(
    settings: Settings, files: Sequence[InputFile], repeats: int
) -> Iterator[tuple[str, float]]:
    """Measure the parts of a prediction, each with its name, in images per second.

    The network alone gets the batches that `predict` makes, on the device already, on a CPU each
    core its own; decoding and writing are what threads or processes do beside it; the whole run has
    its model loaded.
    """
    pipeline, count = Pipeline(settings), len(files)
    device, precision = pipeline.network.device.type, settings.precision

    def rate(work: Callable[[], object]) -> float:
        def all_files() -> int:
            work()
            return count

        return images_per_second(all_files, repeats, device, warm_up=1)

    def whole() -> None:
        outputs = settings.outputs(new_folder(settings.out))
        pipeline.run(files, outputs, count=count, on_bad=lambda *bad: None)

    whole()  # processes have begun, kernels are there
    arrays = [(file, pixels.copy()) for file, pixels in pipeline.read(files, count)]  # type: ignore[union-attr]
    seen, results = seen_batches(pipeline, arrays)

    @torch.no_grad()
    def compute(batch: tuple[Any, ...]) -> None:
        with autocast(device, precision):
            pipeline.network.coarse(*batch)

    def network() -> None:
        if pipeline.cores == 1:
            for batch in seen:
                compute(batch)
            return
        with predict.one_core_each(pipeline.network, pipeline.cores) as pool:
            deque(pool.map(compute, seen), 0)

    yield "the network", rate(network)
    yield "decoding", rate(lambda: deque(pipeline.read(files, count), 0))
    yield "writing", rate(lambda: write(pipeline, results, settings.out))
    yield "scaseg predict", rate(whole)


def seen_batches(
    pipeline: Pipeline, arrays: Sequence[tuple[InputFile, Any]]
) -> tuple[Seen, list[tuple[InputFile, Segmentation]]]:
    """What the network is given (images, and sizes where padded), and what becomes of it."""
    seen: Seen = []
    coarse, precision = pipeline.network.coarse, pipeline.settings.precision

    def record(*batch: Any) -> Any:
        seen.append(batch)
        return coarse(*batch)

    pipeline.network.coarse = record  # type: ignore[method-assign, assignment]
    try:
        stream = {"batch_size": pipeline.batch_size, "precision": precision}
        results = list(predict.predict_stream(pipeline.network, arrays, **stream))  # type: ignore[arg-type]
    finally:
        pipeline.network.coarse = coarse  # type: ignore[method-assign]
    return seen, results


def write(
    pipeline: Pipeline, results: Sequence[tuple[InputFile, Segmentation]], place: Path
) -> None:
    """Write results as a prediction does, from shared memory where processes write."""
    processes = pipeline.processes(len(results))
    outputs = pipeline.settings.outputs(new_folder(place))

    def shared() -> Iterator[tuple[InputFile, Segmentation]]:
        for file, found in results:
            outputs.prepare(file.name)
            labels = found.labels
            if processes is not None:
                room = processes.arena.array(labels.shape, labels.dtype)
                if room is not None:
                    room[:] = labels
                    found = replace(found, labels=room)
            yield file, replace(found, image=None)

    write_behind(shared(), outputs, processes, 2 * pipeline.batch_size, lambda: None)


def new_folder(place: Path) -> Path:
    """An empty folder; whoever made `place` removes both: removing files takes as long as work."""
    return Path(tempfile.mkdtemp(dir=place))
