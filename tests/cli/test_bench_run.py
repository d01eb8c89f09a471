"""scaseg bench --what run: a training and a prediction beside their parts."""

import json

import pytest

import scaseg
from scaseg.bench.training import network
from scaseg.cli import main
from scaseg.config.recipe import load_recipe, save_recipe
from scaseg.io.table import read_rows
from tests.scenes import write_scenes

TRAIN = ["a plain PyTorch loop", "the step", "loaders, decoded", "loaders and step, decoded"]
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
    assert shares["scaseg train"] == pytest.approx(rates["scaseg train"] / rates["the step"])
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


def test_the_network_is_that_of_the_training(tmp_path):
    keys = {"data.root": str(write_scenes(tmp_path / "scenes")), "model.head": "auto"}
    keys |= {"model.backbone": "tiny", "model.backbone_options": {}, "model.context_options": {}}
    made = network(load_recipe("own_folder", keys | {"model.backbone_weights": None}))
    assert made.config.head == "pointwise"


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
