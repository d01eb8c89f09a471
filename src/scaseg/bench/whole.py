"""A whole training and a whole prediction beside their parts: which of them is the limit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import cycle, islice
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from scaseg.bench.prediction import prediction_parts
from scaseg.bench.run import machine
from scaseg.bench.training import STEP_ON_LOADED, WORKERS, training_parts
from scaseg.config.recipe import USUAL, load_recipe
from scaseg.config.run import RunConfig
from scaseg.data.datasets.base import PairedDataset
from scaseg.data.decode.bands import pixel_size
from scaseg.data.splits import training_splits
from scaseg.errors import UserError
from scaseg.inference.pipeline import Settings
from scaseg.inference.sources import InputFile
from scaseg.io.atomic import write_text
from scaseg.io.model_folder import find_model
from scaseg.io.table import write_rows
from scaseg.system import Precision, available_memory, choose_device, usable_cores

MADE = 160  # photographs of noise, where none are given
PHOTOGRAPHS = {"cuda": 2048, "cpu": 12}  # that are predicted, a second of work and more
DECODED = 2 << 30  # bytes that they may take in memory


class Part(NamedTuple):
    """A part of the work, how many images a second it does, and what that means."""

    work: str
    part: str
    images_per_second: float
    share: float | None = None
    of: str = ""

    def remark(self) -> str:
        """The share in words."""
        return "" if self.share is None else f"{self.share:.0%} {self.of}"


def run_whole(
    data: Path | None,
    *,
    recipe: str | None,
    model: str,
    batch: int | None,
    workers: int | None,
    precision: Precision | None,
    repeats: int,
    device: str,
    as_json: bool,
    out: Path | None,
) -> None:
    """Measure both; print a table, or JSON, and write it to a folder."""
    place = choose_device(device)
    with tempfile.TemporaryDirectory(prefix="scaseg-") as folder:
        photographs = make_photographs(Path(folder) / "noise") if data is None else data
        keys = {"data.root": str(photographs), "data.check": "quick", "machine.device": place}
        run = load_recipe(USUAL if recipe is None else recipe, keys)
        norms = run.training.batch_norm
        if norms == "auto":  # as in a training
            norms = "train" if run.model.backbone_weights is None else "frozen"
        size = run.training.batch_size if batch is None else batch
        loaders = min(WORKERS, usable_cores() - 1) if workers is None else workers
        asked = run.machine.precision if precision is None else precision
        run = replace(
            run,
            model=replace(run.model, backbone_weights=None, start_from=None),  # speed needs none
            training=replace(run.training, batch_size=size, batch_norm=norms),
            machine=replace(run.machine, workers=loaders, precision=asked),
        )
        room = DECODED
        if place == "cuda":  # where they lie as floats, four times as large
            room = min(room, (available_memory(torch.device(place)) or room) // 16)
        files = _files(run, PHOTOGRAPHS.get(place, PHOTOGRAPHS["cpu"]), room)
        settings = Settings(
            find_model(model), Path(folder), device=place, precision=precision or "32"
        )
        about = {
            "what": "run",
            "date": date.today().isoformat(),
            "machine": f"{machine(place)}, {usable_cores()} cores",
            "recipe": recipe or USUAL,
            "model": model,
            "photographs": "noise" if data is None else data.resolve().name,
            "precision": asked,
            "batch": size,
            "workers": loaders,
        }
        if not as_json:
            print(about["machine"])
            print(f"{about['photographs']}; batches of {size}, {loaders} loaders; ", end="")
            print(f"{about['date']}, best of {repeats}\n\n{'':8} {'':28} {'images/s':>9}")
        parts: list[Part] = []
        for part in _parts(run, settings, files, place, repeats):
            parts.append(part)
            if not as_json:
                print(_line(part), flush=True)
            if out is not None:  # a run that is cut off loses nothing that it has measured
                out.mkdir(parents=True, exist_ok=True)
                write_rows(out / "run.csv", [about | one._asdict() for one in parts])
    if as_json:
        print(json.dumps(about | {"rows": [one._asdict() for one in parts]}))
    if out is not None:
        lines = [f"{about['machine']}; {about['date']}; {about['photographs']}, recipe "]
        lines[0] += f"{about['recipe']}, batches of {size}, {loaders} loaders\n"
        lines += ["| | part | images/s | |", "|---|---|---|---|"]
        lines += [
            f"| {one.work} | {one.part} | {one.images_per_second:.1f} | {one.remark()} |"
            for one in parts
        ]
        write_text(out / "run.md", "\n".join([*lines, ""]))

        from scaseg.plots.timings import save_rates

        rates = [(one.work, one.part, one.images_per_second) for one in parts]
        save_rates(out / "run.png", rates, title=str(about["machine"]))
        if not as_json:
            print(f"written to {out}")


def _parts(
    run: RunConfig, settings: Settings, files: list[InputFile], device: str, repeats: int
) -> Iterator[Part]:
    step = 0.0
    for name, found in training_parts(run, device, repeats):
        if name == STEP_ON_LOADED:
            step = found
        is_whole = name.startswith("loaders and") or name == "scaseg train"
        share = (found / step, "of the step on them") if is_whole else ()
        yield Part("train", name, found, *share)
    network = 0.0
    for name, found in prediction_parts(settings, files, repeats):
        network = found if name == "the network" else network
        outside = (1 - found / network, "outside the network") if name == "scaseg predict" else ()
        yield Part("predict", name, found, *outside)


def _line(part: Part) -> str:
    rate = f"{part.images_per_second:9.1f}"
    return f"{part.work:8} {part.part:28} {rate}  {part.remark()}".rstrip()


def _files(run: RunConfig, count: int, room: int) -> list[InputFile]:
    """So many image files of the training data, again and again where there are fewer.

    room: bytes that they may take when they are decoded, all of them.
    """
    photographs = training_splits(run.data)[0]
    if not isinstance(photographs, PairedDataset):
        problem = f"{type(photographs).__name__} has no image files of its own"
        raise UserError("--data", problem, "give a folder of photographs and label maps")
    files: list[InputFile] = []
    for pair in islice(cycle(photographs.pairs), count):
        height, width = pixel_size(pair.image, None, upright=True)
        room -= 3 * height * width
        if files and room < 0:
            break
        files.append(InputFile(pair.image, PurePath(f"{len(files):05}")))
    return files


def make_photographs(root: Path) -> Path:
    """Noise, smoothed as photographs are, of 240 x 320 pixels; labels in blocks of 8 classes."""
    random = np.random.default_rng(0)
    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(f"class {index}" for index in range(8)) + "\n")
    for index in range(MADE):
        small = Image.fromarray(random.integers(0, 256, (30, 40, 3), np.uint8))
        small.resize((320, 240), Image.Resampling.BILINEAR).save(root / f"images/{index:04}.jpg")
        blocks = Image.fromarray(random.integers(0, 8, (6, 8), np.uint8))
        blocks.resize((320, 240), Image.Resampling.NEAREST).save(root / f"labels/{index:04}.png")
    return root
