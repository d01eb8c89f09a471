"""Every recipe is complete, loads, and builds the network that its name promises."""

from pathlib import Path

import pytest
import torch
import yaml

from scaseg.config.model import ModelConfig
from scaseg.config.recipe import describe, load_recipe
from scaseg.config.run import RunConfig
from scaseg.data.build import build_transforms
from scaseg.models.build import BACKBONES, USUAL_HEADS, build_model
from scaseg.models.heads import HEADS
from scaseg.registry import DATASETS
from scaseg.training.build import check_training

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.yaml"))
PAPER = [
    *(f"{data}_{context}" for data in ("pascal_context", "coco_stuff_10k", "sift_flow")
      for context in ("sca", "average", "none")),
    *(f"sift_flow_layers_{layers}" for layers in range(5)),
    *(f"sift_flow_hidden_{hidden}" for hidden in (128, 256, 512)),
]  # fmt: skip


def test_the_papers_experiments_and_ours_are_all_there():
    names = {path.stem for path in RECIPES}
    assert set(PAPER) <= names
    assert {"stanford_background_sca", "camvid_sca", "own_folder"} <= names


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_complete_loads_and_builds(path):
    run = load_recipe(path)
    plain = yaml.safe_load(path.read_text())
    assert {f"{section}.{key}" for section, keys in plain.items() for key in keys} == {
        key for key, *_ in describe()
    }
    check_training(run.training)
    build_transforms(run.augment)
    assert run.data.name in DATASETS
    with torch.device("meta"):  # shapes without memory
        model = build_model(
            ModelConfig(
                classes=("a", "b"),
                backbone=run.model.backbone,
                context=run.model.context,
                head=run.model.head,
                context_options=run.model.context_options,
            )
        )
    assert model.head.score.out_channels == 2
    assert f"recipes/{path.name}" in path.read_text()  # says how it is run


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_are_the_papers(name):
    """Section 4 of the paper; only the context and the data differ."""
    run = load_recipe(RECIPES[0].parent / f"{name}.yaml")
    training = run.training
    assert (training.epochs, training.batch_size) == (50, 3)
    assert (training.lr, training.head_lr, training.poly_power) == (1e-3, None, 0.9)
    assert (training.optimizer, training.momentum, training.weight_decay) == ("SGD", 0.9, 5e-4)
    assert (training.class_weights, training.loss) == ("paper", "cross_entropy")
    assert (run.model.backbone, run.model.head) == ("vgg16", "fcn")
    assert run.model.backbone_weights == "imagenet"
    assert run.augment.flip == 0.5
    options = run.model.context_options
    if "layers_" in name:
        assert options == {"layers": int(name[-1]), "hidden": 128}
    elif "hidden_" in name:
        assert options == {"layers": 3, "hidden": int(name.rsplit("_", 1)[1])}
    elif name.endswith("sca"):
        assert options == {"layers": 3, "hidden": 512}
    else:
        assert run.model.context == name.rsplit("_", 1)[1]
    assert run.augment.fit == (None if name.startswith("sift") else (448, 448))


def test_every_backbone_has_its_usual_head():
    assert set(USUAL_HEADS) == set(BACKBONES)
    assert set(USUAL_HEADS.values()) <= set(HEADS)
    assert USUAL_HEADS["vgg16"] == "fcn"


def test_the_defaults_are_the_papers_too():
    paper = load_recipe(RECIPES[0].parent / "sift_flow_sca.yaml")
    assert RunConfig().training == paper.training
