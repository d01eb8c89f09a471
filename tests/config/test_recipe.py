from dataclasses import fields, is_dataclass, replace
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaseg.config.reading import choices_of
from scaseg.config.recipe import describe, load_recipe, recipe_names, save_recipe, to_yaml
from scaseg.config.run import (
    AugmentConfig,
    DataConfig,
    MachineConfig,
    NetworkConfig,
    RunConfig,
    TrainingConfig,
)
from scaseg.errors import UserError
from scaseg.losses import LOSSES
from scaseg.registry import BACKBONES, CONTEXTS, DATASETS, HEADS

UNUSUAL = RunConfig(
    data=DataConfig(
        name="coco_stuff_10k",
        root="2010",
        val=None,
        limit=7,
        classes=("no", "1e5", "null", "ü: [ä]", "a, b"),
        label_map={255: 1, 0: 254},
        reduce_zero_label=True,
        cache="disk",
        cache_dir="~",
    ),
    augment=AugmentConfig(flip=0.0, fit=(448, 300), scale=(0.75, 2.0), crop=(8, 9)),
    model=NetworkConfig(
        backbone_weights="true",
        context_options={"hidden": 8, "activation": "relu", "nested": {"a": [1, None, "1e-3"]}},
        palette=((0, 1, 2), (255, 254, 253)),
    ),
    training=TrainingConfig(
        lr=1e-5,
        head_lr=1e20,
        optimizer_options={"eps": 1e-08, "betas": [0.9, 0.999]},
        class_weight_range=(0.5, 16.0),
        seed=2**32 - 1,
        loggers=("tensorboard", "csv"),
    ),
    machine=MachineConfig(precision="16", workers=0),
)


def write(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("run", [RunConfig(), UNUSUAL], ids=["defaults", "unusual"])
def test_what_is_saved_is_loaded(tmp_path, run):
    save_recipe(run, tmp_path / "recipe.yaml")
    assert load_recipe(tmp_path / "recipe.yaml") == run
    # and once more through the overrides' way, which takes everything apart
    again = load_recipe(tmp_path / "recipe.yaml", {"training.epochs": str(run.training.epochs)})
    assert again == run


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
numbers = st.floats(0, 1e30) | st.integers(0, 10**6).map(float)


@given(words, st.lists(words, max_size=4), st.dictionaries(words, words | numbers), numbers)
def test_any_text_and_number_survives(tmp_path_factory, root, classes, options, rate):
    run = RunConfig(
        data=DataConfig(root=root, classes=tuple(classes)),
        training=TrainingConfig(optimizer_options=options, lr=rate),
    )
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    save_recipe(run, path)
    assert load_recipe(path) == run


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "{}", "data: {}\n", "\ufeff"])
def test_an_empty_file_is_the_defaults(tmp_path, text):
    assert load_recipe(write(tmp_path, text)) == RunConfig()


def test_a_recipe_as_people_write_it(tmp_path):
    text = """
        # numbers with and without a point, lists of either form
        data: {root: photos, classes: [no, yes], label_map: {255: 1}}
        augment:
          crop:
          - 64
          - 96
        training: {lr: 1e-3, epochs: 1e1, optimizer_options: {eps: 1e-8}, freeze_backbone: True}
        machine: {precision: 16}
    """
    run = load_recipe(write(tmp_path, text))
    assert run.data == DataConfig(root="photos", classes=("no", "yes"), label_map={255: 1})
    assert run.augment.crop == (64, 96)
    assert (run.training.lr, run.training.epochs) == (0.001, 10)
    assert run.training.optimizer_options == {"eps": 1e-8}
    assert run.machine.precision == "16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training: {epochs: 0}", "training.epochs: 0; give a whole number >= 1"),
        ("training: {epoch: 1}", "training.epoch: unknown key; did you mean epochs?"),
        ("trainig: {}", "trainig: unknown key; did you mean training?"),
        ("training:", "training: None; give a mapping of keys to values"),
        ("- 1", r"recipe: \[1\]; give a mapping of keys to values"),
        ("data: {root: 2010}", "data.root: 2010; give text, or null"),
        ("training: {lr: .nan}", "training.lr: nan; give a number >= 0"),
        ("training: {loss: hinge}", "training.loss: 'hinge'; give one of cross_entropy, focal"),
        ("augment: {scale: [2, 1]}", "augment.scale: from 2.0 to 1.0; give the smaller first"),
        (
            "training: {class_weight_range: [2, 1]}",
            "training.class_weight_range: from 2.0 to 1.0; give the smaller first",
        ),
        ("data: {root: a}\ndata: {root: b}", "line 2: the key data is given twice; keep one"),
        ("data:\n  root: a\n  val: b\n  root: c", "line 4: the key root is given twice; keep one"),
        ("data: {label_map: {1: 2,\n 1: 3}}", "line 2: the key 1 is given twice; keep one"),
        ("data:\n  root: [a\n", r"line 3: invalid YAML \("),
        ("data: !!python/object:os.x {}", r"line 1: invalid YAML \("),
        ("data: {root: a}\n\tval: b", r"line 2: invalid YAML \("),
        ("? [a, b]\n: 1", r"line 1: invalid YAML \(found unhashable key\)"),
        ("data: {root: 'a\x00'}", r"invalid YAML \(unacceptable character"),
    ],
)
def test_faults_of_a_file_name_it_and_the_place(tmp_path, text, said):
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=rf"recipe\.yaml: {said}") as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"no\.yaml: no such file; give a recipe in YAML"):
        load_recipe(tmp_path / "no.yaml")
    with pytest.raises(ValueError, match="a folder; give a recipe in YAML, or --data"):
        load_recipe(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"data: {root: \xe4\xff}")
    with pytest.raises(ValueError, match=r"latin\.yaml: cannot be read"):
        load_recipe(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("training.epochs", "3", 3),
        ("data.root", "2010", "2010"),
        ("data.root", "null", None),
        ("augment.scale", "[0.75, 2]", (0.75, 2.0)),
        ("augment.fit", "null", None),
        ("data.classes", "sky,tree", ("sky", "tree")),
        ("data.label_map", "{255: 1}", {255: 1}),
        ("training.lr", "1e-4", 1e-4),
        ("machine.precision", "bf16", "bf16"),
        ("machine.precision", "16", "16"),
    ],
)
def test_overrides_come_last(tmp_path, key, text, expected):
    recipe = "{data: {root: a, classes: [x]}, augment: {fit: [9, 9]}, training: {epochs: 9}}"
    run = load_recipe(write(tmp_path, recipe), {key: text})
    section, name = key.split(".")
    assert getattr(getattr(run, section), name) == expected
    if key != "data.root":
        assert run.data.root == "a"


def test_options_are_overridden_one_by_one(tmp_path):
    path = write(tmp_path, "training: {optimizer_options: {eps: 1, nesterov: true}}")
    run = load_recipe(path, {"training.optimizer_options.eps": "1e-8"})
    assert run.training.optimizer_options == {"eps": 1e-8, "nesterov": True}
    overrides = {
        "training.loss_options": "{keep: 0.5}",
        "training.loss_options.threshold": "0.25",
        "data.label_map.255": "1",
    }
    run = load_recipe(path, overrides)
    assert run.training.loss_options == {"keep": 0.5, "threshold": 0.25}
    assert run.data.label_map == {255: 1}


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("training.epochs", "many", "--training.epochs: 'many'; give a whole number >= 1"),
        ("training.epoch", "1", "--training.epoch: unknown key; did you mean epochs?"),
        ("trainig.epochs", "1", "--trainig: unknown key; did you mean training?"),
        ("training", "1", "--training: '1'; give a mapping of keys to values"),
        ("data.root.deep", "1", r"--data.root: {'deep': 1}; give text, or null"),
        (
            "training.loss_options.gamma",
            "[1",
            r"--training.loss_options.gamma: '\[1'; line 1: invalid",
        ),
        ("augment.scale", "[2, 1]", "--augment.scale: from 2.0 to 1.0; give the smaller first"),
        ("training.lr", "inf", "--training.lr: 'inf'; give a number >= 0"),
    ],
)
def test_faults_of_an_override_name_the_option(key, text, said):
    with pytest.raises(ValueError, match=f"^{said}") as caught:
        load_recipe(None, {key: text})
    assert "\n" not in str(caught.value)


def test_data_take_the_place_of_the_recipes(tmp_path):
    path = write(tmp_path, "{data: {root: a, limit: 3}, training: {epochs: 9}}")
    data = DataConfig(root="b")
    assert load_recipe(path, data=data).data == data
    assert load_recipe(path, {"data.limit": "4"}, data=data).data == replace(data, limit=4)
    assert load_recipe(path, data=data).training.epochs == 9


def all_keys(kind, path=""):
    for item in fields(kind):
        hint = get_type_hints(kind)[item.name]
        if is_dataclass(hint):
            yield from all_keys(hint, f"{path}{item.name}.")
        else:
            yield f"{path}{item.name}"


def test_every_key_is_described_once():
    described = list(describe(UNUSUAL))
    assert [key for key, *_ in described] == list(all_keys(RunConfig))
    for key, value, fits, about in described:
        section, name = key.split(".")
        assert value == getattr(getattr(UNUSUAL, section), name)
        assert fits.strip(), key
        assert about.strip(), key
    assert [value for _, value, *_ in describe()] == [
        value for _, value, *_ in describe(RunConfig())
    ]


def test_short_lists_are_written_in_one_line():
    assert "  crop: [8, 9]\n" in to_yaml(UNUSUAL)


@pytest.mark.parametrize(
    ("config", "key", "registry"),
    [
        (DataConfig, "name", DATASETS),
        (NetworkConfig, "backbone", BACKBONES),
        (NetworkConfig, "context", CONTEXTS),
        (NetworkConfig, "head", ("auto", *HEADS)),
        (TrainingConfig, "loss", LOSSES),
    ],
)
def test_the_choices_are_what_can_be_built(config, key, registry):
    (facts,) = (item.metadata for item in fields(config) if item.name == key)
    assert choices_of(get_type_hints(config)[key], facts) == tuple(registry)


def test_recipes_of_the_package_go_by_name(tmp_path, monkeypatch):
    assert "own_folder" in recipe_names()
    assert load_recipe("own_folder").model.backbone == "mobilenet_v2"
    with pytest.raises(UserError, match=r"own_foldr: no such file; did you mean own_folder\?"):
        load_recipe("own_foldr")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_folder").write_text("training: {epochs: 7}")  # a user's own file comes first
    assert load_recipe("own_folder").training.epochs == 7
