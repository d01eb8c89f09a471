"""Compare contexts fairly: the same data, backbone, head, schedule, seeds and folds.

OUT/runs/VARIANT-seedN[-foldK]/   the run folders
OUT/logs/                         logs of jobs that run, or failed
OUT/results.csv                   one row per finished job; an interrupted comparison goes on
OUT/table.md, table.csv, compare.png
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scaseg.comparison.claims import CLAIMS, Claims
from scaseg.comparison.jobs import Job, make_jobs, parse_variant
from scaseg.comparison.judged import Judged, judged
from scaseg.comparison.process import Workers
from scaseg.comparison.queue import Queue
from scaseg.comparison.ray_jobs import place_on
from scaseg.comparison.results import RESULTS, Results
from scaseg.comparison.statistics import Summary, summarize, values_of
from scaseg.comparison.tables import evaluated_on, to_row, write_tables
from scaseg.comparison.worker import evaluate_model
from scaseg.config.effect import require_effect
from scaseg.config.keys import COMPARED, require_read
from scaseg.config.recipe import USUAL, USUAL_NOTE, load_recipe, save_recipe
from scaseg.config.run import RunConfig
from scaseg.data.splits import require_held_out
from scaseg.errors import UserError, located, some_of
from scaseg.io.atomic import LEFTOVER
from scaseg.io.lock import LOCK, folder_lock
from scaseg.io.model_folder import MODEL, RECIPE
from scaseg.io.ray_cluster import connected
from scaseg.models.build import load_model
from scaseg.plots.figures import comparison_figure, save_figure
from scaseg.progress import Progress
from scaseg.training.run import train
from scaseg.training.trainer import choose_accelerator

PICTURE = "compare.png"
ENGINES = ("local", "ray")
KEEP = ("models", "all", "nothing")


@dataclass(frozen=True)
class Comparison:
    """The results so far: a summary per variant, errors of failed jobs, jobs still to do.

    problem: why what remains was not started, where there was time left.
    """

    summaries: list[Summary]
    failed: list[str]
    remaining: list[str]
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        contexts = [to_row(summary) for summary in self.summaries]
        return {"contexts": contexts, "failed": self.failed, "remaining": self.remaining}


def compare(
    run: RunConfig | str | Path | None,
    contexts: Sequence[str] = ("none", "average", "sca", "dot"),
    *,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    seeds: int = 3,
    split: str | None = None,
    jobs: int | None = None,
    time_limit: float | None = None,
    keep: str = "models",
    shared: bool = False,
    engine: str = "local",
    gpus: float | None = None,
    log: Callable[[str], None] = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Train and evaluate every context with every seed and fold; finished jobs stay finished.

    run: a RunConfig, or a recipe's path or name (None: own_folder) with overrides such as
    {"data.root": "photos"}.
    contexts: names, or NAME:option=value; the first is what the others are compared with. jobs:
    trainings in parallel, each in a process of its own (None: 1, or what the cluster has room for);
    on a GPU, processes take one after the other.
    time_limit: seconds; nothing is started that would not end within, and what runs then is
    stopped, to be resumed by the next call. How long a job takes is known from finished ones of
    the same variant, or else of others; where more of them ran side by side, it is the least that
    it can be; of a job that was stopped, the epochs that are left count. keep: "models", "all" or
    "nothing" of a finished job.
    shared: other machines run the same comparison in the same folder, each job by one of them.
    engine: "ray" for jobs as tasks of a Ray cluster, with so many `gpus` each, perhaps 0.25.
    progress: called with the finished epochs and their total.
    """
    started = time.monotonic()
    folder = Path(out)
    notes = [USUAL_NOTE] if run is None else []
    if not isinstance(run, RunConfig):
        run = load_recipe(USUAL if run is None else run, overrides)
        require_read(overrides or (), COMPARED)
        require_effect(run, overrides or (), [parse_variant(one).context for one in contexts])
        require_held_out(run.data, overrides or ())
    elif overrides:
        raise UserError("overrides", "given with a RunConfig", "use dataclasses.replace instead")
    if run.model.start_from is not None:
        problem = f"{run.model.start_from}, but a comparison trains networks of its own"
        raise UserError("--model.start_from", problem, "use --backbone-weights")
    if engine not in ENGINES:
        raise UserError.choice("--engine", engine, ENGINES)
    if engine == "ray" and shared:
        raise UserError("--shared", "came with --engine ray", "give one of the two")
    if engine != "ray" and gpus is not None:
        raise UserError("--gpus", "came without --engine ray", "leave it out, or give both")
    if gpus is not None and not 0 < gpus <= 1:
        raise UserError("--gpus", f"{gpus:g}", "give a share of a GPU, such as 0.25, or 1")
    if keep not in KEEP:
        raise UserError.choice("--keep", keep, KEEP)
    wanted = make_jobs(run, contexts, seeds)
    if run.machine.devices * run.machine.nodes > 1:
        remedy = "use 1, and --jobs for more"
        raise UserError("--devices", "a comparison runs on one device", remedy)
    with ExitStack() as stack:
        stack.enter_context(folder_lock(folder, shared=shared))
        _check_folder(folder, run)
        results = Results(folder, shared=shared)
        folds = _judge(run, split, [*wanted, *results.rows])
        for job in wanted:
            results.adopt(job)  # a queue was killed before it could
        stale = _find_stale(results, folds)
        waiting = [job for job in wanted if job not in results.rows]
        _try_out(run, waiting, results, engine == "local")
        deadline = None if time_limit is None else started + time_limit
        queue = Queue(run, results, split, jobs or 1, keep, deadline, log, progress)
        if engine == "ray" and waiting:
            place_on(stack.enter_context(connected()), queue, jobs=jobs, gpus=gpus)
        elif choose_accelerator(run.machine) == "cuda":
            # on a CPU, where memory is that of the process, each training has its own
            queue.launch = stack.enter_context(closing(Workers())).start
        if not (folder / RECIPE).is_file():
            save_recipe(run, folder / RECIPE, exclusive=True)
            _check_folder(folder, run)  # another machine may have been faster, with other settings
        for job in stale:
            model = load_model(job.run_folder(folder) / MODEL)
            results.rows[job] |= evaluate_model(model, job.configure(run), split)
            results.write()
        for job in results.rows:
            results.clean_up(job, keep)
        if waiting:
            at_once = min(queue.parallel, len(waiting))
            for note in notes:
                log(note)
            log(f"{len(waiting)} of {len(wanted)} trainings to do, {at_once} at once")
            if images := evaluated_on([one._asdict() for one in folds.values()]):
                log(f"evaluated on {images}")
        if shared:
            queue.claims = Claims(folder)
        queue.work(wanted)
        results.refresh()
        rows = results.of(wanted)
        summaries = summarize(rows, contexts)
        if rows:
            write_tables(summaries, rows, folder)
            figure = comparison_figure(
                {one.name: values_of(rows, one.name, "mIoU") for one in summaries},
                means={one.name: one.bar for one in summaries},
                differences={
                    one.name: found.bar
                    for one in summaries[1:]
                    if (found := one.difference["mIoU"]) is not None
                },
            )
            save_figure(figure, folder / PICTURE)
    # what failed here, or waited, may have been done by another machine
    failed = [error for job, error in queue.failed.items() if job not in results.rows]
    remaining = [str(job) for job in queue.waiting if job not in results.rows]
    return Comparison(summaries, failed, remaining, queue.problem)


def _check_folder(folder: Path, run: RunConfig) -> None:
    """Refuse a folder that holds another comparison, or something else."""
    names = {path.name for path in folder.iterdir()}
    if RECIPE not in names or names.isdisjoint({"runs", RESULTS}):  # a recipe alone: just begun
        for name in sorted(names - {RECIPE, LOCK, CLAIMS}):
            if not name.startswith(LEFTOVER):
                problem = f"{folder} holds {name}, and no comparison"
                raise UserError("--out", problem, "give another folder")
    if (folder / RECIPE).is_file():
        before = load_recipe(folder / RECIPE)
        # the machine, where the data are on it, and which of the folds are run, may change
        data = replace(before.data, root=run.data.root, fold=run.data.fold)
        there, here = asdict(replace(before, machine=run.machine, data=data)), asdict(run)
        other = [
            f"{part}.{key} is {value}"
            for part, settings in there.items()
            for key, value in settings.items()
            if value != here[part][key]
        ]
        if other:
            problem = f"{folder} holds a comparison with other settings"
            raise UserError("--out", problem, "give another folder", some_of(other))


def _judge(run: RunConfig, split: str | None, jobs: Iterable[Job]) -> dict[int | None, Judged]:
    """What each fold is evaluated on; what cannot be opened shows now."""
    folds = dict.fromkeys(job.fold for job in jobs)
    return {fold: judged(replace(run, data=replace(run.data, fold=fold)), split) for fold in folds}


def _find_stale(results: Results, folds: Mapping[int | None, Judged]) -> list[Job]:
    """The jobs that were evaluated on another split, or by an earlier version, to do it again.

    Numbers of two splits do not mix: UserError where the model that it takes was not kept, and
    where the data are no longer those on which it was trained.
    """
    stale = []
    for job, row in results.rows.items():
        now, found = folds[job.fold], row.get("split")
        if problem := now.problem(job, row):
            raise UserError("--data", problem, "restore the data, or give another --out")
        wanted = now.split
        if (job.run_folder(results.folder) / MODEL).is_dir():
            if found != wanted or "entropy" not in row:
                stale.append(job)
        elif found not in (None, "", wanted):
            problem = f"{job} was evaluated on {found}, not {wanted}"
            remedy = "its model was not kept; give the same --split, or another --out"
            raise UserError("--split", problem, remedy)
    return stale


def _try_out(run: RunConfig, waiting: Sequence[Job], results: Results, here: bool) -> None:
    """Train one batch of each new variant: options that do not fit show now, not in hours.

    here=False: the jobs will run on other machines, which may have what this one has not.
    """
    tried = {job.variant for job in results.rows}
    for job in waiting:
        if job.variant in tried or job.run_folder(results.folder).exists():
            continue
        tried.add(job.variant)
        own = job.configure(run)
        data, machine = replace(own.data, cache="none"), replace(own.machine, workers=0)
        if not here:
            machine = replace(machine, device="cpu", precision="32")
        with located(job.variant):
            train(replace(own, data=data, machine=machine), fast_dev_run=True, quiet=True)
