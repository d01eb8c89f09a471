"""Transforms of the user's own: reproducible, checked, and imported only where the user says so."""

import json
import random
import sys

import numpy as np
import pytest
import torch

import scaseg
from scaseg.config.run import AugmentConfig
from scaseg.data.custom import Custom, load_transform
from scaseg.data.sample import IGNORE, Sample
from scaseg.data.transforms import build_transforms, generator
from scaseg.errors import UserError


def sample(largest=2):
    labels = np.zeros((12, 16), np.int32)
    labels[0] = IGNORE
    labels[3] = largest
    return Sample(np.full((12, 16, 3), 100, np.uint8), labels, "photo")


class Seeded:
    """Draws from a generator of its own, as transforms of albumentations 2 do."""

    def __init__(self):
        self.random = np.random.default_rng()

    def set_random_seed(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, *, image, mask):
        return {"image": image + self.random.integers(0, 100, dtype=np.uint8), "mask": mask}


def global_draws(image, mask):
    number = random.randrange(50) + np.random.randint(50) + int(torch.randint(50, (1,)))
    return {"image": image + np.uint8(number), "mask": mask}


@pytest.mark.parametrize("function", [Seeded(), global_draws])
def test_draws_depend_on_seed_epoch_and_index_alone(function):
    def pixels(*key):
        return int(Custom(function)(sample(), generator(*key)).image[0, 0, 0])

    before = random.getstate(), torch.get_rng_state()
    assert pixels(0, 1, 2) == pixels(0, 1, 2)
    assert len({pixels(0, 0, index) for index in range(8)}) > 3
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize(("largest", "dtype"), [(2, np.uint8), (300, np.uint16)])
def test_masks_come_in_types_that_other_libraries_know(largest, dtype):
    def look(image, mask):
        assert mask.dtype == dtype
        assert image.flags.c_contiguous
        return {"image": image[:, ::-1], "mask": mask[:, ::-1]}

    turned = Custom(look)(sample(largest), generator(0, 0, 0))
    assert turned.labels.dtype == np.int32
    assert (turned.labels == sample(largest).labels[:, ::-1]).all()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda image, mask: image,
            r"photo: augment.transform returned a ndarray without both",
        ),
        (lambda image, mask: {"image": image}, "returned a dict without both"),
        (
            lambda image, mask: {"image": image / 255, "mask": mask},
            "of float64.*return uint8",
        ),
        (lambda image, mask: {"image": image[..., :1], "mask": mask}, r"return uint8 \(H, W, 3\)"),
        (lambda image, mask: {"image": torch.zeros(3, 4), "mask": mask}, "image of torch.float32"),
        (lambda image, mask: {"image": image, "mask": mask / 2}, "labels of float64; return whole"),
        (lambda image, mask: {"image": image[:5], "mask": mask}, "both must be transformed alike"),
        (lambda image, mask: 1 / 0, "photo: augment.transform raised ZeroDivisionError: division"),
    ],
)
def test_what_it_returns_is_checked(result, message):
    with pytest.raises(UserError, match=message):
        Custom(result)(sample(), generator(0, 0, 0))


MODULE = """
from pathlib import Path

Path("imported").touch()

def turned(image, mask):
    return {"image": image[:, ::-1], "mask": mask[:, ::-1]}

def make():
    return turned

number = 7
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_transforms.py").write_text(MODULE)
    yield "my_transforms"
    sys.modules.pop("my_transforms", None)


def test_an_import_path_names_a_transform_or_what_makes_one(module):
    assert load_transform(f"{module}:make") is load_transform(f"{module}:turned")
    chain = build_transforms(AugmentConfig(transform=f"{module}:make"))
    assert [type(one).__name__ for one in chain] == ["Custom", "RandomHorizontalFlip"]
    for path, message in (
        ("my_transforms", "augment.transform: 'my_transforms'; give package.module:name"),
        (f"{module}:none", r"my_transforms:none cannot be imported \(AttributeError: .*; check"),
        ("no_such_module:x", r"cannot be imported \(ModuleNotFoundError: No module"),
        (f"{module}:number", "my_transforms:number is a int; give something to call"),
    ):
        with pytest.raises(UserError, match=message):
            load_transform(path)


def test_a_model_names_no_code(module, tmp_path):
    """What a model's record says of its training is never imported."""
    model = scaseg.create_model("tiny", "none", "pointwise", classes=2)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["training"] = {"recipe": {"augment": {"transform": f"{module}:make"}, "data": {}}}
    path.write_text(json.dumps(config))
    loaded = scaseg.load_model(tmp_path / "model")
    loaded.predict(np.zeros((16, 16, 3), np.uint8))
    scaseg.evaluate(
        loaded, [(np.zeros((16, 16, 3), np.uint8), np.zeros((16, 16), int))], quiet=True
    )
    assert not (tmp_path / "imported").exists()
    load_transform(f"{module}:make")
    assert (tmp_path / "imported").exists()  # the test would see it
