import numpy as np
import pytest
from PIL import Image

from scaseg.config.run import AugmentConfig, DataConfig
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.sample import Sample, collate, normalize
from scaseg.data.splits import build_dataset
from scaseg.data.transforms import Compose, build_transforms, generator
from scaseg.registry import DATASETS


def kinds(**options):
    return [type(transform).__name__ for transform in build_transforms(AugmentConfig(**options))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["RandomHorizontalFlip"]),
        ({"flip": 0}, []),
        ({"contrast": 0.1}, ["RandomHorizontalFlip", "ColorJitter"]),
        ({"fit": (32, 32)}, ["RandomHorizontalFlip", "ResizeToFit", "Pad"]),
        ({"crop": (32, 32)}, ["RandomHorizontalFlip", "RandomCrop"]),
        ({"scale": (0.5, 2)}, ["RandomHorizontalFlip", "RandomResize"]),
        (
            {"fit": (32, 32), "scale": (0.5, 2)},
            ["RandomHorizontalFlip", "ResizeToFit", "RandomResize"],
        ),
        (
            {"fit": (32, 32), "crop": (16, 16)},
            ["RandomHorizontalFlip", "ResizeToFit", "RandomCrop"],
        ),
        (
            {"brightness": 1, "fit": (32, 32), "scale": (0.5, 2), "crop": (16, 16)},
            ["RandomHorizontalFlip", "ColorJitter", "ResizeToFit", "RandomResize", "RandomCrop"],
        ),
    ],
)
def test_transforms_come_in_the_order_of_the_recipe(options, expected):
    assert kinds(**options) == expected


def test_transforms_get_what_the_recipe_says():
    config = AugmentConfig(
        flip=0.25,
        brightness=0.1,
        contrast=0.2,
        saturation=0.3,
        fit=(30, 40),
        scale=(0.5, 3),
        crop=(9, 10),
    )
    flip, jitter, fit, scale, crop = build_transforms(config)
    assert flip.p == 0.25
    assert (jitter.brightness, jitter.contrast, jitter.saturation) == (0.1, 0.2, 0.3)
    assert (fit.height, fit.width) == (30, 40)
    assert (scale.low, scale.high) == (0.5, 3)
    assert (crop.height, crop.width) == (9, 10)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"fit": (32, 40)}, (32, 40)),
        ({"crop": (24, 16)}, (24, 16)),
        ({"fit": (32, 40), "crop": (24, 48)}, (24, 48)),
        ({"scale": (0.5, 2), "crop": (24, 16)}, (24, 16)),
        ({"fit": (32, 40), "scale": (0.5, 2), "crop": (24, 16)}, (24, 16)),
    ],
)
def test_samples_have_one_size_where_fit_or_crop_says_which(options, size):
    chain = build_transforms(AugmentConfig(saturation=0.5, **options))
    for index, (height, width) in enumerate([(20, 30), (30, 20), (90, 64), (32, 40), (11, 70)]):
        sample = Sample(
            np.zeros((height, width, 3), np.uint8), np.zeros((height, width), np.int32), "x"
        )
        done = Compose(chain)(sample, generator(0, 0, index))
        assert done.image.shape[:2] == done.labels.shape == size
        images = collate([normalize(done, (0.5,) * 3, (0.2,) * 3)]).images
        real = done.real_size  # nothing of it is lost, and little padding is left
        for whole, side, own in zip(size, images.shape[2:], real, strict=True):
            assert side == min(whole, -(-own // 16) * 16)


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
