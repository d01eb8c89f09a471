import pytest

from scaseg.cli import main
from scaseg.data.datasets.recognition import recognize
from scaseg.data.datasets.roboflow import Roboflow
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests

TABLE = "Pixel Value, Class\n0, background\n1, crack, wide\n3, Ignore\n7, rust\n"
LABELS = [[0, 1, 7], [3, 0, 7]]


def roboflow(root):
    """As exported: names that hold another extension, and a table in every split."""
    for split in ("train", "valid", "test"):
        replicas.photograph(root / split / f"{split}_jpg.rf.0a1b.jpg")
        replicas.png(root / split / f"{split}_jpg.rf.0a1b_mask.png", LABELS)
        replicas.text(root / split / "_classes.csv", TABLE)
    replicas.photograph(root / "train" / "z.jpg")
    replicas.png(root / "train" / "z_mask.png", LABELS)
    replicas.text(root / "README.dataset.txt", "exported by roboflow.com\n")
    return root


class TestRoboflow(PairedDatasetTests):
    dataset, classes = Roboflow, ("background", "crack, wide", "rust")
    splits = {"train": ["train/train_jpg.rf.0a1b", "train/z"], "val": ["val/valid_jpg.rf.0a1b"]}
    splits |= {"test": ["test/test_jpg.rf.0a1b"]}
    labels = [[0, 1, 2], [255, 0, 2]]

    def replica(self, root):
        return roboflow(root)


def test_what_is_unlabelled_is_said(tmp_path):
    root = roboflow(tmp_path / "export")
    assert recognize(root)[0].found == "test/_classes.csv of Roboflow"
    notes = prepare(Roboflow, root, tmp_path / "ours").notes
    assert notes == ("the value of Ignore is read as unlabelled",)


def test_a_value_that_the_table_does_not_list(tmp_path, capsys):
    root = roboflow(tmp_path)
    replicas.png(root / "valid" / "valid_jpg.rf.0a1b_mask.png", [[0, 1, 2]] * 2)
    with pytest.raises(ValueError, match=r"0a1b_mask\.png: holds 2; add it to _classes\.csv"):
        Roboflow(root, "val")[0]
    with pytest.raises(SystemExit, match="1"):
        main(["data", "check", str(root)])
    assert "valid_jpg.rf.0a1b_mask.png: holds 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("Pixel Value, Class\n0, a\n0, b\n", "line 3 is no pixel value and its class"),
        ("Pixel Value, Class\nred, a\n", "line 2 is no pixel value"),
        ("Pixel Value, Class\n70000, a\n", "line 2 is no pixel value"),
        ("Pixel Value, Class\n0\n", "line 2 is no pixel value"),
        ("Pixel Value, Class\n0, void\n", "names no class"),
        ("Pixel Value, Class\n0, background\n", "names other classes than test/_classes.csv"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path, table, said):
    root = roboflow(tmp_path)
    replicas.text(root / "train" / "_classes.csv", table)
    with pytest.raises(ValueError, match=f"_classes.csv: {said}"):
        Roboflow(root, "train")


def test_the_table_of_a_classification_is_another(tmp_path):
    replicas.photograph(tmp_path / "train" / "a.jpg")
    for table in ("filename, crack, rust\na.jpg, 1, 0\n", ""):
        replicas.text(tmp_path / "train" / "_classes.csv", table)
        assert recognize(tmp_path) == []
        with pytest.raises(ValueError, match="does not begin with `Pixel Value, Class`"):
            Roboflow(tmp_path)


def test_without_a_table(tmp_path):
    replicas.photograph(tmp_path / "train" / "a.jpg")
    with pytest.raises(ValueError, match=r"_classes\.csv: no such file; it names the values"):
        Roboflow(tmp_path)
