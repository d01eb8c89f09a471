import numpy as np
import pytest

from scaseg.data.datasets.atlantis import CLASSES, Atlantis
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests
from tests.shared import SHARED, needs


def atlantis(root):
    scenes = {"train": "breakwater/27", "val": "sea/49", "test": "wetland/50"}
    for split, name in scenes.items():
        replicas.photograph(root / "atlantis" / "images" / split / f"{name}.jpg")
        labels = [[0, 1, 56], [38, 35, 0]]  # unlabelled, bicycle, wetland; sea, river
        replicas.png(root / "atlantis" / "masks" / split / f"{name}.png", labels)
    return root


class TestAtlantis(PairedDatasetTests):
    dataset, classes = Atlantis, CLASSES
    splits = {"train": ["breakwater/27"], "val": ["sea/49"], "test": ["wetland/50"]}
    labels = [[255, 0, 55], [37, 34, 255]]

    def replica(self, root):
        return atlantis(root)


def test_the_classes():
    assert (len(CLASSES), len(set(CLASSES)), list(CLASSES)) == (56, 56, sorted(CLASSES))
    assert (CLASSES[6], CLASSES[37], CLASSES[55]) == ("canal", "sea", "wetland")


def test_a_photograph_in_two_splits_stays_in_test(tmp_path):
    root = atlantis(tmp_path / "repository")
    for split, name in (("train", "lake/50"), ("val", "river/50"), ("train", "canal/49")):
        replicas.photograph(root / "atlantis" / "images" / split / f"{name}.jpg")
        replicas.png(root / "atlantis" / "masks" / split / f"{name}.png", [[1] * 3] * 2)
    written = prepare(Atlantis, root, tmp_path / "ours")
    assert written.splits == {"train": 1, "val": 1, "test": 1}
    assert written.notes == (
        "val: river/50 left out, the same photograph is in test",
        "train: canal/49 left out, the same photograph is in val",
        "train: lake/50 left out, the same photograph is in test",
    )


def test_our_own_form_counts_from_zero(tmp_path):
    ours = tmp_path / "ours"
    prepare(Atlantis, atlantis(tmp_path / "repository"), ours)
    assert Atlantis(ours, "train")[0].labels.tolist() == TestAtlantis.labels
    assert (Atlantis.splits(ours), Atlantis(ours).classes) == (("train", "val", "test"), CLASSES)
    with pytest.raises(ValueError, match="has no split 'dev'"):
        Atlantis(tmp_path / "repository", "dev")


@needs(SHARED / "data" / "atlantis")
def test_real_data():
    root = SHARED / "data" / "atlantis"
    assert [len(Atlantis(root, split)) for split in ("train", "val", "test")] == [3361, 534, 1296]
    assert set(np.unique(Atlantis(root, "val")[0].labels)) <= {*range(56), 255}
