"""scaseg bench --what run: a training and a prediction beside their parts."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.bench import training
from scaseg.bench.training import STEP_ON_LOADED, batches, loaded_batches, network, training_parts
from scaseg.bench.whole import _files
from scaseg.cli import main
from scaseg.config.recipe import load_recipe, save_recipe
from scaseg.io.table import read_rows
from scaseg.system import matmul_precision
from tests.scenes import write_scenes

TRAIN = ["a plain PyTorch loop", "the step", STEP_ON_LOADED]
TRAIN += ["loaders, decoded", "loaders and step, decoded"]
TRAIN += ["loaders, cached", "loaders and step, cached", "scaseg train"]
PREDICT = ["the network", "decoding", "writing", "scaseg predict"]


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A light recipe and model, and rounds that are over at once."""
    monkeypatch.setattr("scaseg.bench.measure.LEAST", 0.0)
    keys = {"model.backbone": "tiny", "model.head": "pointwise", "model.context": "average"}
    keys |= {"model.backbone_options": {}, "model.context_options": {}, "augment.crop": [32, 48]}
    keys |= {"augment.fit": None, "model.backbone_weights": None}
    save_recipe(load_recipe("own_folder", keys), tmp_path / "small.yaml")
    scaseg.create_model("tiny", "sca", "pointwise", classes=3).save_pretrained(tmp_path / "model")
    return ["--recipe", f"{tmp_path}/small.yaml", "--model", f"{tmp_path}/model"]


def test_training_and_prediction_beside_their_parts(small, tmp_path, capsys):
    write_scenes(tmp_path / "photos", size=(48, 64), classes=None)  # they are counted
    options = ["--data", f"{tmp_path}/photos", "--batch", "2", "--workers", "1", "--repeats", "1"]
    main(["bench", "--what", "run", *small, *options, "--out", f"{tmp_path}/timings"])
    lines = capsys.readouterr().out.splitlines()
    assert "photos; batches of 2, 1 loaders; " in lines[1]
    rows = read_rows(tmp_path / "timings/run.csv")
    assert [row["part"] for row in rows] == TRAIN + PREDICT
    rates = {row["part"]: float(row["images_per_second"]) for row in rows}
    assert all(rate > 0 for rate in rates.values())
    shares = {row["part"]: float(row["share"]) for row in rows if row["share"]}
    assert len(shares) == 4
    assert shares["scaseg train"] == pytest.approx(rates["scaseg train"] / rates[STEP_ON_LOADED])
    outside = 1 - rates["scaseg predict"] / rates["the network"]
    assert shares["scaseg predict"] == pytest.approx(outside)
    assert f"{outside:.0%} outside the network" in lines[-2]
    assert "| predict | scaseg predict |" in (tmp_path / "timings/run.md").read_text()
    assert (tmp_path / "timings/run.png").stat().st_size > 10_000
    # nothing is left where it was measured: no run, no predictions
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "model",
        "photos",
        "small.yaml",
        "timings",
    ]


@pytest.fixture
def light(tmp_path):
    """A light run."""
    keys = {"data.root": str(write_scenes(tmp_path / "scenes")), "model.head": "auto"}
    keys |= {"model.backbone": "tiny", "model.backbone_options": {}, "model.context_options": {}}
    keys |= {"model.backbone_weights": None, "machine.workers": 0, "training.batch_size": 2}
    return load_recipe("own_folder", keys)


def test_the_network_is_that_of_the_training(light):
    assert network(light).config.head == "pointwise"


def test_the_step_has_the_very_batches_of_the_loaders(light, monkeypatch):
    """Each once before it is measured; new sizes counted as if loaders were to blame."""
    seen = []

    def step(batch):
        seen.append(tuple(batch.names))
        return len(batch.names)

    def measured(work, repeats, device, warm_up):
        for _ in range(warm_up):
            work()
        seen.append(None)
        return work()

    monkeypatch.setattr(training, "training_step", lambda run, device: step)
    monkeypatch.setattr(training, "plain_loop", lambda run, batch, device: step)
    monkeypatch.setattr(training, "images_per_second", measured)
    monkeypatch.setattr(training, "whole_training", lambda run, device: 1.0)
    rates = dict(training_parts(light, "cpu", 1))
    assert list(rates) == TRAIN
    once = [tuple(batch.names) for batch in loaded_batches(light, "cpu")]
    assert len(set(once)) == training.FEW
    assert seen[6:] == [*once, None, *once] + 2 * [None, *once, None, *once]
    again = batches(light, "cpu", None, len(once))
    assert [tuple(next(again).names) for _ in range(2 * len(once))] == 2 * once


def test_loaded_batches_take_no_more_memory_than_they_may(light, monkeypatch):
    first, *_ = loaded_batches(light, "cpu")
    monkeypatch.setattr(training, "ROOM", first.images.nbytes)  # without labels
    assert len(loaded_batches(light, "cpu")) == 1


def test_photographs_are_as_many_as_memory_holds(light):
    files = _files(light, 50, 2**30)
    assert len(files) == 50  # some of them several times
    ten = sum(np.asarray(Image.open(file.path)).nbytes for file in files[:10])
    assert [len(_files(light, 50, room)) for room in (ten, ten - 1, 1)] == [10, 9, 1]


def test_parts_are_measured_in_the_precision_of_a_training_which_ends_with_them(light, monkeypatch):
    """Whatever came later in the process computed in TF32."""
    monkeypatch.setattr(training, "tf32", lambda device: matmul_precision("high"))
    found = []

    def measured(*_, **__):
        found.append(torch.get_float32_matmul_precision())
        if len(found) == 3:
            raise RuntimeError("out of memory")
        return 1.0

    monkeypatch.setattr(training, "images_per_second", measured)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(training_parts(light, "cpu", 1))
    assert found == ["high"] * 3
    assert torch.get_float32_matmul_precision() == "highest"


def test_without_photographs_noise_is_made(small, capsys):
    main(["bench", "--what", "run", *small, "--batch", "2", "--repeats", "1", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["photographs"] == "noise"
    assert report["batch"] == 2
    assert [row["part"] for row in report["rows"]] == TRAIN + PREDICT


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["--data", "photos"], "--data: given with --what operator; use --what run"),
        (["--what", "run", "--sizes", "32"], "--sizes: given with --what run; leave it out"),
        (["--what", "run", "--data", "nowhere"], "nowhere: no such folder"),
        (["--what", "run", "--recipe", "own_folders"], "own_folder"),
        (["--what", "run", "--model", "nowhere"], "nowhere"),
        (["--what", "run", "--workers", "-1"], "--workers: '-1'"),
    ],
)
def test_refused(bad, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *bad])
    said = capsys.readouterr()
    assert (stop.value.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1
