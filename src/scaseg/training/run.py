"""One training run, from a recipe to a folder with a model in it: scaseg.train."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback
from pytorch_lightning.callbacks import EarlyStopping

from scaseg.config.effect import require_effect
from scaseg.config.recipe import USUAL, USUAL_NOTE, load_recipe, save_recipe
from scaseg.config.run import RunConfig
from scaseg.data.augmentations import Mixture
from scaseg.data.custom import Custom
from scaseg.data.datasets.own import open_own
from scaseg.data.loading import Samples, TrainingDataset
from scaseg.data.splits import require_held_out
from scaseg.data.transforms import Transform, build_mixtures, build_transforms
from scaseg.errors import UserError, WorkError, plural
from scaseg.io.atomic import write_json, write_text
from scaseg.io.lock import folder_lock
from scaseg.io.model_folder import CONFIG, MODEL, RECIPE
from scaseg.io.table import read_rows
from scaseg.losses import class_weights
from scaseg.plots.data_page import dataset_page
from scaseg.system import choose_precision, kept_memory
from scaseg.training.build import (
    build_loggers,
    build_network,
    calibrate_head,
    check_run,
    complete_backbone,
)
from scaseg.training.callbacks import EMA, BestCheckpoint, LastCheckpoint, MetricsTable
from scaseg.training.checkpoint_io import StateFiles, has_state
from scaseg.training.data import (
    Given,
    cached,
    can_plan,
    evaluation_loader,
    open_data,
    training_loader,
)
from scaseg.training.distributed import is_rank_zero
from scaseg.training.module import SegmentationModule
from scaseg.training.pictures import ValidationPictures
from scaseg.training.result import COLUMNS, Result, finish, finished_result, is_finished
from scaseg.training.resume import changes, keep_batch, require_same_images, schedule_note
from scaseg.training.run_folder import (
    DATA_PAGE,
    LAST,
    METRICS,
    PER_CLASS,
    START,
    TRACEBACK,
    check_run_folder,
    create_run_folder,
    record_session,
)
from scaseg.training.sharding import gathered, require_shardable
from scaseg.training.signals import TerminatedError
from scaseg.training.start import StartingPoint, adopt_architecture
from scaseg.training.trainer import (
    build_trainer,
    choose_accelerator,
    cudnn_search,
    quiet_lightning,
    tf32,
    wants_search,
    work_errors,
)

Log = Callable[[str], None]


def train(
    run: RunConfig | str | Path | None = None,
    out: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    start_from: str | Path | None = None,
    resume: bool = False,
    auto_resume: bool = False,
    overwrite: bool = False,
    fast_dev_run: bool = False,
    quiet: bool = False,
    log: Log | None = None,
    data: Any = None,
    val: Any = None,
    classes: Sequence[str] | None = None,
    transform: Callable[..., Any] | None = None,
    transforms: Sequence[Transform] | None = None,
) -> Result:
    """Train as a run describes, into the folder `out`; None: nothing is written.

    run: a RunConfig, or the path or name of a recipe (None: own_folder) with overrides such as
    {"data.root": "photos", "training.epochs": 20}. start_from: a model to train further, a run
    folder or a built-in name; its network takes the place of the recipe's, all of its weights are
    kept for the same classes, and all but the last layer for others, where classes that share a
    name keep their row. resume continues the run in `out`, and needs no recipe; with another
    number of epochs (overrides={"training.epochs": 40}), the schedule goes on where a run of that
    length would be, and on another number of devices, with as many images a step. auto_resume does
    so if anything was saved, and starts otherwise: for launchers that start a command again.
    overwrite starts over in the folder of a run. fast_dev_run takes one batch
    through training and validation and writes nothing. log is called with lines of text; by default
    they go to stderr, unless quiet.

    data: a folder, or a Dataset of your own: len(data), and data[index] gives (image, labels); see
    `scaseg.data.datasets.own`. val: another one to validate on (None: some are held out).
    classes: their names. transform: of albumentations, or any f(image=..., mask=...) -> {"image":
    ..., "mask": ...}; it comes before the run's augmentation. transforms replace all of that
    (scaseg.data.transforms; Custom wraps those of other libraries).

    UserError: bad input, found before the first epoch. WorkError: a fault during work.
    """
    folder = None if out is None or fast_dev_run else Path(out)
    overrides = dict(overrides or {})
    if overrides and isinstance(run, RunConfig):
        raise UserError("overrides", "given with a RunConfig", "use dataclasses.replace instead")
    if start_from is not None:
        overrides["model.start_from"] = str(start_from)
    if auto_resume and folder is not None and not resume:
        # by what is saved, which the processes of a run cannot see before all have started
        resume = has_state(folder / LAST) or (folder / MODEL / CONFIG).is_file()
        overwrite |= not resume and (folder / RECIPE).is_file()
        if resume and not isinstance(run, RunConfig):
            overrides.pop("model.start_from", None)  # resolved when the run began
            overrides, run = changes(folder, overrides, USUAL if run is None else run), None
    notes = [] if resume or run is not None else [USUAL_NOTE]
    if resume:
        if overwrite or fast_dev_run or isinstance(run, (str, Path)):
            raise UserError("--resume", "comes with --out alone", "the rest is in the run folder")
        if folder is None:
            raise UserError("--resume", "needs --out", "give the folder of the run")
        overrides = changes(folder, overrides)
        run = folder / RECIPE if run is None else run
    if not isinstance(run, RunConfig):
        run = load_recipe(USUAL if run is None else run, overrides)
    elif start_from is not None:
        run = replace(run, model=replace(run.model, start_from=str(start_from)))
    if resume and folder is not None:
        run, kept = keep_batch(run, load_recipe(folder / RECIPE))
        notes += kept
    if not resume:
        run = adopt_architecture(run, set(overrides), folder)
        require_effect(run, overrides)
    elif folder is not None and run.model.start_from is not None:  # it is resolved there
        run = replace(run, model=load_recipe(folder / RECIPE).model)
    run, given = _given(run, data, val, classes)
    if given is None and not resume:
        require_held_out(run.data, overrides)
    if run.data.bands is not None:  # they are no colours
        run = replace(run, augment=replace(run.augment, saturation=0.0, hue=0.0))
    mixtures = build_mixtures(run.augment) if transforms is None else []
    if transforms is None:
        transforms = build_transforms(run.augment)
    if transform is not None:
        transforms = [Custom(transform), *transforms]
    own = folder if is_rank_zero() else None  # that this process writes into

    def report(line: str) -> None:  # a function: EMA copies the module that holds it
        if is_rank_zero() and log is not None:
            log(line)
        elif is_rank_zero() and not quiet:
            print(line, file=sys.stderr)

    try:
        with nullcontext() if own is None else folder_lock(own):
            if own is not None and not resume:
                check_run_folder(own, overwrite=overwrite)  # before anything is written or read
            return _train(
                run,
                folder,
                given,
                transforms,
                mixtures,
                resume=folder if resume else None,
                overwrite=overwrite,
                fast_dev_run=fast_dev_run,
                quiet=quiet or not is_rank_zero(),
                notes=notes,
                log=report,
            )
    except WorkError as error:
        with suppress(OSError):  # a full disk must not hide what went wrong
            if folder is not None:
                write_text(folder / TRACEBACK, traceback.format_exc())
                details = f"details in {folder / TRACEBACK}"
                remedy = f"{error.remedy}; {details}" if error.remedy else details
                raise WorkError(error.place, error.problem, remedy) from error
        raise
    except (KeyboardInterrupt, TerminatedError):
        if own is not None and has_state(own / LAST):
            command = shlex.join(["scaseg", "train", "--resume", "--out", str(own)])
            print(f"saved; continue with: {command}", file=sys.stderr)
        raise


def _train(
    run: RunConfig,
    folder: Path | None,
    given: Given | None,
    transforms: Sequence[Transform],
    mixtures: Sequence[tuple[float, Mixture]],
    *,
    resume: Path | None,
    overwrite: bool,
    fast_dev_run: bool,
    quiet: bool,
    notes: Sequence[str],
    log: Log,
) -> Result:
    """Train in a folder that is locked, and free or of the run to resume."""
    run, training = complete_backbone(run), run.training
    require_shardable(run)
    device = choose_accelerator(run.machine)
    checkpoint = resume / LAST if resume is not None and has_state(resume / LAST) else None
    check_run(run, is_fresh=checkpoint is None)
    before = training.epochs
    if resume is not None:
        recorded = load_recipe(resume / RECIPE)
        before = recorded.training.epochs
        if is_finished(resume, training.epochs):
            log(f"{folder}: this run is finished")
            return finished_result(resume)
        read_rows(resume / METRICS, columns=COLUMNS)  # UserError where they are not ours
        read_rows(resume / PER_CLASS, columns=("epoch", "class", "accuracy", "IoU"))
        if checkpoint is None and (resume / MODEL / CONFIG).is_file():
            problem = f"{training.epochs}, but {folder} has no training state to go on from"
            raise UserError("--training.epochs", problem, f"start a run with --start-from {folder}")
        if checkpoint is None:
            log(f"{folder}: nothing was saved yet; from the start")
    files = StateFiles()
    resumed = [] if checkpoint is None else files.read(checkpoint)
    if training.epochs < files.epochs_begun:
        problem = f"{training.epochs}, but {files.epochs_begun} are done or under way"
        raise UserError("--training.epochs", problem, f"give {files.epochs_begun} or more")
    start = StartingPoint.of(run, None if checkpoint is None else resume)
    # class pixels that were counted before, or by the first process
    before_run = resume if is_rank_zero() else folder
    model_before = None if start is None else start.config
    data = open_data(run, before_run, given=given, start=model_before, quiet=quiet, notify=log)
    if checkpoint is not None and resume is not None:
        notes = [*notes, *require_same_images(resume, data)]
    processes = run.machine.devices * run.machine.nodes
    if len(data.train) < processes:  # some would train on what others do, and count it twice
        problem = f"{processes} processes for {len(data.train)} training images"
        raise UserError("--devices", problem, f"give {len(data.train)} at most, or more images")
    if data.train.root is not None:  # the run may be resumed from another working folder
        run = replace(run, data=replace(run.data, root=str(data.train.root.absolute())))
    if start is not None:
        data = start.fit_data(data)
    if len(data.classes) == 1:
        problem = f"{data.classes[0]!r} alone: there is nothing to tell apart"
        raise UserError("classes", problem, "name another one")
    for note in notes:
        log(note)
    count, classes = plural(len(data.train), "training image"), plural(len(data.classes), "class")
    log(f"{count}, {classes}; {data.validation}")
    model, fresh_head = build_network(run, data, log, start=start, is_fresh=checkpoint is None)

    def augmented(samples: Samples) -> TrainingDataset:
        return TrainingDataset(samples, transforms, seed=training.seed, mixtures=mixtures)

    if any(isinstance(one, Custom) for one in transforms):
        augmented(data.train)[0, 0]  # what it does wrong shows at the start
    if training.calibrate and fresh_head:
        calibrate_head(model, augmented(data.train), device)
    weights = None
    if data.pixels is not None:
        clamp = training.class_weight_range
        weights = class_weights(training.class_weights, data.pixels, clamp)
    # statistics of small batches are poor: those of a pretrained backbone are kept
    pretrained = start is not None or run.model.backbone_weights is not None
    norms = training.batch_norm == "frozen" or (training.batch_norm == "auto" and pretrained)
    module = SegmentationModule(
        model, training, class_weights=weights, frozen_norms=norms, notify=log
    )
    model.backbone.checkpoints_activations = run.machine.activation_checkpointing
    plans = can_plan(run, augmented(data.train), device)
    if device == "cuda":
        graphs = module.use_graphs(run)
        precision = choose_precision(run.machine.precision, device)
        batches = training.epochs * -(-len(data.train) // training.batch_size)
        used = module.use_gpu(precision, run.machine, batches=batches)
        log(f"{used}{', augmentation' if plans else ''}{graphs}")
    elif device == "cpu":
        module.use_cpu(run.machine)
    if checkpoint is not None:  # before anything is written
        files.require_weights(checkpoint, module.state_dict())
        for line in resumed:
            log(line)
    loggers = build_loggers(training.loggers, folder)
    if folder is not None and is_rank_zero():
        if resume is None:
            facts: dict[str, Any] = {"classes": data.classes, "pixels": data.pixels}
            facts |= {"weights": weights, "images": len(data.train), "counted": data.counted}
            if data.bands is not None:
                facts["bands"] = asdict(data.bands)
            create_run_folder(folder, run, facts, overwrite=overwrite)
            if training.pictures:
                page = dataset_page(data.train, data.classes, per_class=training.pictures)
                write_text(folder / DATA_PAGE, page)
            if start is not None:
                kept = model.config.training["started_from"]
                write_json(folder / START, {**kept, "config": start.config.to_dict()})
        elif before != training.epochs:
            lengthened = replace(recorded.training, epochs=training.epochs)
            save_recipe(replace(recorded, training=lengthened), folder / RECIPE)
        record_session(folder)
    table = MetricsTable(folder, quiet=quiet)
    ema = None if training.ema is None else EMA(decay=training.ema)
    best = BestCheckpoint(folder, ema) if data.val is not None and folder is not None else None
    # the order matters: the row of an epoch is written before the state is saved
    callbacks: list[Callback] = [one for one in (table, ema, best) if one is not None]
    if data.val is not None and folder is not None and training.pictures:
        options = {"images": len(data.val), "count": training.pictures}
        callbacks.append(ValidationPictures(folder, **options))
    if data.val is not None and training.early_stop is not None:
        # not at the end of the training epoch: the state that is saved there must know of it
        patience = training.early_stop
        callbacks.append(
            EarlyStopping("val/mIoU", mode="max", patience=patience, check_on_train_epoch_end=False)
        )
    if folder is not None:
        every, minutes = training.checkpoint_every, training.checkpoint_minutes
        callbacks.append(LastCheckpoint(folder, files, every=every, minutes=minutes))
    with quiet_lightning():
        trainer = build_trainer(
            run.machine,
            callbacks=callbacks,
            files=files,
            logger=loggers or False,
            max_epochs=training.epochs,
            fast_dev_run=fast_dev_run,
            accumulate_grad_batches=training.accumulate,
            gradient_clip_val=training.gradient_clip,
            check_val_every_n_epoch=training.validate_every,
            log_every_n_steps=10,
        )
        examples = replace(augmented(cached(data.train, run, folder)), plans=plans)
        images = training_loader(run, examples, trainer)
        val_images = None
        if data.val is not None:
            val_images = evaluation_loader(cached(data.val, run, folder), run.machine, trainer)
        assert trainer.max_epochs is not None
        module.steps = max(1, trainer.max_epochs * -(-len(images) // training.accumulate))
        if before != training.epochs:
            log(schedule_note(module, before, files.steps_done))
        module.train()  # Lightning leaves the modes as they are, and norms may be frozen
        searches = cudnn_search(wants_search(run))
        with work_errors(trainer), searches, tf32(device), kept_memory(device):
            try:
                trainer.fit(module, images, val_images, ckpt_path=checkpoint, weights_only=True)
            finally:
                # left undone when validation is interrupted; loaders' processes ignore signals, so
                # Python would wait for them at its end, for ever
                trainer.fit_loop.teardown()
        if ema is not None:
            ema.copy_to(module)
        model = gathered(model)
    if trainer.should_stop and len(table.rows) < training.epochs and not fast_dev_run:
        log(f"stopped early: no better mIoU in {training.early_stop} validations")
    if folder is not None and trainer.is_global_zero:
        try:
            finish(model, run, folder, best, table.rows)
        except OSError as error:
            raise WorkError(f"writing {folder / MODEL}", str(error)) from error
    return Result(model.eval(), table.rows, best.epoch if best else None, folder)


def _given(
    run: RunConfig, data: Any, val: Any, classes: Sequence[str] | None
) -> tuple[RunConfig, Given | None]:
    """The run with what its data are given as: a folder, names of classes, or datasets."""
    config = run.data
    if classes is not None:
        if isinstance(classes, (int, str)):  # a text would be a class a letter
            raise UserError("classes", f"{classes!r}", "give a list of names")
        config = replace(config, classes=tuple(classes))
    if isinstance(data, (str, Path)):
        config, data = replace(config, root=str(data)), None
    if data is None:
        if val is not None:
            raise UserError("val", "given without data", "give a Dataset to train on, too")
        return replace(run, data=config), None
    train, val, validation, config = open_own(data, val, config)
    return replace(run, data=config), (train, val, validation)
