"""A setting that does nothing is an error where it is typed, and none where a recipe has it."""

import inspect

import pytest

from scaseg.config.effect import WITH_MOMENTUM, require_effect
from scaseg.config.keys import COMPARED, EVALUATED, SECTIONS, is_read
from scaseg.config.recipe import describe, load_recipe
from scaseg.errors import UserError
from scaseg.models.build import create_model
from scaseg.training.build import OPTIMIZERS
from scaseg.training.evaluation import evaluate


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"data.cache_dir": "x"}, "data.cache_dir"),
        ({"data.bands": 5, "augment.hue": 0.1}, "augment.hue"),
        ({"augment.fill": "mirror"}, "augment.fill"),
        (
            {"augment.fit": [64, 64], "augment.scale": [1, 2], "augment.fill": "mirror"},
            "augment.fill",
        ),
        ({"data.shuffle_buffer": 9}, "data.shuffle_buffer"),
        ({"data.name": "shards", "data.root": "x", "data.shard_cache": 9}, "data.shard_cache"),
        ({"data.val": None, "data.hold_out": 0.2}, "data.hold_out"),
        ({"data.val": "val", "data.hold_out": 0.2}, "data.hold_out"),
        ({"data.val": None, "training.early_stop": 3}, "training.early_stop"),
        ({"data.val": None, "training.validate_every": 3}, "training.validate_every"),
        ({"model.start_from": "outdoor", "training.calibrate": False}, "training.calibrate"),
        ({"model.head": "pyramid", "training.calibrate": False}, "training.calibrate"),
        (
            {"model.backbone": "tiny", "model.backbone_options.stages": 3},
            "model.backbone_options.stages",
        ),
        ({"data.name": "context_scenes_global", "data.check": "quick"}, "data.check"),
        (
            {"training.class_weights": "none", "training.class_weight_range": [1, 2]},
            "training.class_weight_range",
        ),
        ({"training.freeze_backbone": True, "training.batch_norm": "train"}, "training.batch_norm"),
        (
            {"training.freeze_backbone": True, "training.head_lr": 0.1, "training.lr": 0.1},
            "training.lr",
        ),
        ({"training.optimizer": "AdamW", "training.momentum": 0.5}, "training.momentum"),
        ({"model.context": "none", "model.context_options.hidden": 8}, "model.context_options.hid"),
        ({"model.context": "average", "training.score_lr_factor": 0.1}, "training.score_lr_factor"),
    ],
)
def test_a_setting_without_effect(settings, key):
    run = load_recipe(None, settings)
    require_effect(run, [])  # as a recipe has it
    with pytest.raises(UserError, match=f"^--{key}.*: has no effect: "):
        require_effect(run, settings)


def test_pictures_are_also_of_training_images():
    settings = {"data.val": None, "training.pictures": 0}
    require_effect(load_recipe(None, settings), settings)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_which_optimizers_have_momentum(optimizer):
    has = "momentum" in inspect.signature(OPTIMIZERS[optimizer]).parameters
    assert has == (optimizer.lower() in WITH_MOMENTUM)


def test_the_keys_that_commands_read_are_keys():
    known = [key for key, *_ in describe()]
    for read in (SECTIONS, COMPARED, EVALUATED):
        for one in read:
            assert any(is_read(key, [one]) for key in known), one
    assert all(is_read(key, SECTIONS) for key in known)
    assert [key for key in known if not is_read(key, COMPARED)] == ["model.context"]


def test_a_model_is_given_only_options_that_its_context_takes():
    with pytest.raises(UserError, match=r"^context_options.hidden: has no effect: none does not"):
        create_model("tiny", "none", "pointwise", classes=2, hidden=8)
    with pytest.raises(UserError, match=r"^context: 'nonee'; did you mean none"):
        create_model("tiny", "nonee", "pointwise", classes=2, hidden=8)


def test_evaluate_refuses_what_it_does_not_read():
    with pytest.raises(UserError, match=r"^--data.limit: has no effect in this command"):
        evaluate("outdoor", "nowhere", overrides={"data.limit": "3"})
