"""One training run, from its description to a folder with a model in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import EarlyStopping

from scaseg.config.recipe import save_recipe
from scaseg.config.run import RunConfig
from scaseg.data.loading import TrainingDataset
from scaseg.data.transforms import Transform
from scaseg.io.atomic import remove_leftovers
from scaseg.io.lock import folder_lock
from scaseg.io.table import Row, read_rows
from scaseg.models.build import load_model
from scaseg.models.checkpoint import CONFIG, read_weights, save_pretrained
from scaseg.models.segmenter import Segmenter
from scaseg.plots.figures import write_curve
from scaseg.training.build import build_loggers, check_training
from scaseg.training.callbacks import EMA, MetricsTable
from scaseg.training.checkpoint_io import StateFiles, has_state
from scaseg.training.checkpoints import KeepBest, KeepLast
from scaseg.training.data import RunData, class_weights, open_data
from scaseg.training.module import SegmentationModule
from scaseg.training.network import build_network, calibrate_head, check_network, has_frozen_norms
from scaseg.training.progress import ProgressDisplay
from scaseg.training.run_folder import (
    BEST,
    CURVE,
    LAST,
    METRICS,
    MODEL,
    PER_CLASS,
    PIXELS,
    RECIPE,
    check_run_folder,
    open_run_folder,
    record_environment,
    write_json,
)
from scaseg.training.trainer import (
    WorkError,
    build_trainer,
    cached,
    check_device,
    evaluation_loader,
    is_first_process,
    one_line_faults,
    quiet_lightning,
    training_examples,
    training_loader,
)

Say = Callable[[str], None]
COLUMNS = ("epoch", "loss", "PPA", "CAA", "mIoU", "seconds", "images_per_second")  # at least


@dataclass(frozen=True)
class Result:
    """What a run came to: the model, a row of metrics an epoch, and which epoch was best."""

    model: Segmenter
    rows: list[Row]
    best_epoch: int | None  # None: there was no validation
    folder: Path | None


def train(
    run: RunConfig,
    out: str | Path | None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    fast_dev_run: bool = False,
    quiet: bool = False,
    say: Say | None = None,
    transforms: Sequence[Transform] | None = None,
) -> Result:
    """Train as a run describes, into the folder `out`; None: nothing is written.

    resume continues the run that `out` holds. fast_dev_run takes one batch through training and
    validation and writes nothing. transforms take the place of the run's augmentation
    (scaseg.data.transforms, with Custom for others' callables). ValueError: bad input, found before
    any epoch starts; WorkError: a fault during work.
    """
    say = say if say is not None and is_first_process() else _say_nothing
    folder = None if out is None or fast_dev_run else Path(out)
    if resume and (folder is None or not (folder / RECIPE).is_file()):
        raise ValueError(f"--resume: {folder} holds no run; start it without --resume")
    if folder is None or not is_first_process():
        lock: AbstractContextManager[None] = nullcontext()
    else:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--out: {folder} is a file; give a folder")
        lock = folder_lock(folder)
    with lock:
        if folder is not None and not resume and is_first_process():
            check_run_folder(folder, overwrite=overwrite)  # before anything is made or read
        return _train(
            run,
            folder,
            resume=resume,
            overwrite=overwrite,
            fast_dev_run=fast_dev_run,
            quiet=quiet,
            say=say,
            transforms=transforms,
        )


def _train(
    run: RunConfig,
    folder: Path | None,
    *,
    resume: bool,
    overwrite: bool,
    fast_dev_run: bool,
    quiet: bool,
    say: Say,
    transforms: Sequence[Transform] | None,
) -> Result:
    check_training(run.training)
    device = check_device(run.machine)
    goes_on = resume and folder is not None and has_state(folder / LAST)
    check_network(run, is_fresh=not goes_on)
    if folder is not None and resume and (folder / MODEL / CONFIG).is_file():
        say(f"{folder}: this run is finished")
        return _finished(folder)
    if folder is not None and resume:
        read_rows(folder / METRICS, columns=COLUMNS)  # ValueError where they are not ours
        read_rows(folder / PER_CLASS, columns=("epoch", "class", "accuracy", "IoU"))
    if resume and not goes_on:
        say(f"{folder}: nothing was saved yet; from the start")
    known = folder if resume or not is_first_process() else None
    data = open_data(run, known, quiet=quiet or not is_first_process())
    if data.train.root is not None:  # the run may be continued from another folder
        run = replace(run, data=replace(run.data, root=str(data.train.root.absolute())))
    say(f"{len(data.train)} training images, {len(data.classes)} classes; {data.validation}")
    model, fresh_head = build_network(run, data, say, is_fresh=not goes_on)
    if run.training.calibrate and fresh_head:
        calibrate_head(model, training_examples(run, data.train, model.config, transforms), device)
    weights = class_weights(run.training, data.pixels)
    task = SegmentationModule(
        model, run.training, class_weights=weights, frozen_norms=has_frozen_norms(run)
    )
    states = StateFiles()
    checkpoint = folder / LAST if goes_on and folder is not None else None
    if checkpoint is not None:  # before anything is written
        for line in states.read(checkpoint, task.state_dict()):
            say(line)
    loggers = build_loggers(run.training.loggers, folder) if folder is not None else []
    if folder is not None and is_first_process():
        _make_cache_folder(run)
        if not resume:
            open_run_folder(folder, overwrite=overwrite)
            save_recipe(run, folder / RECIPE)
            if data.pixels is not None:
                pixels = {"classes": data.classes, "pixels": data.pixels, "weights": weights}
                write_json(folder / PIXELS, pixels)
        for place in (folder, (folder / LAST).parent):
            remove_leftovers(place)
        record_environment(folder)
    task.say = say
    table = MetricsTable(folder)
    best, callbacks = _callbacks(run, folder, table, data, states, quiet=quiet)
    with quiet_lightning():
        trainer = build_trainer(
            run.machine,
            callbacks=callbacks,
            logger=loggers or False,
            states=states,
            **_options(run, fast_dev_run=fast_dev_run),
        )
        examples = training_examples(run, cached(data.train, run, folder), model.config, transforms)
        _fit(trainer, task, run, examples, data, folder, checkpoint)
        for one in callbacks:
            if isinstance(one, EMA):
                one.take_over(task)
    if trainer.should_stop and len(table.rows) < run.training.epochs and not fast_dev_run:
        say(f"stopped early: no better mIoU in {run.training.early_stop} validations")
    if folder is not None and trainer.is_global_zero:
        try:
            _finish(task.model, run, folder, best, table.rows)
        except OSError as fault:
            raise WorkError(f"writing {folder / MODEL}: {fault}") from fault
    return Result(task.model.eval(), table.rows, best.epoch if best else None, folder)


def _fit(
    trainer: Trainer,
    task: SegmentationModule,
    run: RunConfig,
    examples: TrainingDataset,
    data: RunData,
    folder: Path | None,
    checkpoint: Path | None,
) -> None:
    train_images = training_loader(run, examples, trainer)
    val_images = None
    if data.val is not None:
        val_images = evaluation_loader(cached(data.val, run, folder), run.machine, trainer)
    assert trainer.max_epochs is not None
    batches = -(-len(train_images) // trainer.accumulate_grad_batches)
    task.steps = max(1, trainer.max_epochs * batches)
    task.train()  # Lightning leaves the modes as they are, and norms may be frozen
    with one_line_faults(
        trainer, lambda: f"epoch {trainer.current_epoch + 1}, step {trainer.global_step + 1}"
    ):
        trainer.fit(task, train_images, val_images, ckpt_path=checkpoint, weights_only=True)


def _options(run: RunConfig, *, fast_dev_run: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_epochs": run.training.epochs,
        "accumulate_grad_batches": run.training.accumulate,
        "gradient_clip_val": run.training.gradient_clip,
        "check_val_every_n_epoch": run.training.validate_every,
        "log_every_n_steps": 10,
        # all batches of one size: let cuDNN look for the fastest algorithm once
        "benchmark": run.augment.crop is not None or run.augment.fit is not None,
    }
    if fast_dev_run:
        options.update(max_epochs=1, limit_train_batches=1, limit_val_batches=1)
    return options


def _callbacks(
    run: RunConfig,
    folder: Path | None,
    table: MetricsTable,
    data: RunData,
    states: StateFiles,
    *,
    quiet: bool,
) -> tuple[KeepBest | None, list[Callback]]:
    """The order matters: the row of an epoch is written before it is shown and saved."""
    callbacks: list[Callback] = [table]
    mean = None
    if run.training.ema is not None:
        mean = EMA(decay=run.training.ema)
        callbacks.append(mean)
    if not quiet:
        callbacks.append(ProgressDisplay(table))
    best = None
    if data.val is not None:
        if folder is not None:
            best = KeepBest(folder, mean)
            callbacks.append(best)
        if run.training.early_stop is not None:
            callbacks.append(
                EarlyStopping(
                    "val/mIoU",
                    mode="max",
                    patience=run.training.early_stop,
                    check_on_train_epoch_end=False,  # before the state is saved, which must know
                )
            )
    if folder is not None:
        every, minutes = run.training.checkpoint_every, run.training.checkpoint_minutes
        callbacks.append(KeepLast(folder, states, every=every, minutes=minutes))
    return best, callbacks


def _make_cache_folder(run: RunConfig) -> None:
    """Refuse a place where no cache can be before the run folder has anything in it."""
    if run.data.cache == "disk" and run.data.cache_dir is not None:
        try:
            Path(run.data.cache_dir).mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise ValueError(
                f"data.cache_dir: {run.data.cache_dir} cannot be written ({fault.strerror}); give "
                "another folder"
            ) from fault


def _finished(folder: Path) -> Result:
    """What a run that is over came to, from its folder."""
    model = load_model(folder / MODEL)
    rows = read_rows(folder / METRICS, columns=COLUMNS)
    record = model.config.training.get("validation")
    best = record.get("epoch") if isinstance(record, dict) else None
    validated = any(row.get("mIoU") for row in rows)
    return Result(model, rows, int(best) if validated and best is not None else None, folder)


def _finish(
    model: Segmenter, run: RunConfig, folder: Path, best: KeepBest | None, rows: list[Row]
) -> None:
    """Write the final model: the best by validation, or the last where there was none."""
    chosen: Row = rows[-1] if rows else {}
    if best is not None and best.epoch and (folder / BEST).is_dir():
        read_weights(model, folder / BEST)
        chosen = next((row for row in rows if int(row["epoch"]) == best.epoch), chosen)
    record = {
        "recipe": asdict(run),
        "validation": {name: chosen.get(name) for name in ("epoch", "PPA", "CAA", "mIoU")},
    }
    model.config = replace(model.config, training=record)
    save_pretrained(model, folder / MODEL)
    if rows:
        write_curve(rows, folder / CURVE)


def _say_nothing(line: str) -> None:
    pass
