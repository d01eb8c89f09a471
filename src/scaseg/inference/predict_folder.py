"""Predicting many files: read ahead, segmented in batches, written behind; memory stays bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scaseg.data.decode.image import image_size, read_image
from scaseg.inference.inputs import Listed
from scaseg.inference.outputs import LABELS, SCORES, Outputs, ScoreFile
from scaseg.inference.predict import Precision, check_batch_size, segment
from scaseg.inference.preprocessing import seen_size
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.test_time import TestTimeAugmentation
from scaseg.models.segmenter import Segmenter
from scaseg.system import available_memory, in_words, usable_cores

# Pixels of photographs that are read ahead, whatever their number
AHEAD = 64_000_000
# Bytes that one pass takes for a pixel: 540 by mobilenet_v2, 800 by vgg16 (float32, measured)
PASS_BYTES = 500


class WorkError(RuntimeError):
    """Something went wrong during the work: one line for the user, who gets exit code 1."""


@dataclass
class Tally:
    """What became of the photographs."""

    done: int = 0
    bad: int = 0
    left: int = 0  # bad ones whose earlier results are still there
    seconds: float = 0.0


@dataclass(frozen=True)
class Options:
    """How files are worked through."""

    how: TestTimeAugmentation
    batch_size: int | None = None
    precision: Precision = "fp32"
    workers: int = 1
    max_pixels: int | None = None
    skip_bad: bool = False


def predict_files(
    model: Segmenter,
    photographs: Iterable[Listed],
    outputs: Outputs,
    options: Options,
    *,
    on_begin: Callable[[], None] = lambda: None,
    on_bad: Callable[[str], None] = lambda line: None,
    on_done: Callable[[int], None] = lambda done: None,
) -> Tally:
    """Segment photographs and write what is wanted of each; ValueError at the first bad one.

    With options.skip_bad, bad ones are reported and counted, and the rest is done. on_begin is
    called before anything is written.
    """
    tally, began = Tally(), time.monotonic()
    batch_size = check_batch_size(options.batch_size, next(model.parameters()).device)
    files: dict[Listed, ScoreFile] = {}

    def readable() -> Iterator[tuple[Listed, NDArray[np.uint8]]]:
        begun = False
        for photograph, pixels in read_ahead(photographs, options.workers, options.max_pixels):
            try:
                if isinstance(pixels, ValueError):
                    raise pixels
                check_memory(model, photograph, pixels.shape[:2], options.how)
            except ValueError as fault:
                if not options.skip_bad:
                    raise
                tally.bad += 1
                tally.left += outputs.path(photograph.name, LABELS).exists()
                on_bad(str(fault))
                continue
            if not begun:
                on_begin()
                begun = True
            outputs.prepare(photograph.name)
            yield photograph, pixels

    def keep_band(photograph: Listed, size: tuple[int, int], probabilities: Tensor) -> None:
        if photograph not in files:
            path = outputs.path(photograph.name, SCORES)
            files[photograph] = ScoreFile(path, size, model.config.classes)
        files[photograph].write(probabilities.cpu().numpy())

    def write(photograph: Listed, found: Segmentation) -> None:
        if photograph in files:
            files[photograph].keep()
            del files[photograph]
        outputs.write(photograph, found)

    def written(future: Future[None]) -> None:
        future.result()
        tally.done += 1
        on_done(tally.done)

    pending: deque[Future[None]] = deque()
    with ThreadPoolExecutor(1, "writing") as writer:
        try:
            found = segment(
                model,
                readable(),
                how=options.how,
                batch_size=batch_size,
                precision=options.precision,
                on_band=keep_band if outputs.scores else None,
            )
            with _one_line():
                for photograph, segmentation in found:
                    pending.append(writer.submit(write, photograph, segmentation))
                    while len(pending) > batch_size:
                        written(pending.popleft())
        finally:  # what is computed is written, whatever stopped the rest
            try:
                while pending:
                    written(pending.popleft())
            finally:
                writer.shutdown(cancel_futures=True)  # it may be at work on these files
                for file in files.values():
                    file.drop()
    tally.seconds = time.monotonic() - began
    return tally


def read_ahead(
    photographs: Iterable[Listed], workers: int, max_pixels: int | None
) -> Iterator[tuple[Listed, NDArray[np.uint8] | ValueError]]:
    """Read photographs in threads, in order, a few ahead; a bad one comes as its ValueError."""
    waiting: deque[tuple[Listed, Future[NDArray[np.uint8]], int]] = deque()
    ahead = 0
    pool = ThreadPoolExecutor(workers, "reading")
    try:
        for photograph in photographs:
            try:
                height, width = image_size(photograph.path, upright=False)
            except ValueError:
                height = width = 0  # reading it says the same, in its turn
            future = pool.submit(read_image, photograph.path, max_pixels=max_pixels)
            waiting.append((photograph, future, height * width))
            ahead += height * width
            while len(waiting) > 2 * workers or (ahead > AHEAD and waiting):
                ahead -= waiting[0][2]
                yield _result(*waiting.popleft()[:2])
        while waiting:
            yield _result(*waiting.popleft()[:2])
    finally:
        pool.shutdown(cancel_futures=True)


def _result(
    photograph: Listed, future: Future[NDArray[np.uint8]]
) -> tuple[Listed, NDArray[np.uint8] | ValueError]:
    try:
        return photograph, future.result()
    except ValueError as fault:
        return photograph, fault


def check_memory(
    model: Segmenter, photograph: Listed, size: tuple[int, ...], how: TestTimeAugmentation
) -> None:
    """Refuse a photograph that cannot fit in one pass: the system would end the process."""
    seen = seen_size(model, size[0], size[1], max(how.scales))
    if how.window is not None and max(seen) > how.window:
        return
    needed = PASS_BYTES * seen[0] * seen[1]
    free = available_memory(next(model.parameters()).device)
    if free is not None and needed > free:
        raise ValueError(
            f"{photograph.path}: {size[1]} x {size[0]} pixels take about {in_words(needed)} in "
            f"one pass, and {in_words(free)} are free; use --window 512"
        )


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn what a device or a disk says into a line for people."""
    try:
        yield
    except (WorkError, OSError):
        raise
    except (RuntimeError, MemoryError) as fault:
        said = (str(fault).splitlines() or ["out of memory"])[0]
        if isinstance(fault, MemoryError) or "memory" in said:
            said = "out of memory; use --window 512, a smaller --batch-size or another --device"
        raise WorkError(f"predicting: {said}") from fault


def usual_workers() -> int:
    """How many photographs to read at once: reading is quick beside the network."""
    return min(4, usable_cores())
