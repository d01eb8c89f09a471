import numpy as np
import pytest

from scaseg.data.datasets import coco_stuff
from scaseg.data.datasets.coco_stuff import CLASSES, NAMES, UNUSED, CocoStuff10k, CocoStuff164k
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests
from tests.data.replicas import COCO_CLASSES


def test_the_classes():
    """Stuff is alphabetical, things are not; the unused ids are the 11 that the authors name."""
    assert (len(NAMES), len(CLASSES), len(set(CLASSES))) == (182, 171, 171)
    assert (NAMES[0], NAMES[90], NAMES[91], NAMES[181]) == (
        "person",
        "hair brush",
        "banner",
        "wood",
    )
    assert list(NAMES[91:]) == sorted(NAMES[91:])
    assert {NAMES[id_ - 1] for id_ in UNUSED} == {
        "blender", "desk", "door", "eye glasses", "hair brush", "hat", "mirror", "plate", "shoe",
        "street sign", "window",
    }  # fmt: skip
    coco = {13: "stop sign", 25: "giraffe", 27: "backpack", 31: "handbag", 44: "bottle"}
    coco |= {46: "wine glass", 62: "chair", 67: "dining table", 70: "toilet", 72: "tv"}
    coco |= {82: "refrigerator", 84: "book", 90: "toothbrush"}  # where COCO's own ids jump
    assert {id_: NAMES[id_ - 1] for id_ in coco} == coco
    assert CLASSES[10:13] == ("fire hydrant", "stop sign", "parking meter")
    assert CLASSES[79:81] == ("toothbrush", "banner")


class TestCocoStuff10k(PairedDatasetTests):
    dataset, classes, version = CocoStuff10k, CLASSES, "1.1"
    splits = {"train": ["COCO_train2014_000000000049"], "test": ["COCO_train2014_000000000064"]}
    labels = COCO_CLASSES

    def replica(self, root):
        return replicas.coco_stuff_10k(root, self.version)


class TestCocoStuff10k10(TestCocoStuff10k):
    version = "1.0"


class TestCocoStuff164k(PairedDatasetTests):
    dataset, classes, images = CocoStuff164k, CLASSES, "images"
    splits = {"train": ["000000000009"], "val": ["000000000139"]}  # without *_labelTrainIds.png
    labels = COCO_CLASSES

    def replica(self, root):
        return replicas.coco_stuff_164k(root, self.images)


class TestCocoStuff164kAtTheRoot(TestCocoStuff164k):
    images = "."


@pytest.mark.parametrize(
    ("version", "value", "message"),
    [
        ("1.1", 183, "holds 183; ids 0 to 182 are known to version 1.1"),
        ("1.1", 12, "holds 12; .* but not 12, 26"),  # a file of version 1.0 among them
        ("1.0", 0, "holds 0; ids 1 to 172 are known to version 1.0"),
        ("1.0", 173, "holds 173; ids 1 to 172"),
    ],
)
def test_ids_of_no_class_are_named(tmp_path, version, value, message):
    data = CocoStuff10k(replicas.coco_stuff_10k(tmp_path, version))
    assert data[0].labels.tolist() == COCO_CLASSES
    replicas.mat(data.pairs[1].labels, S=np.uint8([[value, 1, 2]] * 2))
    with pytest.raises(ValueError, match=rf"000064.mat: {message}"):
        data[1]


def test_the_version_is_looked_up_once(tmp_path, monkeypatch):
    calls = []
    read = coco_stuff.read_names
    monkeypatch.setattr(coco_stuff, "read_names", lambda path: calls.append(path) or read(path))
    data = CocoStuff10k(replicas.coco_stuff_10k(tmp_path))
    for _ in range(2):
        data[0], data[1]
    assert calls == [data.pairs[0].labels]


def test_a_torn_or_nameless_file_does_not_hide_the_version(tmp_path):
    data = CocoStuff10k(replicas.coco_stuff_10k(tmp_path, "1.0"))
    first = data.pairs[0].labels
    replicas.mat(first, S=np.uint8([[1, 2, 172]] * 2))  # without names
    assert data[0].labels.tolist() == [[255, 0, 170]] * 2
    first.write_bytes(first.read_bytes()[:130])
    torn = CocoStuff10k(tmp_path)
    assert torn[1].labels.tolist() == COCO_CLASSES
    with pytest.raises(ValueError, match=r"000049.mat: "):
        torn[0]


def test_versions_that_cannot_be_told(tmp_path):
    replicas.coco_stuff_10k(tmp_path)
    data = CocoStuff10k(tmp_path, "train")
    replicas.mat(data.pairs[0].labels, S=np.uint8([[1, 2, 3]] * 2), names=replicas.cell("abc"))
    with pytest.raises(ValueError, match=r"names 3 classes; version 1.1 names 182 and version 1.0"):
        data[0]
    for pair in CocoStuff10k(tmp_path).pairs:
        replicas.mat(pair.labels, S=np.uint8([[1, 2, 3]] * 2))
    with pytest.raises(ValueError, match=r"annotations: no variable `names`"):
        data[0]


def test_164k_names_what_does_not_fit(tmp_path):
    with pytest.raises(ValueError, match=r"annotations: has no split 'train'; there are none"):
        CocoStuff164k(tmp_path)
    replicas.coco_stuff_164k(tmp_path)
    train = CocoStuff164k(tmp_path, "train")
    for value in (11, 182):  # id 12 is not in use, id 183 does not exist
        replicas.png(train.pairs[0].labels, [[value, 0, 0]] * 2)
        with pytest.raises(ValueError, match=rf"000009.png: holds {value}; 0 to 181 are ids less"):
            train[0]
