import sys

import numpy as np
import pytest

from scaseg.data.datasets.sift_flow import SEMANTIC, SiftFlow, SiftFlowGeo
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests
from tests.data.replicas import SCENES


class TestSiftFlow(PairedDatasetTests):
    dataset, classes = SiftFlow, SEMANTIC
    # highway_bost181 is listed, but unannotated
    splits = {"train": ["coast_bea1", "forest_for3"], "test": ["street_par6"]}
    labels = [[255, 0, 32], [27, 27, 1]]

    def replica(self, root):
        return replicas.sift_flow(root)


class TestSiftFlowGeo(TestSiftFlow):
    dataset, classes = SiftFlowGeo, ("sky", "horizontal", "vertical")
    labels = [[255, 1, 0], [1, 1, 2]]


def test_names_come_from_the_files_where_they_have_them(tmp_path):
    replicas.sift_flow(tmp_path, names=False)
    assert SiftFlow(tmp_path).classes == SEMANTIC
    assert SiftFlowGeo(tmp_path).classes == ("sky", "horizontal", "vertical")
    first = tmp_path / "GeoLabels" / SCENES / "coast_bea1.mat"
    other = replicas.cell(["horizontal", "vertical", "sky"])
    replicas.mat(first, S=np.int16([[1, 2, 3], [1, 2, 3]]), names=other.T)
    assert SiftFlowGeo(tmp_path).classes == ("horizontal", "vertical", "sky")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"T": np.uint8([[1]])}, r"has no S, but T; is it a label map\?"),
        ({"S": np.uint8([[1, 34, 1]] * 2)}, "holds 34; 0 is unlabelled and 1 to 33 are classes"),
        ({"S": np.int16([[1, -1, 1]] * 2)}, "holds -1; 0 is unlabelled"),
        ({"S": np.array([[1.5]])}, "S holds fractions"),
        ({"S": np.array([[np.nan]])}, "S holds fractions"),
        ({"S": np.ones((2, 3, 2))}, r"S is float64 of shape \(2, 3, 2\); a label map has a number"),
        ({"S": "text"}, "a label map has a number a pixel"),
        ({"S": np.uint8([[1]])}, "1 x 1 but its photograph is 2 x 3"),
    ],
)
def test_what_is_no_label_map_is_named(tmp_path, content, message):
    replicas.sift_flow(tmp_path)
    path = tmp_path / "SemanticLabels" / SCENES / "forest_for3.mat"
    replicas.mat(path, **content)
    with pytest.raises(ValueError, match=rf"forest_for3.mat: .*{message}") as refused:
        SiftFlow(tmp_path, "train")[1]
    assert "\n" not in str(refused.value)


def test_doubles_are_whole_numbers_too(tmp_path):
    replicas.sift_flow(tmp_path)
    path = tmp_path / "SemanticLabels" / SCENES / "forest_for3.mat"
    replicas.mat(path, S=np.array([[0.0, 1.0, 33.0]] * 2))
    assert SiftFlow(tmp_path, "train")[1].labels.tolist() == [[255, 0, 32]] * 2


@pytest.mark.parametrize("kept", [0, 60, 128, 140, 170])
def test_torn_files_are_named(tmp_path, kept):
    """Also the first file, which would have named the classes."""
    replicas.sift_flow(tmp_path)
    path = tmp_path / "SemanticLabels" / SCENES / "coast_bea1.mat"
    path.write_bytes(path.read_bytes()[:kept])
    data = SiftFlow(tmp_path, "train")
    assert data.classes == SEMANTIC
    with pytest.raises(ValueError, match=r"coast_bea1.mat: ") as refused:
        data[0]
    assert "\n" not in str(refused.value)


def test_a_damaged_variable_is_named(tmp_path):
    """Its checksum tells; damage of another variable, which nobody asked for, does not matter."""
    data = SiftFlow(replicas.sift_flow(tmp_path), "train")
    path = data.pairs[0].labels
    whole = path.read_bytes()
    expected = data[0].labels.tolist()
    for at in (139, 150):  # within S, which is packed
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"coast_bea1.mat: cannot be read"):
            data[0]
    damaged = bytearray(whole)
    damaged[len(whole) - 30] ^= 1
    path.write_bytes(damaged)
    assert data[0].labels.tolist() == expected
    length = int.from_bytes(whole[132:136], "little")
    shorter = (length - 4).to_bytes(4, "little")  # without the checksum, and the tag says so
    path.write_bytes(whole[:132] + shorter + whole[136 : 132 + length] + whole[136 + length :])
    with pytest.raises(ValueError, match=r"coast_bea1.mat: cannot be read \(a variable ends too"):
        data[0]


def test_hdf5_files_are_named(tmp_path):
    replicas.sift_flow(tmp_path)
    path = tmp_path / "SemanticLabels" / SCENES / "coast_bea1.mat"
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    path.write_bytes(header.ljust(600, b"\0"))
    with pytest.raises(ValueError, match=r"coast_bea1.mat: of MATLAB 7.3 \(HDF5\)"):
        SiftFlow(tmp_path, "train")[0]


@pytest.mark.parametrize(
    ("spoil", "split", "message"),
    [
        (lambda root: (root / "TestSet1.txt").unlink(), "train", "TestSet1.txt: no such file"),
        (lambda root: (root / "TestSet1.txt").write_text("\n"), "test", "names no photograph"),
        (lambda root: (root / "TestSet1.txt").write_bytes(b"\xff"), "test", "save it as UTF-8"),
        (
            lambda root: (root / "TestSet1.txt").write_text(f"{SCENES}\\gone.jpg"),
            "test",
            r"has no photograph that TestSet1.txt names \('gone'\)",
        ),
        (lambda root: (root / "Images").rename(root / "Bilder"), "test", "Images.*no such folder"),
    ],
)
def test_what_is_missing_is_named(tmp_path, spoil, split, message):
    replicas.sift_flow(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=message):
        SiftFlow(tmp_path, split)


def test_scipy_is_not_needed(tmp_path, monkeypatch):
    replicas.sift_flow(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert SiftFlow(tmp_path, "train")[0].labels.shape == (2, 3)


def test_the_users_own_mapping_applies_to_classes(tmp_path):
    replicas.sift_flow(tmp_path)
    data = SiftFlow(tmp_path, "train", label_map={32: 1}, ignore_index=254)
    assert data[0].labels.tolist() == [[255, 0, 1], [27, 27, 1]]
