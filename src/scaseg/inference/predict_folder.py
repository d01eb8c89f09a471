"""Predict many files: read ahead, segmented in batches, written behind; memory stays bounded."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from scaseg import system
from scaseg.config.model import ModelConfig, read_config
from scaseg.data.decode.bands import BAND_SUFFIXES, pixel_size, read_pixels
from scaseg.data.decode.image import IMAGE_SUFFIXES
from scaseg.data.destination import check_destination
from scaseg.errors import UserError, WorkError, as_options, located
from scaseg.inference.inputs import InputFile, Inputs
from scaseg.inference.outputs import LABELS, Outputs, Provenance
from scaseg.inference.segmentation import Segmentation
from scaseg.io.model_folder import find_model, model_notes
from scaseg.io.paths import check_folder, not_writable
from scaseg.system import Precision

if TYPE_CHECKING:  # torch takes a second to import, and what is refused should be refused at once
    from torch import Tensor

    from scaseg.inference.tta import TestTimeAugmentation
    from scaseg.models.segmenter import Segmenter

WRITERS = 4  # threads that write results
AHEAD = 64_000_000  # pixels that are read ahead, or wait to be written, of however many images
# Bytes that one pass takes for a pixel: 540 by mobilenet_v2, 800 by vgg16 (float32, measured)
PASS_BYTES = 500


@dataclass
class Tally:
    """How many images were predicted, existed already, or were bad and skipped."""

    predicted: int = 0
    existing: int = 0
    bad: int = 0
    seconds: float = 0.0

    def rate(self) -> str:
        """Images per second, for people."""
        rate = self.predicted / self.seconds if self.seconds else 0.0
        return f"{rate:.0f} images/s" if rate >= 100 else f"{rate:.2g} images/s"


def predict_folder(
    model: str | Path | None,
    images: str | Path | Sequence[str | Path],
    out: str | Path = "predictions",
    *,
    overlay: bool = False,
    scores: bool = False,
    json: bool = False,
    confidence: bool = False,
    min_confidence: float | None = None,
    tta: bool = False,
    window: int | None = None,
    overlap: int | None = None,
    context_scope: str = "window",
    skip_existing: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    shard: tuple[int, int] | None = None,
    max_pixels: int | None = None,
    device: str = "auto",
    precision: Precision = "32",
    batch_size: int | None = None,
    workers: int | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    on_bad: Callable[[UserError], None] = lambda error: None,
    on_done: Callable[[Tally, int], None] = lambda tally, total: None,
) -> Tally:
    """Predict image files into a folder: what `scaseg predict` does.

    model: a run folder, one by save_pretrained, a built-in name, or None for the built-in model.
    images: files, folders (with all below; of a dataset its images alone) or patterns. Each image
    gets out/NAME.png, the label map at its own size; overlay, scores, json and confidence add
    NAME.overlay.jpg, NAME.npz (probabilities), NAME.json (areas of the classes) and
    NAME.confidence.png. Files appear whole or not at all. min_confidence: pixels that are less sure
    get the label 255 (65535 of more than 255 classes).

    tta: average over scales 0.75, 1, 1.25 and flips. window, overlap, context_scope: predict in
    sliding windows, see TestTimeAugmentation. skip_existing: predict only what has no results yet.
    overwrite: replace results. skip_bad: count images that cannot be read, and go on. shard: (i, n)
    for the i-th of n shares of the work. workers: threads that read images (4 at most).

    UserError (which names options of the command): bad input, and nothing was written. WorkError: a
    fault during work; results so far are whole. on_note gets lines for the user, on_bad each image
    that is skipped, on_done the tally and the number of images after each one.
    """
    out = Path(out)
    if skip_existing and overwrite:
        raise UserError("--overwrite", "came with --skip-existing", "give one of the two")
    check_folder("--out", out)
    check_destination("--out", out)
    with located("--model"):
        folder = find_model(model)
        config = read_config(folder)
    suffixes = IMAGE_SUFFIXES if config.bands is None else BAND_SUFFIXES
    inputs = Inputs([images] if isinstance(images, (str, Path)) else images, out, shard, suffixes)
    outputs = Outputs(out, overlay, scores, json, confidence)
    total, existing = outputs.check(inputs, skip_existing=skip_existing, overwrite=overwrite)

    from scaseg.inference.predict import check_confidence, predict_stream, usual_batch_size
    from scaseg.inference.tta import SCALES, TestTimeAugmentation, check_windows
    from scaseg.models.build import read_model
    from scaseg.models.folding import fold_batch_norms

    device = system.choose_device(device)
    scales = SCALES if tta else (1.0,)
    with as_options():
        augmentation = TestTimeAugmentation(scales, tta, window, overlap, context_scope)
        check_confidence(min_confidence)
        batch_size = usual_batch_size(batch_size, device)
        system.autocast(device, precision)
    made_by: dict[str, Any] = {"--tta": tta, "--precision": precision}
    if min_confidence is not None:
        made_by["--min-confidence"] = min_confidence
    if window is not None:
        made_by |= {"--window": window, "--overlap": augmentation.overlap}
        made_by["--context-scope"] = context_scope
    provenance = Provenance(out, folder, made_by)
    provenance.check((file.name for file in inputs) if overwrite else None)
    with located("--model"):
        network = read_model(folder)
        if device == "cpu":  # not measured elsewhere
            fold_batch_norms(network)
        network.to(device)
    notes = [*model_notes(model, folder), *inputs.notes, *check_windows(network, augmentation)]
    tally, began, is_mixed = Tally(existing=existing), time.monotonic(), False

    def readable() -> Iterator[tuple[InputFile, NDArray[Any]]]:
        nonlocal is_mixed
        to_do = (file for file in inputs if not (skip_existing and outputs.exists(file.name)))
        threads = workers or min(4, system.usable_cores())
        for file, pixels in _read_ahead(to_do, config, total, threads, max_pixels):
            try:
                if isinstance(pixels, UserError):
                    raise pixels
                _check_memory(network, file, pixels.shape[:2], augmentation)
            except UserError as error:
                if not skip_bad:
                    skip = "--skip-bad goes on without it"
                    remedy = f"{error.remedy}; {skip}" if error.remedy else skip
                    raise UserError(error.place, error.problem, remedy, error.detail) from error
                tally.bad += 1
                is_mixed |= outputs.path(file.name, LABELS).exists()  # an earlier result stays
                on_bad(error)
                continue
            yield file, pixels

    def begin(file: InputFile) -> None:
        """Make room for the first result, and for each in its folder."""
        if not provenance.begun:
            for note in notes:
                on_note(note)
            provenance.begin()
        outputs.prepare(file.name)

    def open_scores(
        file: InputFile, size: tuple[int, int]
    ) -> AbstractContextManager[Callable[[Tensor], None]]:
        begin(file)
        return outputs.open_scores(network.config.classes, file, size)

    def begun(
        results: Iterable[tuple[InputFile, Segmentation]],
    ) -> Iterator[tuple[InputFile, Segmentation]]:
        for file, found in results:
            begin(file)
            yield file, found

    def on_written() -> None:
        tally.predicted += 1
        tally.seconds = time.monotonic() - began
        on_done(tally, total)

    try:
        results = predict_stream(
            network,
            readable(),
            tta=augmentation,
            batch_size=batch_size,
            precision=precision,
            min_confidence=min_confidence,
            confidence=confidence,
            open_scores=open_scores if scores else None,
        )
        _write_behind(begun(results), outputs, max(batch_size, WRITERS), on_written)
    except UserError as error:
        if not provenance.begun:
            raise
        raise WorkError(*error.args) from error
    except OSError as fault:
        if provenance.begun:
            raise
        raise not_writable(out, fault).within("--out") from fault
    except (RuntimeError, MemoryError) as fault:
        problem, remedy = str(fault).partition("\n")[0], ""
        if isinstance(fault, MemoryError) or "memory" in problem:
            problem = "out of memory"
            remedy = "use --window 512, a smaller --batch-size or another --device"
        raise WorkError("predicting", problem, remedy) from fault
    tally.seconds = time.monotonic() - began
    if not is_mixed:
        provenance.finish()
    if tally.bad and not tally.predicted and not existing:
        raise UserError("IMAGES", f"none of {tally.bad} images could be read", "give others")
    return tally


def _write_behind(
    results: Iterable[tuple[InputFile, Segmentation]],
    outputs: Outputs,
    behind: int,
    on_written: Callable[[], None],
) -> None:
    """Write results in threads of their own, at most `behind` of them behind the network.

    Each waits for the disk most of the time: a file that is written is on it, not on its way.
    """
    pending: deque[tuple[Future[None], int]] = deque()

    def wait(most: int) -> None:
        # of large images one: their pixels are held until they are written
        while len(pending) > most or (len(pending) > 1 and sum(p for _, p in pending) > AHEAD):
            pending.popleft()[0].result()
            on_written()

    with ThreadPoolExecutor(WRITERS, "writing") as pool:
        try:
            for file, segmentation in results:
                future = pool.submit(outputs.write, file, segmentation)
                pending.append((future, segmentation.labels.size))
                wait(behind)
        finally:
            wait(0)  # what is computed is written, whatever stopped the rest


def _read_ahead(
    files: Iterable[InputFile],
    config: ModelConfig,
    count: int,
    workers: int,
    max_pixels: int | None,
) -> Iterator[tuple[InputFile, NDArray[Any] | UserError]]:
    """Read images in threads, in order, a few ahead; a bad one comes as its error."""
    waiting: deque[tuple[InputFile, Future[NDArray[Any]], int]] = deque()
    files, more = iter(files), True
    pool = ThreadPoolExecutor(workers, "reading")
    try:
        while more or waiting:
            ahead = sum(pixels for _, _, pixels in waiting)
            if not more or len(waiting) > 2 * workers or ahead > AHEAD:
                file, future, _ = waiting.popleft()
                error = future.exception()
                yield file, error if isinstance(error, UserError) else future.result()
            elif (upcoming := next(files, None)) is None:
                more = False
            else:
                pixels = 0
                if count > 1:  # what is ahead is bounded by pixels, known from headers
                    with suppress(UserError):  # reading it fails the same way, in its turn
                        size = pixel_size(upcoming.path, config.bands, upright=False)
                        # of 3 bytes, as those of photographs
                        wide = config.in_channels * (1 if config.dtype == "uint8" else 4)
                        pixels = math.prod(size) * -(-wide // 3)
                read = partial(read_pixels, bands=config.bands, dtype=config.dtype)
                future = pool.submit(read, upcoming.path, max_pixels=max_pixels)
                waiting.append((upcoming, future, pixels))
    finally:
        pool.shutdown(cancel_futures=True)


def _check_memory(
    model: Segmenter, file: InputFile, size: tuple[int, ...], tta: TestTimeAugmentation
) -> None:
    """Refuse an image that cannot fit in one pass: the system would kill the process."""
    from scaseg.inference.preprocessing import input_size

    resized = input_size(model, size[0], size[1], max(tta.scales))
    if tta.needs_windows(resized):
        return
    needed = PASS_BYTES * resized[0] * resized[1]
    free = system.available_memory(model.device)
    if free is not None and needed > free:
        takes = f"{size[1]} x {size[0]} pixels take about {system.in_words(needed)} in one pass"
        problem = f"{takes}, and {system.in_words(free)} are free"
        raise UserError(file.path, problem, "use --window 512")
