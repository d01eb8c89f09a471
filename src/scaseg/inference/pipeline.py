"""From image files to results: read ahead, segmented in batches, written behind, memory bounded.

The same on every machine: `predict_folder` runs one, each worker of `--engine ray` another.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from scaseg import system
from scaseg.config.model import ModelConfig
from scaseg.data.decode.bands import pixel_size, read_pixels
from scaseg.data.decode.files import MAX_PIXELS, max_bytes
from scaseg.errors import UserError, WorkError, as_options, located
from scaseg.inference.crf import DenseCrf
from scaseg.inference.outputs import Outputs
from scaseg.inference.parts import Format, write_part
from scaseg.inference.predict import (
    MOST_ASIDE,
    check_confidence,
    predict_stream,
    usual_batch_size,
)
from scaseg.inference.preprocessing import input_size
from scaseg.inference.processes import BLOCK, Processes
from scaseg.inference.segmentation import Segmentation
from scaseg.inference.sources import InputFile
from scaseg.inference.tta import SCALES, TestTimeAugmentation
from scaseg.models.build import read_model
from scaseg.models.folding import for_prediction
from scaseg.models.segmenter import Segmenter
from scaseg.system import Precision

READERS, WRITERS = 8, 8  # threads that read images, at most, and that write results
FEW = 256  # files for which threads will do
AHEAD = 64_000_000  # pixels that are read ahead, or wait to be written, of however many images
MANY = 32  # images of many that a GPU computes at once: of small ones, 8 leave it idle
UNSEEN = 12_000_000  # pixels of an image whose header cannot be had without the rest
# Bytes that one pass takes for a pixel: 540 by mobilenet_v2, 800 by vgg16 (float32, measured)
PASS_BYTES = 500
ALWAYS_FREE = 1 << 28  # bytes: so little is not asked for, image by image


@dataclass(frozen=True)
class Settings:
    """What a pipeline does, in plain values: they travel to other machines. See predict_folder."""

    model: Path
    out: Path
    overlay: bool = False
    scores: bool = False
    json: bool = False
    confidence: bool = False
    min_confidence: float | None = None
    file_format: Format = "png"
    tta: bool = False
    window: int | None = None
    overlap: int | None = None
    context_scope: str = "window"
    crf: DenseCrf | None = None
    max_pixels: int | None = None
    device: str = "auto"
    precision: Precision = "32"
    batch_size: int | None = None
    workers: int | None = None

    def augmentation(self) -> TestTimeAugmentation:
        """The scales, flips, windows and CRF; UserError names an option."""
        scales = SCALES if self.tta else (1.0,)
        with as_options():
            windows = (self.window, self.overlap, self.context_scope)
            return TestTimeAugmentation(scales, self.tta, *windows, crf=self.crf)

    def outputs(self, folder: Path | None = None) -> Outputs:
        """The files that are wanted, below the output folder or another one."""
        wanted = (self.overlay, self.scores, self.json, self.confidence)
        return Outputs(folder or self.out, *wanted)

    def changing(self) -> dict[str, Any]:
        """The options that change results, as they are typed."""
        found: dict[str, Any] = {"--tta": self.tta, "--precision": self.precision}
        if self.min_confidence is not None:
            found["--min-confidence"] = self.min_confidence
        if self.window is not None:
            found |= {"--window": self.window, "--overlap": self.augmentation().overlap}
            found["--context-scope"] = self.context_scope
        if self.crf is not None:
            found["--crf"] = str(self.crf)
        return found if self.file_format == "png" else found | {"--format": self.file_format}


class Pipeline:
    """A network on this machine, and what it takes to bring files through it.

    on_bad gets each image that cannot be read, and may raise to end the work; on_begin is called
    before the results of an image are written, on_written after.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings, self.augmentation = settings, settings.augmentation()
        device = system.choose_device(settings.device)
        with as_options():
            self.batch_size = usual_batch_size(settings.batch_size, device)
            is_free = settings.batch_size is None and settings.window is None
            if device == "cuda" and is_free:
                self.batch_size = MANY
            self.readers = settings.workers or min(READERS, system.usable_cores())
            check_confidence(settings.min_confidence)
            system.autocast(device, settings.precision)
        with located("--model"):
            self.network = read_model(settings.model)
            self.network.to(device)
            if device != "mps":  # not measured there
                for_prediction(self.network)
        # an image each keeps cores busier than a share of every layer (docs/speed.md)
        self.cores = torch.get_num_threads() if device == "cpu" else 1
        if (free := system.available_memory(self.network.device)) is not None:  # half for the rest
            self.cores = max(1, min(self.cores, free // (2 * PASS_BYTES * MOST_ASIDE)))
        self._processes: Processes | None = None

    def processes(self, count: int) -> Processes | None:
        """Processes that read and write so many files; None: threads do it.

        A CPU is busy with the network, and few files are done before processes have begun.
        """
        is_many = count >= FEW and self.network.device.type == "cuda"
        if self._processes is None and is_many and hasattr(os, "memfd_create") and sys.executable:
            workers = min(self.readers + WRITERS, max(2, system.usable_cores() - 1))
            config, most = self.network.config, self.settings.max_pixels
            self._processes = Processes(workers, config, most)
            self._processes.arena.pin()
        return self._processes

    def run(
        self,
        files: Iterable[InputFile],
        outputs: Outputs,
        *,
        count: int,
        on_bad: Callable[[InputFile, UserError], None],
        on_begin: Callable[[], None] = lambda: None,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """Predict files into a folder; WorkError: out of memory, or a network that is down."""

        def readable() -> Iterator[tuple[InputFile, NDArray[Any]]]:
            for file, pixels in self.read(files, count):
                try:
                    if isinstance(pixels, UserError):
                        raise pixels
                    _check_memory(self.network, file, pixels.shape[:2], self.augmentation)
                except UserError as error:
                    on_bad(file, error)
                    continue
                yield file, pixels

        def begin(file: InputFile) -> None:
            on_begin()
            outputs.prepare(file.name)

        def open_scores(
            file: InputFile, size: tuple[int, int]
        ) -> AbstractContextManager[Callable[[Tensor], None]]:
            begin(file)
            return outputs.open_scores(self.network.config.classes, file, size)

        def begun(
            results: Iterable[tuple[InputFile, Segmentation]],
        ) -> Iterator[tuple[InputFile, Segmentation]]:
            for file, found in results:
                begin(file)
                yield file, found

        processes = self.processes(count)
        try:
            results = predict_stream(
                self.network,
                readable(),
                tta=self.augmentation,
                batch_size=self.batch_size,
                precision=self.settings.precision,
                min_confidence=self.settings.min_confidence,
                confidence=self.settings.confidence,
                open_scores=open_scores if self.settings.scores else None,
                pictures=self.settings.overlay,
                arena=None if processes is None else processes.arena,
                cores=self.cores if count >= self.cores else 1,
            )
            behind = 2 * max(self.batch_size, WRITERS)
            write_behind(begun(results), outputs, processes, behind, on_written)
            outputs.finish()
        except WorkError:
            raise
        except (RuntimeError, MemoryError) as fault:
            problem, remedy = str(fault).partition("\n")[0], ""
            if isinstance(fault, MemoryError) or "memory" in problem:
                problem = "out of memory"
                remedy = "use --window 512, a smaller --batch-size or another --device"
            raise WorkError("predicting", problem, remedy) from fault

    def read(
        self, files: Iterable[InputFile], count: int
    ) -> Iterator[tuple[InputFile, NDArray[Any] | UserError]]:
        """Read images ahead, in order; a bad one comes as its error."""
        config, most, processes = self.network.config, self.settings.max_pixels, None
        files = iter(files)
        if (first := next(files, None)) is None:
            return
        if isinstance(first.path, Path) and first.row is None:  # others wait for a network
            processes = self.processes(count)
        files = chain([first], files)
        if processes is None:
            yield from read_ahead(files, config, count, self.readers, most)
            return
        waiting: deque[tuple[list[InputFile], Future[Any]]] = deque()
        ahead = 0  # images of these
        readers = self.settings.workers or processes.count
        pool = ThreadPoolExecutor(readers, "reading")
        try:
            while True:
                while not waiting or (len(waiting) <= 2 * readers and processes.is_room(ahead)):
                    if not (block := list(islice(files, processes.block()))):
                        break
                    waiting.append((block, pool.submit(processes.read, block)))
                    ahead += len(block)
                if not waiting:
                    return
                block, future = waiting.popleft()
                ahead -= len(block)
                for file, found in zip(block, future.result(), strict=True):
                    if found is None:  # in its turn: however large it is, one is held
                        try:
                            found = _read(file, config, most)
                        except UserError as error:
                            found = error
                    yield file, found
        finally:
            pool.shutdown(cancel_futures=True)

    def run_part(
        self,
        files: Sequence[InputFile],
        part: str,
        *,
        on_bad: Callable[[InputFile, UserError], None],
        on_begin: Callable[[], None] = lambda: None,
    ) -> int:
        """Predict files into one part, a Parquet or tar file that appears whole; return how many.

        The same files give the same part, whoever makes it and how often.
        """
        with tempfile.TemporaryDirectory(prefix="scaseg-") as folder:
            outputs = self.settings.outputs(Path(folder))
            self.run(files, outputs, count=len(files), on_bad=on_bad)
            done = [file for file in files if outputs.exists(file.name)]
            if done:
                on_begin()
                write_part(self.settings.out / part, outputs, done, self.settings.file_format)
        return len(done)


def write_behind(
    results: Iterable[tuple[InputFile, Segmentation]],
    outputs: Outputs,
    processes: Processes | None,
    behind: int,
    on_written: Callable[[], None],
) -> None:
    """Write results in threads of their own, at most `behind` of them behind the network.

    Each waits for the disk most of the time, or for a process: a file that is written is on the
    disk, not on its way.
    """
    pending: deque[tuple[Future[None], int, int]] = deque()  # with its images and pixels
    several: list[tuple[InputFile, Segmentation]] = []

    def write(several: list[tuple[InputFile, Segmentation]]) -> None:
        if processes is not None:
            several = processes.write(outputs, several)
        for one in several:
            outputs.write(*one)

    def wait(most: int) -> None:
        # of large images one: their pixels are held until they are written
        while sum(count for _, count, _ in pending) > most or (
            len(pending) > 1 and sum(pixels for *_, pixels in pending) > AHEAD
        ):
            future, count, _ = pending.popleft()
            future.result()
            for _ in range(count):
                on_written()

    with ThreadPoolExecutor(WRITERS, "writing") as pool:

        def submit() -> None:
            pixels = sum(found.labels.size for _, found in several)
            pending.append((pool.submit(write, several.copy()), len(several), pixels))
            several.clear()

        try:
            for one in results:
                several.append(one)
                if processes is None or len(several) == BLOCK:
                    submit()
                    wait(behind)
        finally:  # what is computed is written, whatever stopped the rest
            submit()
            wait(0)


def read_ahead(
    files: Iterable[InputFile],
    config: ModelConfig,
    count: int,
    workers: int,
    max_pixels: int | None,
) -> Iterator[tuple[InputFile, NDArray[Any] | UserError]]:
    """Read images in threads, in order, a few ahead; a bad one comes as its error."""
    waiting: deque[tuple[InputFile, Future[NDArray[Any]], int]] = deque()
    headers: deque[tuple[InputFile, Future[int]]] = deque()
    files, more = iter(files), True
    pool = ThreadPoolExecutor(workers, "reading")
    try:
        while True:
            while more and len(headers) <= 2 * workers:
                if (upcoming := next(files, None)) is None:
                    more = False
                else:
                    headers.append((upcoming, pool.submit(_pixels, upcoming, config, count)))
            if not headers and not waiting:
                return
            ahead = sum(pixels for _, _, pixels in waiting)
            if not headers or len(waiting) > 2 * workers or ahead > AHEAD:
                file, future, _ = waiting.popleft()
                error = future.exception()
                yield file, error if isinstance(error, UserError) else future.result()
            else:
                file, header = headers.popleft()
                future = pool.submit(_read, file, config, max_pixels)
                waiting.append((file, future, header.result()))
    finally:
        pool.shutdown(cancel_futures=True)


def _pixels(file: InputFile, config: ModelConfig, count: int) -> int:
    """The pixels of an image, of 3 bytes as those of photographs, from its header.

    What is ahead is bounded by these.
    """
    if count <= 1 or file.row is not None or not isinstance(file.path, Path):
        return UNSEEN
    with suppress(UserError):  # reading it fails the same way, in its turn
        wide = config.in_channels * (1 if config.dtype == "uint8" else 4)
        return math.prod(pixel_size(file.path, config.bands, upright=False)) * -(-wide // 3)
    return 0


def _read(file: InputFile, config: ModelConfig, max_pixels: int | None) -> NDArray[Any]:
    opened = file.read(max_bytes(MAX_PIXELS if max_pixels is None else max_pixels))
    return read_pixels(opened, config.bands, config.dtype, max_pixels=max_pixels)


def _check_memory(
    model: Segmenter, file: InputFile, size: tuple[int, ...], tta: TestTimeAugmentation
) -> None:
    """Refuse an image that, or whose CRF, cannot fit: the system would kill the process."""
    height, width = size[:2]
    resized = input_size(model, height, width, max(tta.scales))
    needed = PASS_BYTES * resized[0] * resized[1]
    if tta.crf is None and needed < ALWAYS_FREE:
        return
    if (free := system.available_memory(model.device)) is None:
        return
    left = f"{system.in_words(free)} are free"
    if needed > free and not tta.needs_windows(resized):
        takes = f"{width} x {height} pixels take about {system.in_words(needed)} in one pass"
        raise UserError(file.path, f"{takes}, and {left}", "use --window 512")
    if tta.crf is None:
        return
    needed = tta.crf.memory(height * width, len(model.config.classes))
    if needed > free:
        takes = f"{width} x {height} pixels take about {system.in_words(needed)} with --crf"
        raise UserError(file.path, f"{takes}, and {left}", "leave it out, or give a smaller image")
