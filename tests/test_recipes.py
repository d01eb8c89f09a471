"""Every recipe is complete, loads, and builds the network that its name promises."""

import re

import pytest
import torch
import yaml

from scaseg.config.model import ModelConfig
from scaseg.config.recipe import describe, find_recipe, load_recipe, recipe_names
from scaseg.config.run import RunConfig
from scaseg.data.transforms import build_transforms
from scaseg.models.build import build_model
from scaseg.training.build import check_run

RECIPES = [find_recipe(name) for name in recipe_names()]
PAPER = ["pascal_context", "coco_stuff_10k", "sift_flow"]


def test_the_papers_experiments_and_ours_are_all_there():
    names = {path.stem for path in RECIPES}
    assert set(PAPER) <= names
    assert {"stanford_background", "camvid", "own_folder"} <= names


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_complete_loads_and_builds(path):
    run = load_recipe(path)
    plain = yaml.safe_load(path.read_text())
    assert {f"{section}.{key}" for section, keys in plain.items() for key in keys} == {
        key for key, *_ in describe()
    }
    check_run(run)
    build_transforms(run.augment)
    with torch.device("meta"):  # shapes without memory
        model = build_model(
            ModelConfig(
                classes=("a", "b"),
                backbone=run.model.backbone,
                context=run.model.context,
                head=run.model.head,
                context_options=run.model.context_options,
                backbone_options=run.model.backbone_options,
            )
        )
    assert model.head.score.out_channels == 2
    header = path.read_text().partition("\ndata:")[0]
    assert re.search(rf"# scaseg (train|compare) {path.stem} ", header)  # says how it is run


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_are_the_papers(name):
    """Section 4 of the paper; only the context and the data differ."""
    run = load_recipe(name)
    training = run.training
    assert (training.epochs, training.batch_size) == (50, 3)
    assert (training.lr, training.head_lr, training.poly_power) == (1e-3, None, 0.9)
    assert (training.optimizer, training.momentum, training.weight_decay) == ("SGD", 0.9, 5e-4)
    assert (training.class_weights, training.loss) == ("paper", "cross_entropy")
    assert (run.model.backbone, run.model.head) == ("vgg16", "fcn")
    assert run.model.backbone_weights == "imagenet"
    assert run.augment.flip == 0.5
    assert run.model.context == "sca"
    assert run.model.context_options == {"layers": 3, "hidden": 512}
    assert run.augment.fit == (None if name.startswith("sift") else (448, 448))


def test_the_defaults_are_the_papers_too():
    paper = load_recipe("sift_flow")
    assert RunConfig().training == paper.training
