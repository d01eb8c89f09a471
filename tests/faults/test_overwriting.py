"""Results replace results of ours; a photograph, a label map, a model or a run never."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from scaseg.cli import main
from scaseg.data.folders.layout import dataset_folders
from tests.faults.catalogue import cases, fingerprint, refuse
from tests.faults.test_bad_options import EVALUATE, EXPLAIN, PREDICT, train_into

IMAGES = ("predict", "data/images", "--model", "model", "--device", "cpu", "--overwrite", "--out")
WEIGHTS = "model/model.safetensors"
FOREIGN = "was not made by scaseg; only results are replaced: give another place"


def photograph_called(name):
    return lambda: shutil.copy("photo.png", name)


def a_file(name):
    def spoil():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"mine")

    return spoil


def a_recipe_with_its_model():
    """What a user may have: a recipe and a model beside each other, and no run."""
    Path("own").mkdir()
    shutil.copy("run/recipe.yaml", "own/recipe.yaml")
    shutil.copytree("model", "own/model")


def labels_with_a_result():
    """New results among the label maps of a dataset: those must stay all the same."""
    Path("mixed").mkdir()
    main([*IMAGES[:1], "photo.png", *IMAGES[2:], "mixed", "--quiet"])
    shutil.copy("label.png", "mixed/scene02.png")


@cases(
    ("labels", (*IMAGES, "data/labels"), "data/labels: belongs to the dataset"),
    ("photographs", (*IMAGES, "data/images/"), "data/images: belongs to the dataset"),
    ("labels elsewhere", (*IMAGES, "mixed"), FOREIGN, labels_with_a_result, 2, True),
    (
        "another photograph",
        ("predict", "scene.bmp", "--model", "model", "--out", "own", "--overwrite"),
        FOREIGN,
        lambda: (a_file("own/scene.png")(), photograph_called("scene.bmp")()),
    ),
    ("a model", (*PREDICT, "--out", "model", "--overwrite"), "--out: model: holds a model; give"),
    ("a run", (*PREDICT, "--out", "run"), "--out: run: holds a run; give a folder of its own: run"),
    (
        "a config",
        ("predict", "config.png", "--model", "model", "--out", "own", "--json", "--overwrite"),
        FOREIGN,
        lambda: (photograph_called("config.png")(), a_file("own/config.json")()),
    ),
    (
        "explain: the photograph",
        (*EXPLAIN, "--point", "1,1", "--out", "photo.png", "--overwrite"),
        f"--out: photo.png: {FOREIGN}",
    ),
    (
        "explain: weights",
        (*EXPLAIN, "--point", "1,1", "--overwrite", "--format", "png", "--out", WEIGHTS),
        FOREIGN,
    ),
    ("evaluate: a model", (*EVALUATE, "--out", "model"), "--out: model: holds a model; give"),
    ("evaluate: labels", (*EVALUATE, "--out", "data/labels"), "belongs to the dataset"),
    ("evaluate: a picture", (*EVALUATE, "--out", "own"), FOREIGN, a_file("own/per_class.png")),
    (
        "train: a recipe and a model",
        (*train_into("own"), "--overwrite"),
        "own holds model, and no run; give another folder",
        a_recipe_with_its_model,
    ),
    (
        "compare: a run",
        ("compare", "run/recipe.yaml", "--out", "run", "--workers", "0"),
        "run holds checkpoints, and no comparison; give another folder",
    ),
    (
        "demo: runs",
        ("demo", "--out", "own", "--overwrite"),
        "own holds runs, and no demo; give another folder",
        a_file("own/runs/first/model/config.json"),
    ),
)
def test_what_is_not_ours_is_never_replaced(case, world, capsys):
    refuse(case, capsys)


def test_results_of_ours_are_replaced(world):
    arguments = (*PREDICT, "--overlay", "--scores", "--json", "--overwrite", "--quiet")
    for model in ("model", "model", "other"):
        main([*arguments, "--model", model])
    main([*EVALUATE, "--split", "all", "--out", "scores", "--quiet"])
    before = fingerprint(Path("scores"))
    main([*EVALUATE, "--split", "all", "--out", "scores", "--quiet"])
    assert fingerprint(Path("scores")) == before


def test_a_new_folder_of_labels_may_lie_beside_the_images(world):
    shutil.rmtree("data/labels")
    for _ in range(2):
        main([*IMAGES, "data/labels", "--quiet"])
    with Image.open("data/labels/scene01.png") as labels:
        assert labels.info["Software"] == "made by scaseg"


def test_a_demo_does_not_remove_what_was_trained_into_it(world, capsys):
    shutil.copytree("run", "demo/runs/mine")
    Path("demo/demo.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["demo", "--out", "demo", "--overwrite"])
    assert "demo holds runs/mine, and no demo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "photographs", "labels"),
    [
        (["leftImg8bit", "gtFine", "gtCoarse"], {"leftImg8bit"}, {"gtFine", "gtCoarse"}),
        (["train", "train_labels", "val", "val_labels"], {"train", "val"}, None),
        (["images", "annotations"], {"images"}, {"annotations"}),
        (["images", "results"], set(), set()),
        (["labels"], set(), set()),
    ],
)
def test_folders_of_datasets(names, photographs, labels):
    found = dataset_folders(names)
    assert found == (photographs, set(names) - photographs if labels is None else labels)
