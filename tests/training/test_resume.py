"""Cut off anywhere and continued is the same as never cut off: losses and weights, bit for bit."""

import csv
import json
import os
import random
import signal
from functools import partial
from multiprocessing import active_children

import numpy as np
import pytest
import torch

from scaseg.data.loading import TrainingDataset
from scaseg.errors import WorkError
from scaseg.training.callbacks import LastCheckpoint, MetricsTable
from scaseg.training.checkpoint_io import PREVIOUS, has_state, read_state
from scaseg.training.module import SegmentationModule
from scaseg.training.run import train
from scaseg.training.run_folder import LAST
from scaseg.training.signals import TerminatedError
from tests.processes import wait_until
from tests.scenes import write_scenes
from tests.training import quick

settings = partial(
    quick.settings, training__epochs=3, training__ema=0.9, augment__scale="[0.8, 1.2]"
)
TIMELESS = ("epoch", "step", "loss", "lr", "head_lr", "PPA", "CAA", "mIoU")


class CutError(Exception):
    """What a kill is to a test that wants to live on."""


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 22, size=(32, 40))  # 12 to train on


@pytest.fixture(scope="module")
def whole(scenes, tmp_path_factory):
    """The run that was never cut off, by its settings."""
    known = {}

    def result(**keys):
        key = tuple(sorted(keys.items()))
        if key not in known:
            out = tmp_path_factory.mktemp("whole")
            known[key] = (train(settings(scenes, **keys), out / "run", quiet=True), out / "run")
        return known[key]

    return result


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{key: row[key] for key in TIMELESS} for row in csv.DictReader(file)]


def same_weights(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def resume_like(run, folder, unbroken, **options):
    """Resume a run: it must end as the one that was never cut off."""
    parts = train(run, folder, resume=True, quiet=True, **options)
    result, whole_folder = unbroken
    assert same_weights(parts.model, result.model)
    assert rows(folder) == rows(whole_folder)
    assert parts.best_epoch == result.best_epoch
    return parts


def at_batches(monkeypatch, places, act):
    """Do something before the training step of each (epoch, batch), once."""
    step, waiting = SegmentationModule.training_step, list(places)

    def training_step(self, batch, batch_idx):
        if (self.current_epoch, batch_idx) in waiting:
            waiting.remove((self.current_epoch, batch_idx))
            act()
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", training_step)


def cut():
    raise CutError


@pytest.mark.parametrize("workers", [0, 2])
def test_several_cuts_within_epochs(scenes, whole, tmp_path, monkeypatch, workers):
    """In the first step, in the middle, in an epoch's last step; saved after every step, shown."""
    keys = {"machine__workers": workers, "training__checkpoint_minutes": 0}
    run = settings(scenes, **keys)
    at_batches(monkeypatch, [(0, 0), (0, 3), (1, 5), (2, 1)], cut)
    done, resume = False, False
    cuts = 0
    while not done:
        try:
            parts = train(run, tmp_path / "run", resume=resume)
            done = True
        except RuntimeError:
            cuts, resume = cuts + 1, True
    assert cuts == 4
    unbroken, folder = whole()
    assert same_weights(parts.model, unbroken.model)
    assert rows(tmp_path / "run") == rows(folder)
    assert parts.best_epoch == unbroken.best_epoch


@pytest.mark.parametrize("end", [CutError, TerminatedError, KeyboardInterrupt])
def test_no_loader_outlives_a_run_that_ends_while_it_validates(scenes, tmp_path, monkeypatch, end):
    """They ignore signals: Python's own end of such processes would wait for ever."""

    def validation_step(self, batch, batch_idx):
        raise end

    monkeypatch.setattr(SegmentationModule, "validation_step", validation_step)
    with pytest.raises(WorkError if end is CutError else end):
        train(settings(scenes, machine__workers=1), tmp_path / "run", quiet=True)
    try:
        wait_until(lambda: not active_children(), seconds=60)
    finally:
        for process in active_children():
            process.kill()


def test_gradients_that_add_up_are_never_cut_in_two(scenes, whole, tmp_path, monkeypatch):
    """Steps of 4 batches, 6 batches an epoch: cut in the second batch of a step."""
    keys = {"training__accumulate": 4, "training__checkpoint_minutes": 0}
    at_batches(monkeypatch, [(0, 5), (1, 2)], cut)
    run = settings(scenes, **keys)
    for resume in (False, True):
        with pytest.raises(RuntimeError, match="step"):
            train(run, tmp_path / "run", resume=resume, quiet=True)
    resume_like(run, tmp_path / "run", whole(training__accumulate=4))


def test_a_continued_run_reads_only_what_is_left(scenes, tmp_path, monkeypatch):
    run = settings(scenes, training__checkpoint_minutes=0)
    at_batches(monkeypatch, [(2, 4)], cut)
    with pytest.raises(RuntimeError, match="epoch 3, step 17"):
        train(run, tmp_path / "run", quiet=True)
    seen, read = [], TrainingDataset.__getitem__

    def remember(self, key):
        seen.append(key)
        return read(self, key)

    monkeypatch.setattr(TrainingDataset, "__getitem__", remember)
    train(run, tmp_path / "run", resume=True, quiet=True)
    assert [epoch for epoch, _ in seen] == [2] * 4  # two batches of two


def test_dropout_norms_and_an_adaptive_optimizer(scenes, tmp_path, monkeypatch):
    """What tiny has not."""
    keys = {"model__backbone": "mobilenet_v2", "training__optimizer": "AdamW", "data__limit": 4}
    keys |= {"machine__workers": 1, "training__epochs": 2}
    run = settings(scenes, **keys)
    unbroken = train(run, tmp_path / "whole", quiet=True)
    at_batches(monkeypatch, [(1, 1)], cut)
    with pytest.raises(RuntimeError, match="epoch 2, step 4"):
        train(run, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "model").exists()
    resume_like(run, tmp_path / "run", (unbroken, tmp_path / "whole"))
    assert len(json.loads((tmp_path / "run" / "environment.json").read_text())["sessions"]) == 2


@pytest.mark.parametrize(
    ("place", "number"),
    [
        *(((0, 0), signal.SIGTERM), ((0, 2), signal.SIGTERM), ((1, 4), signal.SIGTERM)),
        *(((1, 5), signal.SIGTERM), ((2, 5), signal.SIGTERM)),
        *(((0, 2), signal.SIGINT), ((1, 5), signal.SIGINT)),
    ],
)
def test_a_signal_ends_a_run_after_its_step(
    scenes, whole, tmp_path, monkeypatch, capfd, place, number
):
    """Nothing but the last step of an epoch is done twice."""
    run = settings(scenes, training__checkpoint_every=9, training__checkpoint_minutes="null")
    before = signal.getsignal(number)
    at_batches(monkeypatch, [place], lambda: os.kill(os.getpid(), number))
    with pytest.raises(BaseException) as stop:  # noqa: PT011 - looked at below
        train(run, tmp_path / "run", quiet=True)
    if number == signal.SIGTERM:
        assert isinstance(stop.value, SystemExit)
        assert stop.value.code == 143
    else:
        assert isinstance(stop.value, KeyboardInterrupt)
        assert "Ctrl-C again stops at once" in capfd.readouterr().err
    assert signal.getsignal(number) == before
    epoch, batch = place
    state = read_state(tmp_path / "run" / LAST)
    assert state["global_step"] == 6 * epoch + (batch + 1 if batch < 5 else 5)
    resume_like(run, tmp_path / "run", whole())


def test_a_signal_while_validating(scenes, whole, tmp_path, monkeypatch):
    """Validation is long, and whoever sends SIGTERM does not wait: it begins again."""
    run = settings(scenes, training__checkpoint_every=9)
    judge, judged = SegmentationModule.validation_step, []

    def validation_step(self, photograph, batch_idx):
        judged.append(batch_idx)
        if len(judged) == 7:  # the second of epoch 2, of five
            os.kill(os.getpid(), signal.SIGTERM)
        return judge(self, photograph, batch_idx)

    monkeypatch.setattr(SegmentationModule, "validation_step", validation_step)
    with pytest.raises(SystemExit) as stop:
        train(run, tmp_path / "run", quiet=True)
    assert stop.value.code == 143
    assert len(judged) == 7
    assert len(rows(tmp_path / "run")) == 1
    resume_like(run, tmp_path / "run", whole())


def test_epochs_of_one_step(scenes, tmp_path, monkeypatch):
    """There is no earlier step in the epoch: the state at the end of the one before is written."""
    keys = {"training__batch_size": 12, "training__checkpoint_every": 9, "training__epochs": 4}
    run = settings(scenes, **keys)
    unbroken = train(run, tmp_path / "whole", quiet=True)
    at_batches(monkeypatch, [(2, 0)], lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(run, tmp_path / "run", quiet=True)
    assert read_state(tmp_path / "run" / LAST)["global_step"] == 2
    resume_like(run, tmp_path / "run", (unbroken, tmp_path / "whole"))


def test_a_damaged_checkpoint_costs_one_save(scenes, whole, tmp_path, monkeypatch):
    run = settings(scenes, training__checkpoint_minutes=0)
    at_batches(monkeypatch, [(1, 3)], cut)
    with pytest.raises(RuntimeError):
        train(run, tmp_path / "run", quiet=True)
    last = tmp_path / "run" / LAST
    assert read_state(last)["global_step"] == 9
    assert read_state(last.with_name(PREVIOUS))["global_step"] == 8
    last.write_bytes(last.read_bytes()[:-100])
    said = []
    resume_like(run, tmp_path / "run", whole(), log=said.append)
    assert any("resuming from previous.safetensors" in line for line in said)


def test_a_run_cut_off_before_its_first_save_starts_again(scenes, whole, tmp_path, monkeypatch):
    run = settings(scenes)
    at_batches(monkeypatch, [(0, 1)], cut)
    with pytest.raises(RuntimeError):
        train(run, tmp_path / "run", quiet=True)
    (tmp_path / "run" / ".scaseg-host-1-ab.part").write_bytes(b"what a killed run leaves")
    said = []
    resume_like(run, tmp_path / "run", whole(), log=said.append)
    assert f"{tmp_path / 'run'}: nothing was saved yet; from the start" in said
    assert not list((tmp_path / "run").glob(".scaseg*"))
    assert not list((tmp_path / "run").glob(".lock"))


@pytest.mark.parametrize(
    ("accumulate", "told_at", "step"),
    [
        # 6 batches, steps of 4 and 2: what is written is the state before the last step
        (4, (1, 5), 3),
        (10, (2, 3), 2),  # an epoch is one step of all its batches
    ],
)
def test_told_where_batches_are_added_up(
    accumulate, told_at, step, scenes, whole, tmp_path, monkeypatch
):
    keys = {"training__accumulate": accumulate, "training__checkpoint_every": 9}
    run = settings(scenes, **keys, training__checkpoint_minutes="null")
    at_batches(monkeypatch, [told_at], lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(run, tmp_path / "run", quiet=True)
    assert read_state(tmp_path / "run" / LAST)["global_step"] == step
    resume_like(run, tmp_path / "run", whole(training__accumulate=accumulate))


def test_what_was_held_is_forgotten_when_something_newer_is_saved(scenes, tmp_path, monkeypatch):
    """Held in epoch 1, saved in step 11 because it was time, told to end in step 12."""
    asked = []

    def is_due(self):
        asked.append(1)
        return len(asked) == 12  # 6 batches and the end of epoch 1, 5 batches of epoch 2

    monkeypatch.setattr(LastCheckpoint, "_is_due", is_due)
    run = settings(scenes, training__checkpoint_every=9)
    at_batches(monkeypatch, [(1, 5)], lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        train(run, tmp_path / "run", quiet=True)
    assert read_state(tmp_path / "run" / LAST)["global_step"] == 11


def full_disk(*_):
    raise OSError("no space left")


def test_averaged_weights_whose_model_could_not_be_written(scenes, whole, tmp_path, monkeypatch):
    """All epochs are done and saved; only RUN/model is missing."""
    run = settings(scenes, data__val="null")
    with monkeypatch.context() as patch:
        patch.setattr("scaseg.training.run.finish", full_disk)
        with pytest.raises(RuntimeError, match="no space left"):
            train(run, tmp_path / "run", quiet=True)
    resume_like(run, tmp_path / "run", whole(data__val="null"))


def test_a_run_that_had_stopped_early_stays_stopped(scenes, tmp_path, monkeypatch):
    judge = SegmentationModule.on_validation_epoch_end

    def worse_then_better(self):
        real, self.log = self.log, lambda *_, **__: None
        judge(self)
        self.log = real
        value = [50.0, 40.0, 60.0, 70.0][self.current_epoch]
        self.log("val/mIoU", value)

    monkeypatch.setattr(SegmentationModule, "on_validation_epoch_end", worse_then_better)
    run = settings(scenes, training__early_stop=1, training__epochs=4)
    unbroken = train(run, tmp_path / "whole", quiet=True)
    assert len(unbroken.rows) == 2
    with monkeypatch.context() as patch:
        patch.setattr("scaseg.training.run.finish", full_disk)
        with pytest.raises(RuntimeError, match="no space left"):
            train(run, tmp_path / "run", quiet=True)
    resume_like(run, tmp_path / "run", (unbroken, tmp_path / "whole"))


def test_sigterm_before_the_first_step_is_143(scenes, tmp_path, monkeypatch):
    """Lightning hears SIGTERM before we do, and ends with an exit of its own."""
    start = MetricsTable.on_train_start

    def tell(self, *arguments):
        start(self, *arguments)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricsTable, "on_train_start", tell)
    with pytest.raises(BaseException) as stop:  # noqa: PT011 - looked at below
        train(settings(scenes), tmp_path / "run", quiet=True)
    assert isinstance(stop.value, SystemExit)
    assert stop.value.code == 143


def test_a_second_ctrl_c_does_not_wait_for_the_step(scenes, tmp_path, monkeypatch):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    at_batches(monkeypatch, [(0, 2)], twice)
    with pytest.raises(KeyboardInterrupt):
        train(settings(scenes), tmp_path / "run", quiet=True)
    assert not has_state(tmp_path / "run" / LAST)


def test_a_continued_run_draws_what_the_unbroken_one_draws(scenes, tmp_path, monkeypatch):
    """Dropout, and what a user's own layer asks of random and NumPy; tiny itself draws nothing."""
    drawn, step = {}, SegmentationModule.training_step

    def training_step(self, batch, batch_idx):
        draws = (float(torch.rand(())), random.random(), float(np.random.rand()))
        drawn.setdefault((self.current_epoch, batch_idx), []).append(draws)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SegmentationModule, "training_step", training_step)
    run = settings(scenes, training__checkpoint_minutes=0, training__epochs=2)
    train(run, tmp_path / "whole", quiet=True)
    at_batches(monkeypatch, [(0, 3), (1, 4)], cut)
    for resume in (False, True):
        with pytest.raises(RuntimeError, match="step"):
            train(run, tmp_path / "run", resume=resume, quiet=True)
    train(run, tmp_path / "run", resume=True, quiet=True)
    assert len(drawn) == 12
    assert all(len(set(draws)) == 1 for draws in drawn.values())
    assert len({draws[0] for draws in drawn.values()}) == 12  # and every step others
