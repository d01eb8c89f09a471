"""Where the time of `scaseg predict` goes: the network alone, decoding, writing, the whole run.

    PYTHONPATH=src python3 benchmarks/prediction.py PHOTOS... [--models outdoor vgg16,compact]
        [--precisions 32 bf16] [--enlarged 300] [--count 1430] [--out prediction.csv]

PHOTOS: folders of images, or of images/; --enlarged: so many of the first folder's as JPEGs of 1280
x 960. --models: names or folders, or BACKBONE,HEAD for one of sca with random weights. In images/s,
the best of some rounds in turn, after a whole run that warms up:

- network: the batches that predict makes, normalized and resized, on the device already;
- on the device: the same images from host memory to labels in host memory;
- decoding, writing: what the reading and the writing threads do, alone;
- predict: the whole run, its model loaded (start: the seconds that this takes, with its warm-up).

The last column is the share of the whole run that is spent outside the network.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from itertools import cycle, islice
from pathlib import Path, PurePath
from typing import Any

import torch
from PIL import Image

import scaseg
from scaseg.inference import predict
from scaseg.inference.inputs import Inputs
from scaseg.inference.pipeline import Pipeline, Settings, write_behind
from scaseg.inference.sources import InputFile
from scaseg.io.table import write_rows
from scaseg.system import autocast, usable_cores

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", nargs="+", type=Path)
    parser.add_argument("--models", nargs="+", default=["outdoor", "vgg16,compact"])
    parser.add_argument("--precisions", nargs="+", default=["32", "bf16"] if CUDA else ["32"])
    parser.add_argument("--enlarged", type=int, default=0)
    parser.add_argument("--count", type=int, default=1430 if CUDA else 12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    machine = f"{torch.cuda.get_device_name() if CUDA else 'cpu'}, {usable_cores()} cores"
    about = {"date": date.today().isoformat(), "machine": f"{machine}, torch {torch.__version__}"}
    print(*about.values(), flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="prediction-") as temporary:
        place = Path(temporary)
        sets = {folder.name: list(Inputs([folder], place / "out")) for folder in options.photos}
        if options.enlarged:
            first = next(iter(sets.values()))[: options.enlarged]
            sets["1280 x 960"] = enlarge(first, place / "enlarged")
        for model in options.models:
            folder = build(model, place / model.replace(",", "-"))
            for name, found in sets.items():
                count = min(options.count, options.enlarged or options.count)
                count = count if name == "1280 x 960" else options.count
                files = [
                    InputFile(one.path, PurePath(f"{number:05}"))
                    for number, one in enumerate(islice(cycle(found), count))
                ]
                for precision in options.precisions:
                    case = {"model": model, "images": name, "precision": precision}
                    rows.append(about | case | measure(folder, files, precision, place, options))
                    print(*list(rows[-1].items())[2:], flush=True)
                    if options.out:
                        write_rows(options.out, rows)


def build(model: str, folder: Path) -> Path:
    """The folder of a model: a saved or built-in one, or one of random weights."""
    if "," not in model:
        return scaseg.io.model_folder.find_model(model)
    backbone, head = model.split(",")
    torch.manual_seed(0)
    scaseg.create_model(backbone, "sca", head, classes=8).save_pretrained(folder)
    return folder


def enlarge(files: list[InputFile], folder: Path) -> list[InputFile]:
    """JPEGs of 1280 x 960, made of smaller photographs."""
    folder.mkdir()
    for number, file in enumerate(files):
        with Image.open(file.path) as image:
            large = image.convert("RGB").resize((1280, 960), Image.Resampling.BICUBIC)
        large.save(folder / f"{number:05}.jpg", quality=90)
    return [InputFile(path, PurePath(path.stem)) for path in sorted(folder.iterdir())]


def measure(
    model: Path, files: list[InputFile], precision: Any, place: Path, options: argparse.Namespace
) -> dict[str, Any]:
    began = time.perf_counter()
    settings = Settings(model, place, device=DEVICE, precision=precision, workers=options.workers)
    pipeline = Pipeline(settings)
    loaded = time.perf_counter() - began

    def ignore(*_: Any) -> None:
        return

    def whole(out: Path) -> None:
        pipeline.run(files, settings.outputs(out), count=len(files), on_bad=ignore)

    def decode() -> Iterator[Any]:
        return pipeline.read(files, len(files))

    first = timed(whole, place)
    arrays = dict(zip(files, (pixels.copy() for _, pixels in decode()), strict=True))
    stream = {"batch_size": pipeline.batch_size, "precision": precision}

    def on_device(_: Path = place) -> list[Any]:
        return list(predict.predict_stream(pipeline.network, arrays.items(), **stream))

    batches, results = seen_batches(pipeline, on_device)

    @torch.no_grad()
    def network(_: Path) -> None:
        with autocast(DEVICE, precision):
            for batch in batches:
                pipeline.network.coarse(*batch)
        if CUDA:
            torch.cuda.synchronize()

    def write(out: Path) -> None:
        processes = pipeline.processes(len(files))
        outputs = settings.outputs(out)

        def shared() -> Iterator[Any]:
            for file, found in results:
                outputs.prepare(file.name)
                labels = found.labels
                room = processes and processes.arena.array(labels.shape, labels.dtype)
                if room is not None:
                    room[:] = labels
                    found = replace(found, labels=room)
                yield file, replace(found, image=None)

        write_behind(shared(), outputs, processes, 2 * pipeline.batch_size, ignore)

    ways: dict[str, Callable[[Path], Any]] = {"network": network, "on the device": on_device}
    ways |= {"decoding": lambda _: deque(decode(), 0), "writing": write, "predict": whole}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for name, way in ways.items():
            best[name] = min(best[name], timed(way, place))
    found: dict[str, Any] = {"count": len(files), "batch": len(batches[0][0])}
    found |= {name: round(len(files) / seconds, 1) for name, seconds in best.items()}
    found["start"] = round(loaded + first - best["predict"], 2)
    return found | {"outside": round(1 - best["network"] / best["predict"], 3)}


def timed(way: Callable[[Path], Any], place: Path) -> float:
    """Seconds of something that may write into a folder, which is then removed."""
    with tempfile.TemporaryDirectory(dir=place) as out:
        began = time.perf_counter()
        way(Path(out))
        return time.perf_counter() - began


def seen_batches(pipeline: Pipeline, go: Callable[[], Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """What the network is given (images, and sizes where padded), and what becomes of it."""
    seen: list[tuple[Any, ...]] = []
    coarse = pipeline.network.coarse

    def record(*batch: Any) -> Any:
        seen.append(batch)
        return coarse(*batch)

    pipeline.network.coarse = record  # type: ignore[method-assign]
    results = go()
    pipeline.network.coarse = coarse  # type: ignore[method-assign]
    return seen, results


if __name__ == "__main__":
    main()
