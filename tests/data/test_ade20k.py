import pytest

from scaseg.data.datasets.ade20k import CLASSES, Ade20k
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests


def ade20k(root):
    home = root / "ADEChallengeData2016"
    for split, folder in (("train", "training"), ("val", "validation")):
        name = f"ADE_{split}_00000001"
        replicas.photograph(home / "images" / folder / f"{name}.jpg")
        replicas.png(home / "annotations" / folder / f"{name}.png", [[0, 1, 150], [9, 2, 0]])
    replicas.text(home / "objectInfo150.txt", "Idx\tRatio\tTrain\tVal\tName\n")
    return root


class TestAde20k(PairedDatasetTests):
    dataset, classes = Ade20k, CLASSES
    splits = {"train": ["ADE_train_00000001"], "val": ["ADE_val_00000001"]}
    labels = [[255, 0, 149], [8, 1, 255]]

    def replica(self, root):
        return ade20k(root)


def test_the_classes():
    assert (len(CLASSES), len(set(CLASSES))) == (150, 150)
    known = {0: "wall", 8: "windowpane", 44: "chest of drawers", 99: "buffet", 149: "flag"}
    assert {index: CLASSES[index] for index in known} == known


def test_what_is_refused(tmp_path):
    root = ade20k(tmp_path / "ade")
    path = Ade20k(root, "train").pairs[0].labels
    replicas.png(path, [[0, 1, 151]] * 2)
    with pytest.raises(ValueError, match=r"00001.png: holds 151; 0 is unlabelled and 1 to 150"):
        Ade20k(root, "train")[0]
    full = tmp_path / "ADE20K_2021_17_01" / "images" / "ADE" / "training" / "urban"
    replicas.photograph(full / "ADE_train_1.jpg")
    assert Ade20k.recognize(full.parents[3]) == "images/ADE/training of the full ADE20K"
    with pytest.raises(ValueError, match="3,688 classes, is not read; get ADEChallengeData2016"):
        Ade20k(full.parents[3])
