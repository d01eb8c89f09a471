"""A saved model is trained further, for its own classes or for others."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

import scaseg
from scaseg.cli import main
from scaseg.config.recipe import load_recipe
from scaseg.training.run import train
from tests.scenes import CLASSES, SMALL, write_scenes
from tests.training.quick import settings

STILL = {"training__lr": 0, "training__head_lr": 0, "training__epochs": 1}  # nothing is learned


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 8, size=(32, 40))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of these scenes, with a mean and norms that no fresh one has."""
    torch.manual_seed(5)
    model = scaseg.create_model("tiny", "dot", "light", classes=CLASSES, key_channels=4)
    model.config = replace(model.config, mean=(0.1, 0.2, 0.3))
    for norm in (one for one in model.modules() if isinstance(one, torch.nn.BatchNorm2d)):
        norm.running_mean.normal_()
    folder = tmp_path_factory.mktemp("models") / "first"
    model.save_pretrained(folder)
    return folder


def with_classes(scenes, root, names):
    shutil.copytree(scenes, root)
    if names is None:
        (root / "classes.txt").unlink()
    else:
        (root / "classes.txt").write_text("\n".join(names))
    return root


def test_the_same_classes_keep_all_of_it(scenes, model, tmp_path):
    """The network is the model's, whatever the recipe says; at a rate of 0 nothing changes."""
    said, run = [], settings(scenes, **STILL)
    assert run.model.context == "sca"
    result = train(run, tmp_path / "run", start_from=model, log=said.append, quiet=True)
    before = scaseg.load_model(model)
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(tensor, before.state_dict()[name]), name
    assert result.model.config.mean == (0.1, 0.2, 0.3)
    assert f"starts from {model} (tiny, dot, light): all of it, for the same 3 classes" in said
    recipe = load_recipe(tmp_path / "run" / "recipe.yaml").model
    assert (recipe.context, recipe.head, recipe.start_from) == ("dot", "light", str(model))
    assert recipe.context_options == {"key_channels": 4}
    record = json.loads((tmp_path / "run" / "start_from.json").read_text())
    assert (record["model"], record["classes_kept"]) == (str(model), list(CLASSES))
    assert record["config"]["mean"] == [0.1, 0.2, 0.3]
    kept = scaseg.load_model(tmp_path / "run").config.training["started_from"]
    assert kept == {"model": str(model), "classes_kept": list(CLASSES)}


def test_other_classes_keep_all_but_the_last_layer(scenes, model, tmp_path):
    root = with_classes(scenes, tmp_path / "other", ["water", "stone", "brick"])
    said = []
    found = train(settings(root, **STILL), start_from=model, log=said.append, quiet=True).model
    before, after = scaseg.load_model(model).state_dict(), found.state_dict()
    for name, tensor in after.items():
        if name.startswith("head.score"):
            assert torch.equal(tensor[[0, 2]], before[name][[2, 0]])
        else:
            assert torch.equal(tensor, before[name]), name
    assert float(after["head.score.weight"][1].std()) == pytest.approx(0.01, rel=0.3)  # fresh
    assert not after["head.score.bias"][1]
    known = "all but the last layer, and of that what is known of water, brick; fresh: stone"
    assert said[1].endswith(f": {known}")
    again = train(settings(root, **STILL), start_from=model, quiet=True).model
    assert torch.equal(again.head.score.weight, found.head.score.weight)  # by the seed


def test_labels_without_names_are_the_models(scenes, model, tmp_path):
    root = with_classes(scenes, tmp_path / "unnamed", None)
    found = train(settings(root, **STILL), start_from=model, quiet=True).model
    assert found.classes == CLASSES
    assert torch.equal(found.head.score.weight, scaseg.load_model(model).head.score.weight)


def test_it_learns_and_a_resumed_run_ends_the_same(scenes, model, tmp_path, monkeypatch):
    """The model may be gone by then: what matters of it is in the run folder."""
    run = settings(scenes, training__epochs=2, training__lr=0.01)
    whole = train(run, tmp_path / "whole", start_from=model, quiet=True).model
    firsts = [next(one.backbone.parameters()) for one in (whole, scaseg.load_model(model))]
    assert not torch.equal(*firsts)
    source = shutil.copytree(model, tmp_path / "source")
    from scaseg.training import run as module

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # after the last epoch, before the model is written
        patch.setattr(module, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            train(run, tmp_path / "cut", start_from=source, quiet=True)
    shutil.rmtree(source)
    found = train(None, tmp_path / "cut", resume=True, quiet=True).model
    assert found.config.mean == (0.1, 0.2, 0.3)
    assert found.config.training["started_from"]["model"] == str(source)
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--context", "sca"), "--context: sca, but with --start-from {} it has dot; leave one"),
        (("--backbone", "vgg16"), "--backbone: vgg16, but with --start-from {} it has tiny;"),
        (("--model.head", "compact"), "--model.head: compact, but with --start-from {} it has li"),
        (
            ("--model.context_options.key_channels", "8"),
            "--model.context_options.key_channels: 8, but with --start-from {} it has 4",
        ),
        (("--backbone-weights", "outdoor"), "--backbone-weights: outdoor, but with --start-from"),
    ],
)
def test_what_contradicts_the_model_is_refused(scenes, model, tmp_path, capsys, arguments, message):
    out, start = tmp_path / "run", ("--start-from", str(model))
    with pytest.raises(SystemExit) as stop:
        main(["train", "--data", str(scenes), "--out", str(out), *start, *arguments])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message.format(model) in line
    assert not out.exists()


def test_a_recipe_that_names_the_model_must_agree_with_it(scenes, model, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"model:\n  start_from: {model}\n  context: average\n")
    with pytest.raises(ValueError, match=r"model\.context: average, but with .* it has dot"):
        train(recipe, overrides={"data.root": str(scenes)})
    recipe.write_text(f"model:\n  start_from: {model}\n  head: light\n")
    keys = {"data.root": str(scenes), "training.epochs": 1, "machine.device": "cpu"}
    found = train(recipe, overrides=keys | {"machine.workers": 0}, quiet=True)
    assert found.model.config.context == "dot"


def test_a_run_does_not_overwrite_what_it_starts_from(scenes, tmp_path, model):
    run = shutil.copytree(model, tmp_path / "run" / "model")
    (tmp_path / "run" / "recipe.yaml").write_text("")
    with pytest.raises(ValueError, match=r"lies in --out .*; give another --out"):
        train(settings(scenes), tmp_path / "run", start_from=run, overwrite=True)
    assert (run / "config.json").is_file()


def test_without_a_recipe_it_is_own_folder(scenes, tmp_path, capsys):
    """Not VGG16 from random weights; a line says so, once the data are known to be sound."""
    small = ("--augment.fit", "[32, 40]", "--augment.scale", "null", "--augment.crop", "null")
    out = ("--out", str(tmp_path / "run"), "--device", "cpu", "--workers", "0", "--epochs", "1")
    main(["train", "--data", str(scenes), *out, *small, "--data.limit", "2"])
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("no recipe: own_folder, for photographs of your own")
    assert "loaded from outdoor: 102 layers of mobilenet_v2; the head starts fresh" in said
    own, found = (load_recipe(one) for one in ("own_folder", tmp_path / "run" / "recipe.yaml"))
    assert found.model == own.model
    assert (found.training.optimizer, found.training.ema) == ("AdamW", 0.99)
    main(["train", "own_folder", "--data", str(scenes), "--fast-dev-run", *SMALL, *out[2:], *small])
    assert "no recipe" not in capsys.readouterr().err
