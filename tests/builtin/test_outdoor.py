"""The model that comes with the package: its files fit together, and its figures are true."""

import importlib
import json
import os
import re
import shutil
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest
from PIL import Image

import scaseg
from scaseg.cli import main
from scaseg.io.atomic import write_json
from scaseg.io.model_folder import BUILTIN, USUAL, builtin_models, class_names
from tests.docs.pages import ROOT
from tests.shared import SHARED, needs

FOLDER = BUILTIN / USUAL
STANFORD = SHARED / "data" / "stanford_background"
CLASSES = ("sky", "tree", "road", "grass", "water", "building", "mountain", "foreground")
MOST_BYTES = 12_000_000
EVALUATION = "evaluate --data stanford_background --split test --device cpu --json"


@pytest.fixture
def card_maker(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    return importlib.import_module("model_card")


@pytest.fixture
def config():
    return json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))


@pytest.fixture
def metrics():
    return json.loads((FOLDER / "metrics.json").read_text(encoding="utf-8"))


@pytest.fixture
def card():
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_it_is_the_only_one_and_whole():
    assert builtin_models() == ("outdoor",)
    names = {"README.md", "config.json", "metrics.json", "model.safetensors"}
    assert {path.name for path in FOLDER.iterdir()} == names


def test_it_is_what_was_promised(config):
    assert class_names(FOLDER) == tuple(config["id2label"].values()) == CLASSES
    assert (config["backbone"], config["context"]) == ("mobilenet_v2", "dot")
    assert (FOLDER / "model.safetensors").stat().st_size <= MOST_BYTES


def test_it_knows_no_place_of_the_machine_that_trained_it(config):
    def texts(value):
        if isinstance(value, dict):
            for item in value.values():
                yield from texts(item)
        elif isinstance(value, list):
            for item in value:
                yield from texts(item)
        elif isinstance(value, str):
            yield value

    found = list(texts(config))
    assert "mobilenet_v2" in found
    for text in found:
        assert not PurePosixPath(text).is_absolute(), text
        assert not PureWindowsPath(text).is_absolute(), text
    # where its photographs were, no folder of a user is: `evaluate` must not take one for it
    assert config["training"]["recipe"]["data"]["root"] == "stanford_background"


def test_it_sees_sky_above_and_no_sky_below(card):
    rows = np.linspace(0, 1, 240)[:, None, None]
    above = np.array([150, 190, 240]) + 0 * rows
    ground = np.array([90, 140, 60]) + 0 * rows
    image = np.where(rows < 0.5, above, ground) + np.zeros((240, 320, 3))
    image += np.random.default_rng(0).normal(0, 6, image.shape)
    model = scaseg.load_model("outdoor")
    found = model.predict(image.clip(0, 255).astype(np.uint8))
    assert (found.labels[:60] == 0).mean() > 0.9
    assert (found.labels[-60:] == 0).mean() < 0.1
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert f"{weights / 1e6:.1f} million weights" in card


def test_each_class_has_a_colour_of_its_own(config):
    assert len(set(map(tuple, config["palette"]))) == len(CLASSES)


def test_the_card_says_what_the_files_say(card_maker, card, config, tmp_path):
    assert card_maker.finished_card(FOLDER, config) == card
    assert card_maker.finished_config(config) == config
    text = (FOLDER / "config.json").read_text(encoding="utf-8")
    write_json(tmp_path / "config.json", config)  # as save_pretrained does
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == text
    for number, name in enumerate(CLASSES):
        assert f"| {number} | `{name}` |" in card


def test_a_figure_that_changed_changes_the_card(card_maker, card, metrics, tmp_path):
    metrics["per_class"]["sky"]["IoU"] += 1
    made = card_maker.metrics_table(metrics, FOLDER / "model.safetensors")
    assert card_maker.with_part(card, "metrics", made) != card
    with pytest.raises(ValueError, match=r"README\.md: lacks the marks <!-- begin metrics -->"):
        card_maker.with_part("# a card", "metrics", made)


def test_finishing_a_model_that_comes_from_elsewhere(card_maker, card, config, metrics, tmp_path):
    """What is left to do when two files were copied: paths go, colours and tables come."""
    config["training"]["recipe"]["data"]["root"] = "/somewhere/sb"
    config["training"]["teacher"] = ["C:\\models\\vgg16"]
    config["palette"] = None
    metrics["mIoU"] = 12.34
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "README.md").write_text(card)
    shutil.copy(FOLDER / "model.safetensors", tmp_path)
    with pytest.raises(SystemExit, match=r"metrics\.json"):
        card_maker.main(tmp_path)
    assert (tmp_path / "README.md").read_text() == card
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    card_maker.main(tmp_path)
    made = json.loads((tmp_path / "config.json").read_text())
    assert made["training"]["recipe"]["data"]["root"] == "stanford_background"
    assert made["training"]["teacher"] == ["vgg16"]
    assert len(made["palette"]) == len(CLASSES)
    assert "mIoU **12.3**." in (tmp_path / "README.md").read_text()


def test_the_card_tells_how_its_figures_were_made(card):
    assert re.findall(r"^scaseg (evaluate .* --json)$", card, re.MULTILINE) == [EVALUATION]


@needs(STANFORD)
def test_its_figures_are_reproduced_on_a_cpu(metrics, tmp_path, monkeypatch, capsys):
    """All 143 test photographs, by the command on the card: 20 s on one core."""
    monkeypatch.chdir(tmp_path)
    os.symlink(STANFORD, tmp_path / "stanford_background")
    main(EVALUATION.split())
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == metrics["images"] == 143
    for name in ("PPA", "CAA", "mIoU"):
        assert found[name] == pytest.approx(metrics[name], abs=0.05)
    for name, scores in metrics["per_class"].items():
        assert found["per_class"][name]["IoU"] == pytest.approx(scores["IoU"], abs=0.2)


@needs(STANFORD)
def test_an_overlay_of_a_real_photograph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = (STANFORD / "test.txt").read_text().split()[0]
    main(["predict", str(STANFORD / "images" / f"{name}.jpg"), "--overlay", "--quiet"])
    labels = np.array(Image.open(tmp_path / "predictions" / f"{name}.png"))
    truth = np.array(Image.open(STANFORD / "labels" / f"{name}.png"))
    assert (labels == truth)[truth != 255].mean() > 0.7
    assert (tmp_path / "predictions" / f"{name}.overlay.jpg").is_file()
