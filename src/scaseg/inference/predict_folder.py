"""Predict many files into a folder: what is asked for, what is there, and who does the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from scaseg.config.model import read_config
from scaseg.data.decode.bands import BAND_SUFFIXES
from scaseg.data.decode.image import IMAGE_SUFFIXES
from scaseg.data.destination import check_destination
from scaseg.errors import UserError, WorkError, located
from scaseg.inference.inputs import Inputs
from scaseg.inference.outputs import LABELS, Outputs, Provenance
from scaseg.inference.parts import FORMATS, Format, Parts
from scaseg.inference.sources import InputFile, batched
from scaseg.io.model_folder import find_model, model_notes
from scaseg.io.paths import check_folder, not_writable
from scaseg.system import Precision

if TYPE_CHECKING:  # torch takes a second to import
    from scaseg.inference.crf import DenseCrf

ENGINES = ("local", "ray")
PER_PART = 1000  # images of a Parquet or tar file


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
    file_format: Format = "png",
    per_part: int = PER_PART,
    tta: bool = False,
    window: int | None = None,
    overlap: int | None = None,
    context_scope: str = "window",
    crf: DenseCrf | None = None,
    skip_existing: bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    shard: tuple[int, int] | None = None,
    engine: str = "local",
    max_pixels: int | None = None,
    device: str = "auto",
    precision: Precision = "32",
    batch_size: int | None = None,
    workers: int | None = None,
    onnx: str | Path | Callable[[], Path] | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    on_bad: Callable[[UserError], None] = lambda error: None,
    on_done: Callable[[Tally, int], None] = lambda tally, total: None,
) -> Tally:
    """Predict image files into a folder: what `scaseg predict` does.

    model: a run folder, one by save_pretrained, a built-in name, or None for the built-in model.
    images: files, folders (with all below; of a dataset its images alone) or patterns; lists of
    images (.txt), Parquet and tar files of them; addresses such as s3://bucket/folder. Each image
    gets out/NAME.png, the label map at its own size; overlay, scores, json and confidence add
    NAME.overlay.jpg, NAME.npz (probabilities), NAME.json (areas of the classes) and
    NAME.confidence.png. Files appear whole or not at all. min_confidence: pixels that are less sure
    get the label 255 (65535 of more than 255 classes).

    tta: average over scales 0.75, 1, 1.25 and flips. window, overlap, context_scope: predict in
    sliding windows, see TestTimeAugmentation. crf: refine the labels by a dense CRF. skip_existing:
    predict only what has no results yet. overwrite: replace results. skip_bad: count images that
    cannot be read, and go on. shard: (i, n) for the i-th of n shares of the work. workers: threads
    that read images (8 at most).
    file_format: "parquet" and "webdataset" pack what per_part images get into one file (see
    scaseg.inference.parts). engine: "ray" for all machines of a Ray cluster, see docs/machines.md.
    onnx: a file of this model by `export_model`, or what makes one, called after all checks;
    ONNX Runtime then computes the scores, on the CPU.

    UserError (which names options of the command): bad input, and nothing was written. WorkError: a
    fault during work; results so far are whole. on_note gets lines for the user, on_bad each image
    that is skipped, on_done the tally and the number of images after each one.
    """
    out = Path(out)
    if skip_existing and overwrite:
        raise UserError("--overwrite", "came with --skip-existing", "give one of the two")
    if engine not in ENGINES:
        raise UserError.choice("--engine", engine, ENGINES)
    if file_format not in FORMATS:
        raise UserError.choice("--format", file_format, FORMATS)
    if overwrite and file_format != "png":
        raise UserError("--overwrite", f"came with --format {file_format}", "give another folder")
    if per_part < 1:
        raise UserError("--per-part", f"{per_part}", "give a whole number >= 1")
    if onnx is not None:
        others: list[tuple[str, object, object]] = [("--window", window, None)]
        others += [("--precision", precision, "32"), ("--device", device, "auto")]
        others += [("--engine", engine, "local")]
        for name, value, usual in others:
            if value not in (usual, "cpu"):
                raise UserError(name, f"{value} came with --engine onnx", "leave one of them out")
        device = "cpu"
    check_folder("--out", out)
    check_destination("--out", out)
    with located("--model"):
        folder = find_model(model)
        config = read_config(folder)
    suffixes = IMAGE_SUFFIXES if config.bands is None else BAND_SUFFIXES
    inputs = Inputs([images] if isinstance(images, (str, Path)) else images, out, shard, suffixes)
    outputs = Outputs(out, overlay, scores, json, confidence)
    parts = None if file_format == "png" else Parts(out, file_format, shard)
    if parts is None:
        total, existing = outputs.check(inputs, skip_existing=skip_existing, overwrite=overwrite)
    else:
        total, existing = parts.check(inputs, skip_existing=skip_existing)

    from scaseg.inference.onnx_engine import use_onnx
    from scaseg.inference.pipeline import Pipeline, Settings
    from scaseg.inference.tta import check_windows

    settings = Settings(
        folder.absolute(),
        out.absolute(),
        overlay=overlay,
        scores=scores,
        json=json,
        confidence=confidence,
        min_confidence=min_confidence,
        file_format=file_format,
        tta=tta,
        window=window,
        overlap=overlap,
        context_scope=context_scope,
        crf=crf,
        max_pixels=max_pixels,
        device=device,
        precision=precision,
        batch_size=batch_size,
        workers=workers,
    )
    provenance = Provenance(out, folder, settings.changing())
    provenance.check((file.name for file in inputs) if overwrite else None, outputs)
    tally, began, is_mixed = Tally(existing=existing), time.monotonic(), False
    notes = [*model_notes(model, folder), *inputs.notes]

    def begin() -> None:
        """Make room for the first result."""
        if not provenance.begun:
            for note in notes:
                on_note(note)
            provenance.begin()

    def bad(file: InputFile, error: UserError) -> None:
        nonlocal is_mixed
        if not skip_bad:
            skip = "--skip-bad goes on without it"
            remedy = f"{error.remedy}; {skip}" if error.remedy else skip
            raise UserError(error.place, error.problem, remedy, error.detail) from error
        tally.bad += 1
        is_mixed |= outputs.path(file.name, LABELS).exists()  # an earlier result stays
        on_bad(error)

    def written(count: int = 1) -> None:
        tally.predicted += count
        tally.seconds = time.monotonic() - began
        on_done(tally, total)

    exists = outputs.exists if parts is None else parts.exists
    to_do = (file for file in inputs if not (skip_existing and exists(file.name)))
    is_local = engine == "local"
    # of a cluster this machine may be the weakest: what is refused is refused here all the same
    here = settings if is_local else replace(settings, device="cpu", precision="32")
    pipeline = Pipeline(here)
    if onnx is not None:
        use_onnx(pipeline.network, onnx() if callable(onnx) else Path(onnx))
        pipeline.cores = 1  # it has threads of its own
    notes += check_windows(pipeline.network, pipeline.augmentation)
    try:
        if not is_local:
            from scaseg.inference.ray_engine import predict_on_ray

            for files, errors in predict_on_ray(settings, to_do, parts, per_part, begin):
                written(len(files) - len(errors))
                for place, error in errors.items():
                    bad(files[place], error)
        elif parts is None:
            pipeline.run(
                to_do, outputs, count=total, on_bad=bad, on_begin=begin, on_written=written
            )
        else:
            for number, files in enumerate(batched(to_do, per_part)):
                name = parts.name(number)
                written(pipeline.run_part(files, name, on_bad=bad, on_begin=begin))
    except UserError as error:
        if not provenance.begun:
            raise
        raise WorkError(*error.args) from error
    except OSError as fault:
        if provenance.begun:
            raise
        raise not_writable(out, fault).within("--out") from fault
    tally.seconds = time.monotonic() - began
    if not is_mixed:
        provenance.finish()
    if tally.bad and not tally.predicted and not existing:
        raise UserError("IMAGES", f"none of {tally.bad} images could be read", "give others")
    return tally
