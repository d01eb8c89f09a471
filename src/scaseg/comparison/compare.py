"""Compare contexts fairly: the same data, backbone, head, schedule, seeds and folds.

OUT/runs/VARIANT-seedN[-foldK]/   the run folders
OUT/logs/                         logs of jobs that run, or failed
OUT/results.csv                   one row per finished job; an interrupted comparison goes on
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

from scaseg.comparison.jobs import (
    Job,
    Variant,
    describe_key,
    key_of,
    make_jobs,
    parse_variant,
    run_folder,
)
from scaseg.comparison.maps import MEASURES, maps_table
from scaseg.comparison.queue import Launcher, Queue
from scaseg.comparison.results import Results, epochs_done
from scaseg.comparison.statistics import Summary, summarize, values_of
from scaseg.comparison.tables import to_row, write_tables
from scaseg.comparison.worker import evaluate_model
from scaseg.config.recipe import load_recipe, save_recipe
from scaseg.config.run import DataConfig, RunConfig
from scaseg.data.datasets.paired import PairedDataset
from scaseg.data.splits import evaluation_split
from scaseg.data.validation.check import Part, require_valid
from scaseg.errors import UserError
from scaseg.io.lock import LOCK, folder_lock
from scaseg.io.table import Row, read_rows
from scaseg.models.build import load_model
from scaseg.plots.figures import comparison_figure, save_figure
from scaseg.progress import Progress
from scaseg.training.run import train
from scaseg.training.run_folder import METRICS, MODEL, RECIPE

PICTURE = "compare.png"
Log = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """The results so far: a summary per variant, errors of failed jobs, jobs still to do."""

    summaries: list[Summary] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        contexts = [to_row(summary) for summary in self.summaries]
        return {"contexts": contexts, "failed": self.failed, "remaining": self.remaining}


def compare(
    run: RunConfig | str | Path | None,
    contexts: Sequence[str | Variant] = ("none", "average", "sca", "dot"),
    *,
    out: str | Path,
    seeds: int = 3,
    split: str | None = None,
    jobs: int = 1,
    time_limit: float | None = None,
    keep: str = "models",
    log: Log = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Train and evaluate every context with every seed and fold; finished jobs stay finished.

    run: a RunConfig, or a recipe's path or name. contexts: names, or NAME:option=value; the first
    is what the others are compared with. jobs: trainings in parallel, each in a process of its own.
    time_limit: seconds; nothing is started that would not end within, and what runs then is
    stopped, to be resumed by the next call. keep: "models", "all" or "nothing" of a finished job.
    progress: called with the finished epochs and their total.
    """
    started = time.monotonic()
    folder = Path(out)
    if not isinstance(run, RunConfig):
        run = load_recipe(run)
    variants = [parse_variant(one) if isinstance(one, str) else one for one in contexts]
    if len({variant.name for variant in variants}) < len(variants):
        names = " ".join(variant.name for variant in variants)
        raise UserError("--contexts", names, "give each once")
    if run.machine.devices * run.machine.nodes > 1:
        remedy = "use 1, and --jobs for more"
        raise UserError("--devices", "a comparison runs on one device", remedy)
    with folder_lock(folder), _exit_at_sigterm():
        _check_folder(folder, run)
        wanted = make_jobs(run, variants, seeds)
        results = Results(folder)
        folds = dict.fromkeys([*(job.fold for job in wanted), *map(_fold_of, results.rows)])
        # what each is evaluated on: what cannot be opened must not show after hours
        splits = {fold: _check_split(_with_fold(run, fold).data, split) for fold in folds}
        _refuse_other_split(results, splits)
        for job in wanted:
            results.adopt(job)  # a queue was killed before it could
        waiting = [job for job in wanted if job.key not in results]
        _try_out(run, waiting, results)
        if not (folder / RECIPE).is_file():
            save_recipe(run, folder / RECIPE)
        _evaluate_again(results, run, split, splits)
        for row in results.rows:
            results.clean_up(key_of(row), keep)
        if waiting:
            at_once = min(jobs, len(waiting))
            log(f"{len(waiting)} of {len(wanted)} trainings to do, {at_once} at once")
        queue = _make_queue(results, run, split, jobs, keep, log, wanted, progress)
        if time_limit is not None:
            queue.deadline = started + time_limit
        # what has begun comes first: less would be lost with its folder
        waiting.sort(key=lambda job: epochs_done(run_folder(folder, job.key)) == 0)
        outcome = queue.run(waiting)
        rows = results.of(wanted)
        names_in_order = [variant.name for variant in variants]
        summaries = summarize(rows, names_in_order) if rows else []
        if rows:
            write_tables(summaries, folder, maps_table(rows, names_in_order))
            draw(rows, summaries, folder / PICTURE)
    return Comparison(
        summaries,
        [error for _, error in outcome.failed],
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
    save_figure(comparison_figure(values, means=means, differences=differences), path)


def _make_queue(
    results: Results,
    run: RunConfig,
    split: str | None,
    parallel: int,
    keep: str,
    log: Log,
    wanted: Sequence[Job],
    progress: Progress,
) -> Queue:
    """A queue whose finished jobs become rows."""
    launcher = Launcher(run, results.folder, split, parallel)
    epochs = run.training.epochs

    def finish(job: Job) -> bool:
        if not results.adopt(job):
            return False
        results.clean_up(job.key, keep)
        launcher.remove_log(job)
        return True

    def on_end(job: Job, seconds: float, queue: Queue) -> None:
        error = next((error for one, error in queue.outcome.failed if one is job), None)
        if error is not None:
            log(f"failed: {error}")
            return
        (row,) = results.of([job])
        left = queue.seconds_left()
        more = f"; about {_clock(left)} left" if left else ""
        open_jobs = len(queue.waiting) + len(queue.running) + len(queue.outcome.failed)
        done = f"{len(wanted) - open_jobs} of {len(wanted)}"
        log(f"{done}: {job}: mIoU {float(row['mIoU']):.1f}, {_clock(seconds)}{more}")

    def on_poll() -> None:
        done = epochs * len(results.of(wanted))
        for one in queue.running:
            done += len(read_rows(run_folder(results.folder, one.job.key) / METRICS))
        progress(done, epochs * len(wanted))

    def share_left(job: Job) -> float:
        return 1 - epochs_done(run_folder(results.folder, job.key)) / epochs

    queue = Queue(
        start=launcher.start,
        finish=finish,
        error_of=launcher.error_of,
        on_end=on_end,
        on_poll=on_poll,
        estimate=lambda job: _usual_seconds(results.rows, job.variant.name, parallel),
        share_left=share_left,
        parallel=parallel,
    )
    return queue


def _usual_seconds(rows: Sequence[Row], variant: str, parallel: int) -> float | None:
    """The mean time of the most similar jobs that are known."""
    timed = [row for row in rows if row.get("seconds")]
    beside = [row for row in timed if str(row.get("side_by_side")) == str(parallel)]
    own = [row for row in beside if row["variant"] == variant]
    known = own or beside or timed
    return statistics.fmean(float(row["seconds"]) for row in known) if known else None


def _check_split(config: DataConfig, split: str | None) -> str:
    """Describe what a fold is evaluated on; UserError where one of its files is invalid."""
    dataset, description = evaluation_split(config, split)
    if isinstance(dataset, PairedDataset) and config.check == "all":
        require_valid([Part(description, dataset)], training=False)
    return description


def _try_out(run: RunConfig, waiting: Sequence[Job], results: Results) -> None:
    """Train one batch of each new variant: options that do not fit show now, not in hours."""
    known = {key_of(row)[0] for row in results.rows}
    for job in waiting:
        if job.variant.name in known or run_folder(results.folder, job.key).exists():
            continue
        known.add(job.variant.name)
        own = job.configure(run)
        data, machine = replace(own.data, cache="none"), replace(own.machine, workers=0)
        own = replace(own, data=data, machine=machine)
        train(own, None, fast_dev_run=True, quiet=True)


def _refuse_other_split(results: Results, splits: Mapping[int | None, str]) -> None:
    """Numbers of two splits do not mix, and a run without its model cannot be evaluated again."""
    for row in results.rows:
        key, wanted = key_of(row), splits[_fold_of(row)]
        there = (run_folder(results.folder, key) / MODEL).is_dir()
        if row.get("split") not in (None, "", wanted) and not there:
            problem = f"{describe_key(key)} was evaluated on {row['split']}, not {wanted}"
            remedy = "its model was not kept; give the same --split, or another --out"
            raise UserError("--split", problem, remedy)


def _evaluate_again(
    results: Results, run: RunConfig, split: str | None, splits: Mapping[int | None, str]
) -> None:
    """Bring finished runs up to date: evaluated on another split, or by an earlier version."""
    for row in results.rows:
        model = run_folder(results.folder, key_of(row)) / MODEL
        current = row.get("split") == splits[_fold_of(row)] and "entropy" in row
        if not current and model.is_dir():
            row |= evaluate_model(load_model(model), _with_fold(run, _fold_of(row)), split)
        for name in ("split", *MEASURES):
            row.setdefault(name, None)
    results.write()


def _fold_of(row: Row) -> int | None:
    return key_of(row)[2]


def _with_fold(run: RunConfig, fold: int | None) -> RunConfig:
    return replace(run, data=replace(run.data, fold=fold))


def _check_folder(folder: Path, run: RunConfig) -> None:
    """Refuse a folder that holds another comparison, or something else."""
    if (folder / RECIPE).is_file():
        before = load_recipe(folder / RECIPE)
        # the machine, where the data are on it, and which of the folds are run, may change
        data = replace(before.data, root=run.data.root, fold=run.data.fold)
        if replace(before, machine=run.machine, data=data) != run:
            problem = f"{folder} holds a comparison with other settings"
            raise UserError("--out", problem, "give another folder")
    elif any(path.name != LOCK for path in folder.iterdir()):
        raise UserError("--out", f"{folder} holds something else", "give another folder")


@contextmanager
def _exit_at_sigterm() -> Iterator[None]:
    """Make SIGTERM an exit like any other, so that jobs are asked to save; the code is 143."""
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
