"""Whole runs on generated scenes: train, evaluate, load, predict; continued, averaged, frozen."""

import csv
import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

import scaseg
from scaseg.config.recipe import load_recipe
from scaseg.data.datasets.folder import FolderDataset
from scaseg.inference.tta import predict_scores
from scaseg.metrics import TEMPERATURES
from scaseg.models.labels import trained_on
from scaseg.training.evaluation import evaluate
from scaseg.training.run import train
from tests.scenes import CLASSES, write_scenes
from tests.training import quick

settings = partial(quick.settings, training__batch_size=4, training__optimizer="AdamW")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes"), 32, size=(32, 40))


def rows(folder, name="metrics.csv"):
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def weights(model):
    return torch.cat([tensor.double().flatten() for tensor in model.state_dict().values()])


def test_train_evaluate_load_predict(scenes, tmp_path):
    """The whole way, learning something that can be checked by eye: a class is a colour."""
    run = settings(scenes, training__epochs=6, training__lr=0.01, training__head_lr=0.01)
    result = train(run, tmp_path / "run", quiet=True)
    found = rows(tmp_path / "run")
    assert [int(row["epoch"]) for row in found] == list(range(1, 7))
    assert float(found[-1]["loss"]) < 0.8 * float(found[0]["loss"])
    model = scaseg.load_model(tmp_path / "run" / "model")
    assert model.config.classes == CLASSES
    assert model.config.training["validation"]["epoch"] == result.best_epoch
    best = found[result.best_epoch - 1]
    test = FolderDataset(scenes, "test")
    judged = evaluate(model, test)
    assert judged.images == 8
    assert judged.scores.mean_iou > 0.4
    again = evaluate(model, FolderDataset(scenes, "val"))
    assert 100 * again.scores.mean_iou == pytest.approx(float(best["mIoU"]), abs=1e-9)
    # the temperature is that of the images that it was validated on, and it makes them likelier
    assert model.config.temperature == again.calibration.fit() != 1
    assert "after calibration" in again.table()
    losses = dict(zip(TEMPERATURES, again.calibration.losses.tolist(), strict=True))
    assert min(losses.values()) < losses[1.0]
    sample = test[0]
    scores = predict_scores(model, torch.from_numpy(sample.image).permute(2, 0, 1))
    assert scores.shape == (3, *sample.labels.shape)
    right = (scores.argmax(0).numpy() == sample.labels)[sample.labels != 255]
    assert right.mean() > 0.5
    recorded = {path.name for path in (tmp_path / "run").iterdir()}
    assert recorded == {
        *("recipe.yaml", "environment.json", "class_pixels.json", "metrics.csv", "per_class.csv"),
        *("checkpoints", "model", "curve.png", "data.html", "validation.jpg"),
    }
    assert load_recipe(tmp_path / "run" / "recipe.yaml").training.epochs == 6
    session = json.loads((tmp_path / "run" / "environment.json").read_text())["sessions"][0]
    assert session["packages"]["torch"] == torch.__version__


def test_the_same_seed_gives_the_same_weights_whatever_the_workers(scenes):
    def trained(**keys):
        run = settings(scenes, training__epochs=1, data__limit=8, data__val="null", **keys)
        return weights(train(run, None, quiet=True).model)

    first = trained()
    assert torch.equal(first, trained(machine__workers=2))
    assert torch.equal(first, trained(data__cache="ram"))
    assert torch.equal(first, trained(machine__activation_checkpointing="true"))
    assert not torch.equal(first, trained(training__seed=1))


def test_rates_and_groups_are_the_papers(scenes, tmp_path):
    """1e-3 and 1e-2, falling as (1 - step/steps)^0.9 after each step of 3 epochs of 4 steps."""
    run = quick.settings(scenes, training__epochs=3, training__batch_size=4)
    result = train(run, tmp_path / "run", quiet=True)
    for row, step in zip(result.rows, (4, 8, 12), strict=True):
        assert row["step"] == step
        assert row["lr"] == pytest.approx(1e-3 * (1 - step / 12) ** 0.9, abs=1e-12)
        assert row["head_lr"] == pytest.approx(1e-2 * (1 - step / 12) ** 0.9, abs=1e-12)


def test_accumulated_batches_are_one_step(scenes):
    run = settings(scenes, training__epochs=1, training__accumulate=3, data__val="null")
    assert train(run, None, quiet=True).rows[-1]["step"] == 2  # of 4 batches


def test_a_frozen_backbone_stays(scenes, tmp_path):
    keys = {"training__freeze_backbone": "true", "training__calibrate": "false", "data__limit": 4}
    run = settings(scenes, model__backbone="mobilenet_v2", training__epochs=1, **keys)
    model = train(run, None, quiet=True).model
    torch.manual_seed(0)
    fresh = scaseg.create_model("mobilenet_v2", "sca", "compact", classes=CLASSES, hidden=8)
    assert torch.equal(weights(model.backbone), weights(fresh.backbone))
    assert not torch.equal(weights(model.head), weights(fresh.head))


def test_early_stop(scenes, tmp_path):
    """At a rate of 0 nothing gets better, so the second validation without progress ends it."""
    keys = {"training__lr": 0, "training__head_lr": 0, "training__batch_norm": "frozen"}
    run = settings(scenes, training__epochs=9, training__early_stop=2, data__limit=4, **keys)
    result = train(run, tmp_path / "run", quiet=True)
    assert len(result.rows) == 3
    assert result.best_epoch == 1
    said = []
    again = train(run, tmp_path / "run", resume=True, quiet=True, log=said.append)
    assert said == [f"{tmp_path / 'run'}: this run is finished"]
    assert (len(again.rows), again.best_epoch) == (3, 1)
    assert torch.equal(weights(again.model), weights(result.model))
    assert (tmp_path / "run" / "model" / "config.json").is_file()


def test_tensorboard_writes_beside_the_metrics(scenes, tmp_path):
    run = settings(scenes, training__epochs=1, data__limit=4, training__loggers="tensorboard")
    train(run, tmp_path / "run", quiet=True)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


@pytest.mark.parametrize("loss", ["focal", "dice", "ohem"])
def test_other_losses_train(scenes, loss):
    run = settings(scenes, training__epochs=1, training__loss=loss, data__limit=8, data__val="null")
    found = train(run, None, quiet=True).rows[-1]["loss"]
    assert 0 < found < 3


def test_a_fast_dev_run_writes_nothing(scenes, tmp_path):
    result = train(settings(scenes), tmp_path / "run", fast_dev_run=True, quiet=True)
    assert not (tmp_path / "run").exists()
    assert len(result.rows) == 1
    assert not math.isnan(result.rows[0]["loss"])


def test_a_folder_without_lists_or_names(tmp_path):
    """A tenth is held out for validation, and evaluation finds the same images."""
    from scaseg.data.splits import evaluation_split

    root = write_scenes(tmp_path / "plain", 20, lists=False, classes=None)
    run = settings(root, training__epochs=1)
    result = train(run, tmp_path / "run", quiet=True)
    assert result.model.config.classes == ("class 0", "class 1", "class 2")
    held, said = evaluation_split(run.data, None)
    assert said == "2 of 20 training images held out"
    assert [pair.name for pair in held.pairs] == ["scene05", "scene15"]
    judged = evaluate(result.model, held)
    best = result.rows[result.best_epoch - 1]
    assert 100 * judged.scores.mean_iou == pytest.approx(best["mIoU"], abs=1e-9)


def test_a_run_that_diverges_stops_and_says_so(scenes, tmp_path):
    run = settings(scenes, training__lr=1e30, training__head_lr=1e30, training__epochs=3)
    with pytest.raises(
        RuntimeError, match=r"epoch 1, step \d+: the loss is not finite on scene\d+, "
    ):
        train(run, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "model").exists()


def test_photographs_in_both_lists_are_refused(tmp_path):
    root = write_scenes(tmp_path / "scenes", 8)
    names = (root / "train.txt").read_text()
    (root / "val.txt").write_text(names)
    with pytest.raises(ValueError, match="'scene04' is in train and in validation, 4 in all"):
        train(settings(root), None, quiet=True)


def test_other_data_without_lists_are_judged_whole(scenes, tmp_path):
    from scaseg.data.splits import evaluation_split

    other = write_scenes(tmp_path / "other", 6, lists=False)
    data = settings(other).data
    assert len(evaluation_split(data, None, trained_on=str(scenes))[0]) == 6
    assert len(evaluation_split(data, None, trained_on=str(other))[0]) == 1


def test_every_epoch_has_its_own_order_and_nothing_is_left_out(scenes, monkeypatch):
    from scaseg.data.loading import TrainingDataset

    seen, read = [], TrainingDataset.__getitem__

    def remember(self, key):
        seen.append(key)
        return read(self, key)

    monkeypatch.setattr(TrainingDataset, "__getitem__", remember)
    keys = {"data__limit": 7, "data__val": "null", "training__calibrate": "false"}
    train(settings(scenes, training__epochs=2, **keys), None, quiet=True)
    orders = [[index for epoch, index in seen if epoch == number] for number in (0, 1)]
    assert [sorted(order) for order in orders] == [list(range(7))] * 2
    assert orders[0] != orders[1]


def test_what_classes_weigh_reaches_the_loss(scenes):
    still = {"training__lr": 0, "training__head_lr": 0, "training__batch_norm": "frozen"}
    still |= {"training__epochs": 1, "data__limit": 5, "data__val": "null"}

    def loss(**keys):
        return train(settings(scenes, **still, **keys), None, quiet=True).rows[-1]["loss"]

    plain = loss(training__class_weights="none")
    assert loss(training__class_weights="inverse") != pytest.approx(plain, rel=1e-6)
    same = loss(training__class_weights="inverse", training__class_weight_range="[2, 2]")
    assert same == pytest.approx(plain, rel=1e-6)
    assert loss(training__class_weights="none", training__accumulate=2) == pytest.approx(plain)


def test_the_best_model_is_the_averaged_one_and_knows_its_data(scenes, tmp_path):
    """Its label map and size go with it, also before the run is finished."""
    from scaseg.models.labels import data_config

    run = settings(
        scenes, training__epochs=2, training__ema=0.5, data__label_map="{0: 2, 2: 0}",
        data__limit=8, augment__fit="[48, 56]",
    )  # fmt: skip
    result = train(run, tmp_path / "run", quiet=True)
    model = scaseg.load_model(tmp_path / "run" / "checkpoints" / "best")
    assert model.config.fit == (48, 56)
    data = data_config(model, None)
    assert (data.label_map, data.root) == ({0: 2, 2: 0}, str(scenes))
    val = FolderDataset(scenes, "val", label_map=data.label_map)
    best = result.rows[result.best_epoch - 1]
    assert 100 * evaluate(model, val).scores.mean_iou == pytest.approx(best["mIoU"], abs=1e-9)


def test_evaluation_leaves_a_model_as_it_was(scenes):
    model = scaseg.create_model("mobilenet_v2", "none", "compact", classes=CLASSES).train()
    model.backbone.eval()
    evaluate(model, FolderDataset(scenes, "val"))
    assert (model.training, model.backbone.training, model.head.training) == (True, False, True)


def test_transforms_of_the_users_own(scenes):
    from scaseg.data.transforms import Custom

    seen = []

    def remember(image, mask):
        seen.append(image.shape)
        return {"image": image, "mask": mask}

    run = settings(scenes, training__epochs=1, data__limit=3, data__val="null")
    train(run, None, quiet=True, transforms=[Custom(remember)])
    assert len(seen) == 7  # one to try it, three to calibrate the head, three to train


def test_a_run_that_is_not_there_cannot_be_resumed(scenes, tmp_path):
    for out, message in ((None, "needs --out"), (tmp_path / "nothing", "has no run")):
        with pytest.raises(ValueError, match=message):
            train(settings(scenes), out, resume=True, quiet=True)


def test_held_out_images_are_found_again_beside_lists(tmp_path):
    """train.txt and test.txt but no val.txt, and only the first images: what was held out."""
    from scaseg.data.splits import evaluation_split, training_splits

    root = write_scenes(tmp_path / "scenes", 24)
    (root / "val.txt").unlink()
    data = settings(root, data__limit=10).data
    train_part, held, _ = training_splits(data)
    names = [pair.name for pair in held.pairs]
    assert [pair.name for pair in evaluation_split(data, "val")[0].pairs] == names
    own = [pair.name for pair in evaluation_split(data, "train")[0].pairs]
    assert own == [pair.name for pair in train_part.pairs]
    assert not set(own) & set(names)
    assert len(evaluation_split(data, None)[0]) == 6  # the test split


def test_no_folder_is_what_generated_scenes_were():
    """Or a folder that is given to such a model would be taken for its own, and held out."""
    model = scaseg.create_model("tiny", head="pointwise", classes=2)
    assert trained_on(model) is None
    for data, where in (
        ({"name": "context_scenes_global", "root": None}, "generated scenes"),
        ({"name": "folder", "root": "photos"}, "photos"),
    ):
        model.config = replace(model.config, training={"recipe": {"data": data}})
        assert trained_on(model) == where


def test_from_python_as_by_command(scenes, tmp_path, capsys):
    """A recipe by name with overrides, a model by its folder: all that the commands do."""
    light = {"model.backbone": "tiny", "model.head": "auto", "machine.device": "cpu"}
    light |= {
        "model.backbone_weights": None,
        "augment.crop": None,
        "augment.fit": [40, 48],
        "machine.workers": 0,
    }
    overrides = {**light, "data.root": str(scenes), "data.limit": 4, "training.epochs": 1}
    result = scaseg.train("own_folder", tmp_path / "run", overrides=overrides)
    assert "best epoch 1" in result.summary()
    score = f"3 classes; 1 epoch; mIoU {result.rows[0]['mIoU']:.1f} in epoch 1; {tmp_path}/run)"
    assert repr(result) == f"Result(tiny, object, pointwise; {score}"
    assert "4 training images, 3 classes" in capsys.readouterr().err
    found = scaseg.evaluate(
        tmp_path / "run", split="val", overrides={"machine.device": "cpu"}, out=tmp_path / "out"
    )
    assert found.to_dict()["mIoU"] == pytest.approx(result.rows[0]["mIoU"])
    assert "8 images: the split val" in capsys.readouterr().err
    assert (tmp_path / "out" / "confusion.csv").is_file()
    with pytest.raises(scaseg.errors.UserError, match="overrides: given with a RunConfig"):
        train(settings(scenes), None, overrides={"training.epochs": 2})
    # the same command again is fine
    again = train(None, tmp_path / "run", resume=True, overrides=overrides, quiet=True)
    assert (again.best_epoch, again.rows) == (1, result.rows)
    for key, value, was in (("training.seed", 2, 0), ("model.start_from", "x", None)):
        problem = rf"--{key}: cannot change in a run that is resumed \({was} in "
        with pytest.raises(ValueError, match=f"{problem}.*; leave it out, or begin another run"):
            train(None, tmp_path / "run", resume=True, overrides={key: value})
