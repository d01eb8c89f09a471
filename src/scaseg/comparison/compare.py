"""Contexts compared fairly: the same data, backbone, head, schedule, seeds and folds.

OUT/runs/VARIANT-seedN[-foldK]/   the run folders
OUT/logs/                         what jobs said that run, or failed
OUT/results.csv                   a row a finished job; a comparison that was cut off goes on
OUT/table.md, table.csv, compare.png
"""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from scaseg.comparison.jobs import Job, Variant, described, key_of, matrix, place_of, run_of
from scaseg.comparison.jobs import read_variant as read_variant
from scaseg.comparison.launch import Starter
from scaseg.comparison.maps import MEASURES, maps_table
from scaseg.comparison.queue import Queue
from scaseg.comparison.results import Results, epochs_done
from scaseg.comparison.statistics import Summary, summarize, values_of
from scaseg.comparison.tables import TABLE as TABLE
from scaseg.comparison.tables import markdown as markdown
from scaseg.comparison.tables import plain, write_tables
from scaseg.comparison.worker import judge
from scaseg.config.recipe import load_recipe, save_recipe
from scaseg.config.run import DataConfig, RunConfig
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.validation.require import Part, require_sound
from scaseg.io.lock import LOCK, folder_lock
from scaseg.io.table import Row
from scaseg.models.build import load_model
from scaseg.plots.figures import write_comparison
from scaseg.training.data import evaluation_split
from scaseg.training.run import train
from scaseg.training.run_folder import MODEL, RECIPE

PICTURE = "compare.png"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """What is known so far: a summary a variant, what failed and why, what is still to do."""

    summaries: list[Summary] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        contexts = [plain(summary) for summary in self.summaries]
        return {"contexts": contexts, "failed": self.failed, "remaining": self.remaining}


def compare(
    run: RunConfig,
    variants: Sequence[Variant],
    seeds: int,
    out: str | Path,
    *,
    split: str | None = None,
    jobs: int = 1,
    time_limit: float | None = None,
    keep: str = "models",
    say: Say | None = None,
) -> Comparison:
    """Train and evaluate every variant with every seed and fold; what is finished stays finished.

    jobs: trainings side by side, each in a process of its own. time_limit: seconds; nothing is
    started that would not end within, and what runs then is stopped, to go on the next time. keep:
    of each finished job its models, all or nothing.
    """
    started = time.monotonic()
    folder = Path(out)
    say = say or (lambda line: None)
    with folder_lock(folder), _sigterm_is_heard():
        _open(folder, run, write=False)
        wanted = matrix(run, variants, seeds)
        results = Results(folder)
        folds = dict.fromkeys([*(job.fold for job in wanted), *map(_fold_of, results.rows)])
        # what each is judged on, in words: what cannot be opened must not show after hours
        said = {fold: _open_test(_of_fold(run, fold).data, split) for fold in folds}
        _refuse_other_split(results, said)
        for job in wanted:
            results.adopt(job)  # a queue was killed before it could
        waiting = [job for job in wanted if job.key not in results]
        _try_out(run, waiting, results)
        _open(folder, run, write=True)
        _judge_again(results, run, split, said)
        for row in results.rows:
            results.tidy(key_of(row), keep)
        if waiting:
            at_once = min(jobs, len(waiting))
            say(f"{len(waiting)} of {len(wanted)} trainings to do, {at_once} at once")
        queue = _queue(results, run, split, jobs, keep, say, len(wanted))
        if time_limit is not None:
            queue.deadline = started + time_limit
        # what has begun comes first: less would be lost with its folder
        waiting.sort(key=lambda job: _begun(folder, job) == 0)
        outcome = queue.run(waiting)
        rows = results.of(wanted)
        names = [variant.name for variant in variants]
        summaries = summarize(rows, names) if rows else []
        if rows:
            write_tables(summaries, folder, maps_table(rows, names))
            draw(rows, summaries, folder / PICTURE)
    return Comparison(
        summaries,
        [said for _, said in outcome.failed],
        [str(job) for job in outcome.remaining],
    )


def draw(rows: Sequence[Row], summaries: Sequence[Summary], path: Path) -> None:
    """Draw the mIoU of all runs, with means, errors and paired differences."""
    means, differences = {}, {}
    for one in summaries:
        middle, error = one.mean["mIoU"], one.error["mIoU"] or 0.0
        means[one.name] = (middle, middle - error, middle + error)
        found = one.difference["mIoU"]
        if one is not summaries[0] and found is not None:
            low, high = (found.mean if end is None else end for end in (found.low, found.high))
            differences[one.name] = (found.mean, low, high)
    values = {one.name: values_of(rows, one.name, "mIoU") for one in summaries}
    write_comparison(values, path, means=means, differences=differences)


def _queue(
    results: Results,
    run: RunConfig,
    split: str | None,
    side_by_side: int,
    keep: str,
    say: Say,
    total: int,
) -> Queue:
    """A queue whose finished jobs become rows."""
    folder = results.folder
    starter = Starter(run, folder, split, side_by_side)

    def finish(job: Job) -> bool:
        if results.adopt(job) is None:
            return False
        results.tidy(job.key, keep)
        starter.forget_log(job)
        return True

    def hear(job: Job, seconds: float, queue: Queue) -> None:
        failed = next((said for one, said in queue.outcome.failed if one is job), None)
        if failed is not None:
            say(f"failed: {failed}")
            return
        (row,) = results.of([job])
        left = queue.seconds_left()
        more = "" if not left else f"; about {_clock(left)} left"
        done = total - len(queue.waiting) - len(queue.running) - len(queue.outcome.failed)
        say(f"{done} of {total}: {job}: mIoU {float(row['mIoU']):.1f}, {_clock(seconds)}{more}")

    return Queue(
        start=starter.start,
        finish=finish,
        complain=starter.complaint,
        estimate=lambda job: _usual_seconds(results.rows, job.variant.name, side_by_side),
        hear=hear,
        share_left=lambda job: 1 - _begun(folder, job) / run.training.epochs,
        side_by_side=side_by_side,
    )


def _begun(folder: Path, job: Job) -> int:
    """How many epochs of a job were done in an earlier queue."""
    return epochs_done(place_of(folder, job.key))


def _usual_seconds(rows: Sequence[Row], variant: str, side_by_side: int) -> float | None:
    """How long such jobs take: the mean of the nearest that are known."""
    for fits in (
        lambda row: row["variant"] == variant and str(row.get("side_by_side")) == str(side_by_side),
        lambda row: str(row.get("side_by_side")) == str(side_by_side),
        lambda row: True,
    ):
        known = [float(row["seconds"]) for row in rows if row.get("seconds") and fits(row)]
        if known:
            return statistics.fmean(known)
    return None


def _open_test(config: DataConfig, split: str | None) -> str:
    """Say what a fold is judged on; ValueError where one of its files is unsound."""
    dataset, said = evaluation_split(config, split)
    if isinstance(dataset, PairedDataset) and config.check == "all":
        require_sound([Part(said, dataset)], trained_on=False)
    return said


def _try_out(run: RunConfig, waiting: Sequence[Job], results: Results) -> None:
    """Take one batch through each new variant: options that do not fit show now, not in hours."""
    known = {key_of(row)[0] for row in results.rows}
    for job in waiting:
        if job.variant.name in known or place_of(results.folder, job.key).exists():
            continue
        known.add(job.variant.name)
        own = run_of(run, job)
        data, machine = replace(own.data, cache="none"), replace(own.machine, workers=0)
        own = replace(own, data=data, machine=machine)
        train(own, None, fast_dev_run=True, quiet=True)


def _refuse_other_split(results: Results, said: Mapping[int | None, str]) -> None:
    """Numbers of two splits do not mix, and without its model a run cannot be judged again."""
    for row in results.rows:
        key, wanted = key_of(row), said[_fold_of(row)]
        there = (place_of(results.folder, key) / MODEL).is_dir()
        if row.get("split") not in (None, "", wanted) and not there:
            raise ValueError(
                f"--split: {described(key)} was judged on {row['split']}, not {wanted}, and its "
                "model was not kept; give the same --split, or another --out"
            )


def _judge_again(
    results: Results, run: RunConfig, split: str | None, said: Mapping[int | None, str]
) -> None:
    """Bring finished runs up to date: judged on another split, or by an earlier version."""
    for row in results.rows:
        place = place_of(results.folder, key_of(row)) / MODEL
        current = row.get("split") == said[_fold_of(row)] and "entropy" in row
        if not current and place.is_dir():
            row |= judge(load_model(place), _of_fold(run, _fold_of(row)), split)
        for name in ("split", *MEASURES):
            row.setdefault(name, None)
    results.write()


def _fold_of(row: Row) -> int | None:
    return key_of(row)[2]


def _of_fold(run: RunConfig, fold: int | None) -> RunConfig:
    return replace(run, data=replace(run.data, fold=fold))


def _open(folder: Path, run: RunConfig, *, write: bool) -> None:
    """Make the folder, or go on in it if it holds the same comparison; write=False: only look."""
    recipe = folder / RECIPE
    if recipe.is_file():
        before = load_recipe(recipe)
        # the machine, where the data lie on it, and which of the folds are run, may change
        data = replace(before.data, root=run.data.root, fold=run.data.fold)
        if replace(before, machine=run.machine, data=data) != run:
            raise ValueError(
                f"--out: {folder} holds a comparison with other settings; give another folder"
            )
        return
    if any(path.name != LOCK for path in folder.iterdir()):
        raise ValueError(f"--out: {folder} holds something else; give another folder")
    if write:
        save_recipe(run, recipe)


@contextmanager
def _sigterm_is_heard() -> Iterator[None]:
    """Make SIGTERM an exit like any other, so that jobs are told to save; the code is 143."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _clock(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds.

    >>> _clock(3661.2), _clock(70)
    ('1:01:01', '1:10')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
