"""Repositories of the hub as they lie on a disk: weights, configs and what strangers put there."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import scaseg
from scaseg.errors import UserError
from scaseg.models.labels import trained_on
from scaseg.training.run import train
from tests.models.norms import stir
from tests.models.test_foreign import CONFIGS, DINO, small
from tests.scenes import write_scenes
from tests.training import quick

pytest.importorskip("transformers", reason="needs pip install 'scaseg[hf]'")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A classifier as its repository on the hub has it."""
    from transformers import ResNetConfig, ResNetForImageClassification

    folder = tmp_path_factory.mktemp("hub") / "resnet"
    torch.manual_seed(1)
    classifier = stir(ResNetForImageClassification(ResNetConfig(**CONFIGS["resnet"], num_labels=7)))
    classifier.save_pretrained(folder)
    facts = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3], "do_rescale": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def test_weights_and_normalization_are_the_repositorys(repository):
    from transformers import ResNetBackbone

    model = scaseg.create_model(
        f"hf:{repository}", "none", "pyramid", classes=2, backbone_weights="pretrained"
    ).eval()
    assert model.config.mean == (0.5, 0.4, 0.3)
    assert model.config.std == (0.2, 0.25, 0.3)
    assert "id2label" not in model.config.backbone_options["config"]
    theirs = ResNetBackbone.from_pretrained(
        str(repository), out_features=["stage1", "stage2", "stage3", "stage4"]
    ).eval()
    images = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        for (ours, _), own in zip(
            model.backbone.pyramid(images), theirs(images).feature_maps, strict=True
        ):
            torch.testing.assert_close(ours, own)


@pytest.mark.parametrize("lost", ["convolution.weight", "normalization.running_mean"])
def test_weights_that_lack_some(lost, repository, tmp_path):
    shutil.copytree(repository, tmp_path / "part")
    path = tmp_path / "part" / "model.safetensors"
    state = load_file(path)
    key = next(key for key in sorted(state) if ".stages.1." in key and key.endswith(lost))
    save_file({name: one for name, one in state.items() if name != key}, path, {"format": "pt"})
    with pytest.raises(UserError, match=rf"has no {re.escape(key.removeprefix('resnet.'))}"):
        scaseg.create_model(
            f"hf:{tmp_path / 'part'}", "none", "light", classes=2, backbone_weights="pretrained"
        )


def test_other_bands_than_three(repository):
    model = scaseg.create_model(
        f"hf:{repository}", "none", "pyramid", classes=2, in_channels=5, backbone_weights="imagenet"
    ).eval()
    assert model(torch.randn(1, 5, 32, 32)).shape == (1, 2, 32, 32)


def test_training_and_resuming_without_the_repository(repository, tmp_path, monkeypatch):
    """The run records the whole config; resumed elsewhere it needs no hub."""
    scenes = write_scenes(tmp_path / "scenes", 4, size=(32, 40))
    monkeypatch.chdir(repository.parent)
    run = quick.settings(
        scenes, model__backbone="hf:resnet", model__backbone_weights="pretrained",
        model__head="auto", training__epochs=2, training__layer_decay=0.7,
    )  # fmt: skip
    model = train(run, tmp_path / "run", quiet=True).model
    assert model.config.head == "pyramid"
    assert model.config.mean == (0.5, 0.4, 0.3)
    monkeypatch.chdir(tmp_path)  # where no folder is called resnet
    longer = train(
        None, tmp_path / "run", resume=True, overrides={"training.epochs": 3}, quiet=True
    )
    assert len(longer.rows) == 3
    assert trained_on(scaseg.load_model(tmp_path / "run"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "bert"}, "config: model_type 'bert' is no backbone"),
        ({"model_type": "timm_backbone", "backbone": "x"}, "model_type 'timm_backbone' is no"),
        ({"model_type": "resnet", "depths": [10**9]}, "config: 1000000000 layers; give at most"),
        ({"model_type": "resnet", "depths": ["a"]}, "no network can be built from it"),
        ({"model_type": ["resnet"]}, "config: model_type ['resnet'] is no backbone"),
        (
            {**DINO, "model_type": "dinov2", "num_attention_heads": 0},
            "no network can be built from it",
        ),
        ({"model_type": "resnet", "hidden_act": "nothing"}, "no network can be built from it"),
    ],
)
def test_configs_that_are_no_backbones(config, said, tmp_path):
    with pytest.raises(UserError, match=re.escape(said)):
        scaseg.create_model("hf:x", "none", "light", classes=2, backbone_options={"config": config})
    model = small("resnet")  # and in a model's file, by strangers
    model.save_pretrained(tmp_path)
    options = {**model.config.backbone_options, "config": config}
    plain = replace(model.config, backbone_options=options).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(UserError, match=re.escape(said)):
        scaseg.load_model(tmp_path)


@pytest.mark.parametrize("facts", [{"image_mean": None}, {"rescale_factor": "a"}])
def test_preprocessing_that_says_nothing(facts, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(small("resnet").backbone.network.config.to_dict())
    )
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_std": [1, 1, 1], **facts})
    )
    with pytest.raises(UserError, match=r"preprocessor_config\.json: no mean and std of pixels"):
        scaseg.create_model(f"hf:{tmp_path}", "none", "light", classes=2)


def test_nothing_of_a_file_is_run_or_fetched(tmp_path):
    """A config can name code of its repository, or an attention kernel to be downloaded."""
    bad = {"auto_map": {"AutoBackbone": "evil.Backbone"}, "_attn_implementation": "someone/kernel"}
    options = {"config": {"model_type": "resnet", **CONFIGS["resnet"], **bad}}
    model = scaseg.create_model("hf:x", "none", "pyramid", classes=2, backbone_options=options)
    assert not bad.keys() & model.config.backbone_options["config"].keys()
    model.save_pretrained(tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    plain["backbone_options"]["config"] |= {**bad, "attn_implementation": "someone/kernel"}
    (tmp_path / "config.json").write_text(json.dumps(plain))
    again = scaseg.load_model(tmp_path)
    assert again.backbone.network.config._attn_implementation == "eager"
