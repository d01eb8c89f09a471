"""scaseg.train on a Dataset of the user's own."""

import numpy as np
import pytest
import torch
from PIL import Image

import scaseg
from scaseg.config.recipe import load_recipe
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.own import OwnDataset
from scaseg.errors import UserError
from tests.scenes import CLASSES, write_scenes
from tests.training.quick import TINY, settings


class Scenes(torch.utils.data.Dataset):
    """Photographs and labels as a stranger's Dataset gives them; kind: of images."""

    def __init__(self, root, split, kind="array"):
        self.samples, self.kind = FolderDataset(root, split), kind

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        if self.kind == "sample":
            return sample
        if self.kind == "pil":
            return Image.fromarray(sample.image), Image.fromarray(sample.labels.astype(np.uint8))
        if self.kind == "tensor":
            image = torch.from_numpy(sample.image).permute(2, 0, 1).float() / 255
            return image, torch.from_numpy(sample.labels).long()[None]
        return sample.image, sample.labels


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("own"), size=(32, 40))


@pytest.fixture(scope="module")
def expected(scenes):
    run = settings(scenes, training__epochs=2)
    return scaseg.train(run, None, quiet=True).model.state_dict()


RUN = load_recipe(None, {**TINY, "training.epochs": "2"})


@pytest.mark.parametrize("kind", ["array", "pil", "tensor", "sample"])
def test_it_gives_the_weights_that_a_folder_gives(scenes, expected, kind):
    data, val = (Scenes(scenes, split, kind) for split in ("train", "val"))
    result = scaseg.train(RUN, None, data=data, val=val, classes=CLASSES, quiet=True)
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_arrays_that_may_not_be_written_are_copied():
    """np.asarray(photograph) is one; torch warned once, of undefined behavior."""
    locked = np.zeros((8, 8, 3), np.uint8)
    locked.flags.writeable = False
    image = OwnDataset([(locked, np.zeros((8, 8), np.uint8))], classes=CLASSES)[0].image
    assert image.flags.writeable
    assert not np.shares_memory(image, locked)


@pytest.mark.parametrize("classes", [3, "abc"])
def test_classes_are_a_list_of_names(scenes, classes):
    with pytest.raises(UserError, match=f"classes: {classes!r}; give a list of names"):
        scaseg.train(RUN, None, data=Scenes(scenes, "train"), classes=classes, quiet=True)


def test_a_folder_and_a_dataset_of_ours_can_be_given_too(scenes, expected):
    parts = {"data": FolderDataset(scenes, "train"), "val": FolderDataset(scenes, "val")}
    for given in ({"data": scenes}, parts):
        state = scaseg.train(RUN, None, **given, quiet=True).model.state_dict()
        assert torch.equal(state["head.fc6.weight"], expected["head.fc6.weight"])


def test_without_val_some_are_held_out_and_the_run_resumes(scenes, tmp_path):
    data = Scenes(scenes, "train")
    result = scaseg.train(RUN, tmp_path / "run", data=data, classes=CLASSES, quiet=True)
    assert result.rows[-1]["mIoU"] is not None
    assert result.model.config.classes == CLASSES
    again = scaseg.train(out=tmp_path / "run", resume=True, data=data, quiet=True)
    assert again.best_epoch == result.best_epoch
    scores = scaseg.evaluate(tmp_path / "run", Scenes(scenes, "test"), quiet=True)
    assert scores.images == 3
    assert (
        scores.scores == scaseg.evaluate(tmp_path / "run", scenes, split="test", quiet=True).scores
    )


def test_channels_are_bands_where_they_are_not_three(tmp_path):
    random = np.random.default_rng(0)
    data = [(torch.from_numpy(random.normal(7, 2, (2, 24, 24))), np.eye(24, dtype=int))] * 3
    result = scaseg.train(RUN, tmp_path / "run", data=data, quiet=True)
    config = result.model.config
    assert (config.in_channels, config.dtype, config.classes) == (
        2,
        "float64",
        ("class 0", "class 1"),
    )
    np.testing.assert_allclose(config.mean, (7, 7), atol=0.5)
    result.model.predict(data[0][0])


def image(*shape, value=0.5):
    return np.full(shape, value), np.zeros(shape[:2], np.int64)


class Broken(list):
    def __getitem__(self, index):
        raise OSError("disk\ngone")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter([]), r"data: a list_iterator; give a Dataset with len\(data\) and data\[index\]"),
        ([], "data: is empty; give at least one image"),
        ([7], r"data\[0\]: int; give \(image, labels\)"),
        ([(1, 2, 3)], r"data\[0\]: 3 values; give \(image, labels\)"),
        (Broken([1]), r"data\[0\]: raised OSError: disk gone; mend its __getitem__"),
        ([("a.png", 1)], r"data\[0\]: image: str; give a PIL image, an array"),
        (
            [image(9, 9, 3), image(9, 9, 3, value=-2.0)],
            r"data\[1\]: .*values from -2 to -2",
        ),
        ([image(9, 9, 3), image(9, 9, 4)], r"data\[1\]: image: 4 channels of .*; give 3 of uint8"),
        ([(image(9, 9, 3)[0], np.zeros((8, 9), int))], r"data\[0\]: labels: 8 x 9 but its photogr"),
        (
            [(image(9, 9, 3)[0], np.zeros((9, 9)))],
            r"data\[0\]: labels: float64 of shape",
        ),
        (
            [(image(9, 9, 3)[0], np.full((9, 9), 3))],
            r"data\[0\]: labels: 3; give 0 to 2, or 25",
        ),
    ],
)
def test_bad_data_are_refused_at_the_start(tmp_path, data, message):
    with pytest.raises(UserError, match=message) as raised:
        scaseg.train(RUN, tmp_path / "run", data=data, classes=CLASSES, quiet=True)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_one_class_is_nothing_to_train_on(tmp_path):
    with pytest.raises(UserError, match=r"classes: 'sky' alone: there is nothing to tell apart"):
        scaseg.train(RUN, tmp_path / "run", data=[image(9, 9, 3)] * 2, classes=["sky"], quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.root", "photos", "data.root: 'photos', but the data are given; leave it out"),
        ("data.cache", "disk", "data.cache: disk, but the data are given; use ram or none"),
        ("data.label_map", "{255: 1}", r"data.label_map: \{255: 1\}, but the data are given"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(key, value, message):
    with pytest.raises(UserError, match=message):
        scaseg.train(load_recipe(None, {**TINY, key: value}), None, data=[image(9, 9, 3)])


def test_a_transform_sees_every_image_first(scenes):
    seen = []

    def look(image, mask):
        seen.append(image.shape)
        return {"image": image, "mask": mask}

    scaseg.train(settings(scenes, training__epochs=1), None, transform=look, quiet=True)
    assert len(seen) >= 6
    with pytest.raises(UserError, match=r"scene\d\d: augment.transform raised TypeError"):
        scaseg.train(settings(scenes), None, transform=lambda image: image, quiet=True)
