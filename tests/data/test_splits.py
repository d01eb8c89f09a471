"""Splits as the recipe says; folds test every photograph once, copies together."""

import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.config.recipe import load_recipe
from scaseg.config.run import DataConfig
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.splits import (
    assign_folds,
    build_dataset,
    duplicate_groups,
    evaluation_split,
    merge_splits,
    split_fold,
    training_splits,
)
from scaseg.registry import DATASETS
from tests.scenes import write_scenes
from tests.shared import SHARED, needs

STANFORD = SHARED / "data" / "stanford_background"


def test_every_image_is_tested_once_and_folds_are_even():
    names = [f"image{index}" for index in range(23)]
    folds = assign_folds(names, names, 5)
    assert sorted(Counter(folds).items()) == [(1, 5), (2, 5), (3, 5), (4, 4), (5, 4)]
    # the same on every machine, whatever the order of the files
    assert assign_folds(names[::-1], names[::-1], 5)[::-1] == folds
    assert folds[:8] == [1, 5, 4, 3, 5, 3, 2, 4]


def test_copies_stay_together_and_folds_stay_even():
    names = [f"image{index}" for index in range(20)]
    copies = [str(index // 2) if index < 6 else str(index) for index in range(20)]
    folds = assign_folds(names, copies, 4)
    assert set(Counter(folds).values()) == {5}
    for index in (0, 2, 4):
        assert folds[index] == folds[index + 1]
    with pytest.raises(
        ValueError, match=r"data\.folds: 5 folds of 1 different photographs; give fewer folds"
    ):
        assign_folds(names, ["same"] * 20, 5)


@pytest.fixture
def scenes(tmp_path):
    """12 photographs in three lists, the first of train copied as the last of test."""
    root = write_scenes(tmp_path / "scenes", 12, size=(24, 24))
    first, last = (
        (root / f"{split}.txt").read_text().split()[place]
        for split, place in (("train", 0), ("test", -1))
    )
    for folder in ("images", "labels"):
        shutil.copy(root / folder / f"{first}.png", root / folder / f"{last}.png")
    shutil.copy(root / "images" / "scene00.png", root / "images" / "unlisted.png")
    return root


def test_all_listed_images_take_part_and_copies_are_on_one_side(scenes):
    tested = []
    for fold in (1, 2, 3):
        config = DataConfig(root=str(scenes), folds=3, fold=fold, hold_out=0.25)
        train, val, said = training_splits(config)
        test, where = evaluation_split(config, None)
        assert (said, where) == (
            f"fold {fold} of 3, {len(val)} more held out for validation",
            f"fold {fold} of 3",
        )
        parts = [set(part.names) for part in (train, val, test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 12
        contents = [{pair.image.read_bytes() for pair in part.pairs} for part in (train, val, test)]
        assert sum(map(len, contents)) == len(set.union(*contents)) == 11  # one is a copy
        assert evaluation_split(config, "val")[0].names == val.names
        assert evaluation_split(config, "train")[0].names == train.names
        tested += test.names
    assert sorted(tested) == [f"scene{index:02}" for index in range(12)]


def test_without_validation_all_the_rest_trains(scenes):
    train, val, said = training_splits(DataConfig(root=str(scenes), folds=4, fold=1, val=None))
    assert (len(train), val, said) == (9, None, "fold 1 of 4, no validation")


def test_generated_scenes_have_folds_too():
    config = DataConfig(name="context_scenes_global", folds=2, fold=2, val=None)
    train, _, _ = training_splits(config)
    test, _ = evaluation_split(config, "test")
    assert len(train) == len(test) == 1300
    assert not set(train.names) & set(test.names)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"data.folds": "3"},
            r"data.fold: nothing, but data.folds is 3; give the fold to test, 1 to 3",
        ),
        ({"data.fold": "2"}, r"--data.fold: 2, and data.folds is None; set data.folds too"),
        ({"data.folds": "3", "data.fold": "4"}, r"data.fold: 4, .* give 1 to 3"),
        ({"data.folds": "99", "data.fold": "4"}, r"data.folds: 99 folds of 11 different"),
        ({"data.folds": "3", "data.fold": "1", "data.val": "val"}, r"data.val: 'val', but"),
        ({"data.folds": "3", "data.fold": "1", "data.train": "val"}, r"data.train: 'val', but"),
    ],
)
def test_what_does_not_fit_is_said(scenes, keys, message):
    with pytest.raises(ValueError, match=message):
        training_splits(load_recipe(None, {"data.root": str(scenes), **keys}).data)


def test_a_model_is_judged_on_its_own_fold(scenes, tmp_path, capsys):
    """The recipe in the model says which; wherever the same data lie."""
    light = ["--backbone", "tiny", "--backbone-weights", "null", "--head", "auto"]
    light += ["--device", "cpu", "--workers", "0", "--epochs", "1", "--augment.crop", "[40, 48]"]
    run = str(tmp_path / "run")
    main(["train", "--data", str(scenes), "--out", run, *light, "--quiet", "--data.folds", "3",
          "--data.fold", "2"])  # fmt: skip
    moved = scenes.rename(tmp_path / "moved")
    main(["evaluate", "--model", run, "--data", str(moved), "--split", "test", "--device", "cpu"])
    assert "4 images: fold 2 of 3" in capsys.readouterr().err


@needs(STANFORD)
def test_stanford_background_has_folds_of_143():
    """The literature's 572 / 143, and its three photographs that occur twice on one side each."""
    config = DataConfig(root=str(STANFORD), folds=5, fold=1, val=None)
    train, _, _ = training_splits(config)
    test, _ = evaluation_split(config, None)
    assert (len(train), len(test)) == (572, 143)
    everything = merge_splits([train, test])
    copies = duplicate_groups(everything)
    assert sorted(Counter(copies).values())[-4:] == [1, 2, 2, 2]
    for fold in range(1, 6):
        parts = split_fold(everything, 5, fold, 0.1)
        assert sum(map(len, parts)) == 715
        sides = [{copies[index] for index in part} for part in parts]
        assert sum(map(len, sides)) == 712


@pytest.fixture
def root(tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "images" / "a.jpg")
    Image.fromarray(np.array([[0, 1, 2], [7, 255, 1]], np.uint8)).save(
        tmp_path / "labels" / "a.png"
    )
    (tmp_path / "train.txt").write_text("a")
    return tmp_path


def test_a_data_set_gets_what_the_recipe_says(root):
    config = DataConfig(
        root=str(root),
        classes=("x", "y"),
        label_map={255: 1},
        reduce_zero_label=True,
        ignore_index=7,
    )
    dataset = build_dataset(config, "train")
    assert isinstance(dataset, FolderDataset)
    assert dataset.split == "train"
    assert dataset[0].labels.tolist() == [[255, 0, 1], [255, 0, 0]]


def test_the_recipes_classes_come_before_others(root):
    config = DataConfig(root=str(root))
    assert build_dataset(config, None).classes is None
    assert build_dataset(config, None, ["a", "b"]).classes == ("a", "b")
    named = DataConfig(root=str(root), classes=("x", "y"))
    assert build_dataset(named, None, ["a", "b"]).classes == ("x", "y")


def test_what_cannot_be_opened_is_said(root):
    with pytest.raises(ValueError, match=r"--data: nothing; give the folder of the data"):
        build_dataset(DataConfig(), "train")
    with pytest.raises(ValueError, match=f"data.name: 'ade'; .*give one of {', '.join(DATASETS)}"):
        build_dataset(DataConfig(name="ade", root=str(root)), "train")
