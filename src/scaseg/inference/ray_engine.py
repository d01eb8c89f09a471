"""Predict on all machines of a Ray cluster: blocks of files through a pool of pipelines.

What travels are names: workers read images and write results themselves, so that photographs never
pass through Ray's memory. Ray Data lets the pool grow and shrink with the cluster, holds blocks
back until a worker is free, and runs those of a lost worker again elsewhere. A block that is run
twice writes the same files, each of which appears whole: one result for each image, whatever is
killed. (Ray counts blocks, not images: of one that was done in part, all is done again.)
"""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from scaseg.errors import UserError, WorkError, one_line
from scaseg.inference.outputs import fingerprint
from scaseg.inference.parts import Parts
from scaseg.inference.pipeline import Pipeline, Settings
from scaseg.inference.predict import usual_batch_size
from scaseg.inference.sources import InputFile, batched
from scaseg.io.ownership import RECORD
from scaseg.io.ray_cluster import connected
from scaseg.io.remote import is_remote

BATCHES = 16  # of a block: enough to keep a GPU busy, few enough to do again
WAVE = 20_000  # blocks that Ray is given at once: their names are in memory
Errors = dict[int, UserError]  # by the place of the image in its block


def predict_on_ray(
    settings: Settings,
    files: Iterable[InputFile],
    parts: Parts | None,
    per_part: int,
    on_begin: Callable[[], None],
) -> Iterator[tuple[list[InputFile], Errors]]:
    """Predict files on the cluster; yield each block when it is done, with its bad images.

    on_begin writes the record of the results, by which workers know the folder.
    WorkError: a worker failed for another reason than being lost.
    """
    with connected() as ray:
        import_module("ray.data")  # part of ray from here on
        ray.data.DataContext.get_current().enable_progress_bars = False  # the command has its own
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        resources = ray.cluster_resources()
        has_gpu = settings.device in ("auto", "cuda") and resources.get("GPU", 0) >= 1
        if settings.device == "cuda" and not has_gpu:
            raise UserError("--device", "cuda is not available in the cluster", "use cpu or auto")
        on_begin()
        settings = replace(settings, device="cuda" if has_gpu else "cpu")
        needs = {"num_cpus": 1, "num_gpus": 1 if has_gpu else 0}
        there = max(1, int(resources.get("GPU" if has_gpu else "CPU", 1)))
        size = (
            per_part if parts else BATCHES * usual_batch_size(settings.batch_size, settings.device)
        )
        numbered = enumerate(batched(files, size))
        while wave := dict(islice(numbered, WAVE)):
            rows = [
                {
                    "number": number,
                    "part": parts.name(number) if parts else "",
                    "files": _dump(block),
                }
                for number, block in wave.items()
            ]
            pool = ray.data.ActorPoolStrategy(min_size=1, initial_size=min(there, len(rows)))
            done = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
                _Worker, fn_constructor_args=(settings, os.getcwd()), compute=pool, **needs
            )
            for row in done.iter_rows():
                if row["fault"]:
                    raise WorkError(*json.loads(row["fault"]))
                found = json.loads(row["errors"])
                # each block once: what is counted twice would hide one that is lost
                block = wave.pop(row["number"])
                yield block, {int(place): UserError(*error) for place, error in found.items()}
            if wave:
                raise WorkError("--engine ray", f"{len(wave)} blocks were lost", "--skip-existing")


class _Worker:
    """A pipeline in a process of Ray's, somewhere."""

    def __init__(self, settings: Settings, folder: str) -> None:
        with suppress(
            OSError
        ):  # relative names are the user's; another machine may lack the folder
            os.chdir(folder)
        self.settings = settings
        self.pipeline: Pipeline | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Predict a block. What fails for good is told, not raised: Ray would try it again."""
        errors: dict[int, tuple[Any, ...]] = {}
        fault = ""
        try:
            self.pipeline = self.pipeline or self._open()
            files = _parse(row["files"])
            places = {file: place for place, file in enumerate(files)}

            def on_bad(file: InputFile, error: UserError) -> None:
                if file.row is None and not is_remote(os.fspath(file.path)):
                    self._require(Path(file.path))
                errors[places[file]] = error.args

            if row["part"]:
                self.pipeline.run_part(files, row["part"], on_bad=on_bad)
            else:
                outputs = self.settings.outputs()
                self.pipeline.run(files, outputs, count=len(files), on_bad=on_bad)
        except (UserError, WorkError, OSError) as error:
            known = isinstance(error, (UserError, WorkError))
            fault = json.dumps(error.args if known else (platform.node(), one_line(str(error))))
        return {"number": row["number"], "errors": json.dumps(errors), "fault": fault}

    def _open(self) -> Pipeline:
        """Load the network; WorkError where this machine sees another model or another folder."""
        record = self.settings.out / RECORD
        self._require(record)
        self._require(self.settings.model)
        if json.loads(record.read_text(encoding="utf-8"))["model"] != fingerprint(
            self.settings.model
        ):
            place = f"{self.settings.model} on {platform.node()}"
            raise WorkError(place, "is another model", "give one that all machines share")
        return Pipeline(self.settings)

    def _require(self, path: Path) -> None:
        if not path.exists():
            problem = f"is not seen by {platform.node()}"
            raise WorkError(path, problem, "give folders that all machines share")


def _dump(files: Iterable[InputFile]) -> str:
    return json.dumps([[os.fspath(path), os.fspath(name), row] for path, name, row in files])


def _parse(text: str) -> list[InputFile]:
    return [
        InputFile(path if is_remote(path) else Path(path), PurePath(name), row)
        for path, name, row in json.loads(text)
    ]
