"""Whatever `data check` calls an error, `train` or `evaluate` refuses before the first step."""

from types import SimpleNamespace

import pytest

from scaseg.cli import main
from scaseg.config.model import ModelConfig
from scaseg.config.run import DataConfig, RunConfig
from scaseg.data.splits import evaluation_split
from scaseg.training.data import open_data
from scaseg.training.evaluation import check_dataset
from tests.data.validation.spoilt import ERRORS, WARNINGS, label_map, labels_everywhere
from tests.data.validation.spoilt import root as root  # a fixture


def train(folder, **options):
    open_data(RunConfig(data=DataConfig(root=str(folder), **options)), None)


def evaluate(folder, **options):
    """As `scaseg evaluate` does before its first photograph."""
    config = DataConfig(root=str(folder), **options)
    dataset, _ = evaluation_split(config, "test")
    model = SimpleNamespace(config=ModelConfig(classes=("sky", "tree", "road")))
    check_dataset(model, dataset)


def lines(*actions):
    found = []
    for action in actions:
        try:
            action()
        except ValueError as fault:
            found.append(str(fault))
    return found


# what one of the two says in other words, or earlier
SAID = {"a class named twice": "a class name occurs twice (sky)"}
REFUSED_BY = {
    "truncated photograph": train,
    "truncated label map": train,
    "the same photograph": train,
    "in two lists": train,
    "nothing labelled": train,
    "out of range": evaluate,
    "twice in one list": evaluate,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_refused(root, kind):
    assert lines(lambda: train(root), lambda: evaluate(root)) == []
    spoil, expected = ERRORS[kind]
    spoil(root)
    found = {action: lines(lambda action=action: action(root)) for action in (train, evaluate)}
    said = SAID.get(kind, expected).partition("; ")[0].removesuffix("(")
    both = found[train] + found[evaluate]
    assert any(said in line for line in both), found
    assert found[REFUSED_BY[kind]] if kind in REFUSED_BY else both
    assert not any("\n" in line for line in both)


@pytest.mark.parametrize("kind", WARNINGS)
def test_a_warning_stops_nobody(root, kind):
    WARNINGS[kind][0](root)
    train(root)


def test_a_class_that_only_validation_has_is_named(root):
    """Held out with the one photograph that shows it, it was not learned, and nobody said so."""
    (root / "classes.txt").unlink()
    (root / "val.txt").write_text("x")
    label_map(root / "labels/x.png", [0, 3])
    said = []
    data = open_data(RunConfig(data=DataConfig(root=str(root))), None, notify=said.append)
    assert data.classes[3] == "class 3"
    assert "note: in no training image, though in validation: class 3" in said


def test_masks_of_few_photographs_may_be_judged(root):
    labels_everywhere(root, [0, 255])
    evaluate(root)


def test_the_quick_check_is_there_for_whoever_cannot_wait(root):
    ERRORS["truncated photograph"][0](root)
    train(root, check="quick")
    ERRORS["RGB"][0](root)
    assert lines(lambda: train(root, check="quick"))


def test_the_limit_of_pixels_reaches_training(root, tmp_path, capsys):
    said = lines(lambda: train(root, max_pixels=100), lambda: evaluate(root, max_pixels=100))
    assert len(said) == 2
    for line in said:
        assert "24 x 16 pixels; at most 100 are taken" in line
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", str(root), "--out", str(tmp_path / "run"), "--max-pixels", "100"])
    assert stop.value.code == 2
    assert "at most 100 are taken, raise --max-pixels" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["data", "check", str(root), "--max-pixels", "100"])
    assert stop.value.code == 1
    assert "at most 100 are taken" in capsys.readouterr().out
