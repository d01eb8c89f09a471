"""One scene in the form of every annotation tool must come out the same, pixel for pixel."""

import json
from pathlib import Path

import numpy as np
import pytest

from scaseg.cli import main
from scaseg.data.datasets.coco import CocoInstances, CocoPanoptic
from scaseg.data.datasets.cvat import Cvat
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.labelme import LabelMe
from scaseg.data.datasets.recognition import recognize
from scaseg.data.datasets.supervisely import Supervisely
from scaseg.data.datasets.yolo import Yolo
from scaseg.data.prepare import prepare
from scaseg.data.validation.check import check_data
from tests.data import annotations
from tests.data.annotations import CLASSES, EMPTY, SCENE
from tests.data.base_dataset import PairedDatasetTests


class AnnotatedTests(PairedDatasetTests):
    classes, labels, empty = CLASSES, SCENE, EMPTY
    splits = {"train": ["train/a"], "val": ["val/a"]}
    name = ""  # of the format
    notes = ()

    def replica(self, root):
        return getattr(annotations, self.name)(root)

    def test_a_photograph_without_shapes_is_uncovered(self, root):
        assert self.dataset(root, "val")[0].labels.tolist() == self.empty

    def test_what_is_uncovered_can_be_unlabelled(self, root):
        """Then there is no background, and classes begin at 0."""
        data = self.dataset.configured(uncovered="unlabelled")(root)
        assert data.classes == ("car", "tree")
        expected = np.array([255, 0, 1])[np.array(SCENE)]
        assert data[0].labels.tolist() == expected.tolist()
        assert data.fingerprint(0) != self.dataset(root).fingerprint(0)
        with pytest.raises(ValueError, match=r"--uncovered: 'car'; give one of background, unlab"):
            self.dataset.configured(uncovered="car")(root)

    def test_spaces_around_a_name_make_no_other_class(self, root):
        """labelme's 'tree' and 'tree ' were two."""
        for path in root.rglob("*"):
            if path.suffix in (".json", ".xml", ".yaml"):
                path.write_text(path.read_text().replace("tree", "tree ", 1))
        data = self.dataset(root)
        assert (data.classes, data[0].labels.tolist()) == (self.classes, self.labels)

    def test_the_order_of_the_classes_can_be_given(self, root, tmp_path):
        (tmp_path / "names.txt").write_text("tree\n_background_\ncar\n")
        data = self.dataset.configured(classes_file=str(tmp_path / "names.txt"))(root)
        assert data.classes == ("tree", "_background_", "car")
        assert data[0].labels.tolist() == np.array([1, 2, 0])[np.array(SCENE)].tolist()
        named = self.dataset(root, classes=["tree", "car"])
        assert named.classes == ("background", "tree", "car")
        assert named[0].labels.tolist() == np.array([0, 2, 1])[np.array(SCENE)].tolist()
        (tmp_path / "names.txt").write_text("car\n")
        data = self.dataset.configured(classes_file=str(tmp_path / "names.txt"))(root)
        with pytest.raises(
            ValueError, match=r"'tree' is none of the classes; they are back.*, car"
        ):
            data[0]

    def test_it_is_recognized_checked_and_prepared(self, root, tmp_path, capsys):
        assert [(one.name, one.root) for one in recognize(root)] == [(self.name, root)]
        report = check_data(self.dataset, root)
        assert report.splits == {"train": 1, "val": 1}
        assert report.pixels == tuple(np.bincount(np.ravel(SCENE))[-len(report.pixels) :])
        main(["data", "prepare", "auto", str(root), str(tmp_path / "ours")])
        assert FolderDataset(tmp_path / "ours", "train")[0].labels.tolist() == self.labels
        assert all(note in capsys.readouterr().out for note in self.notes)
        assert prepare(self.dataset, root, tmp_path / "ours").skipped == 2  # nothing is done twice


class TestCoco(AnnotatedTests):
    dataset, name = CocoInstances, "coco"
    splits = {"train": ["train2017/a"], "val": ["val2017/a"]}

    def test_what_is_missing_is_named(self, root):
        (root / "train2017" / "a.jpg").unlink()
        with pytest.raises(ValueError, match=r"_train2017.json: names a photograph that .*'a.jpg'"):
            self.dataset(root, "train")


class TestCocoPanoptic(TestCoco):
    dataset, name, classes = CocoPanoptic, "coco_panoptic", CLASSES[1:]
    labels = np.array([255, 0, 1])[np.array(SCENE)].tolist()
    empty = labels[::-1]
    test_what_is_uncovered_can_be_unlabelled = None

    def test_the_order_of_the_classes_can_be_given(self, root, tmp_path):
        (tmp_path / "names.txt").write_text("tree\ncar\n")
        data = self.dataset.configured(classes_file=str(tmp_path / "names.txt"))(root)
        assert data[0].labels.tolist() == np.array([255, 1, 0])[np.array(SCENE)].tolist()

    def test_a_photograph_without_segments_is_unlabelled(self, root):
        """Datumaro writes no label map for it."""
        path = root / "annotations" / "panoptic_val2017.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"annotations": []}))
        assert [one.name for one in recognize(root)] == [self.name]
        assert (self.dataset(root, "val")[0].labels == 255).all()

    def test_a_label_map_that_is_missing_or_holds_an_unknown_id(self, root):
        path = root / "annotations" / "panoptic_train2017" / "a.png"
        annotations.png(path, np.full((6, 8, 3), 1))
        with pytest.raises(ValueError, match=r"a.png: holds the id 65793; no segment has it"):
            self.dataset(root, "train")[0]
        path.unlink()
        with pytest.raises(
            ValueError, match=r"names a label map that is not in panoptic_train2017"
        ):
            self.dataset(root, "train")


class TestLabelMe(AnnotatedTests):
    dataset, name = LabelMe, "labelme"

    def test_what_is_missing_is_named(self, root):
        (root / "train" / "a.jpg").unlink()
        with pytest.raises(ValueError, match=r"a.json: names a photograph that is not .*'a.jpg'"):
            self.dataset(root, "train")


class TestCvat(AnnotatedTests):
    dataset, name = Cvat, "cvat"
    splits = {"train": ["Train/a"], "val": ["Validation/a"]}
    notes = ("shapes left out, without an area: 1 polyline",)

    def test_what_is_missing_is_named(self, root):
        (root / "images" / "Train" / "a.jpg").unlink()
        with pytest.raises(ValueError, match=r"annotations.xml: names a photograph that .*'a.jpg'"):
            self.dataset(root, "train")


class TestSupervisely(AnnotatedTests):
    dataset, name = Supervisely, "supervisely"
    notes = ("shapes left out, without an area: 1 point",)

    def test_what_is_missing_is_named(self, root):
        (root / "train" / "ann" / "a.jpg.json").unlink()
        with pytest.raises(ValueError, match=r"ann: has no annotation of a photograph \('a.jpg'\)"):
            self.dataset(root, "train")


class TestYolo(AnnotatedTests):
    dataset, name = Yolo, "yolo"

    def test_what_is_missing_is_named(self, root):
        (root / "images" / "train" / "a.jpg").rename(root / "images" / "a.jpg")
        (root / "images" / "train").rmdir()
        with pytest.raises(ValueError, match=r"data.yaml: train: 'images/train' is not there"):
            self.dataset(root, "train")

    def test_a_line_is_named_by_its_number_in_the_file(self, root):
        annotations.text(root / "labels" / "train" / "a.txt", "\n\n0 a b\n")
        with pytest.raises(ValueError, match=r"a.txt: line 3: '0 a b'; give numbers alone"):
            self.dataset(root, "train")[0]

    @pytest.mark.parametrize("split", [None, "train", "val"])
    def test_without_any_text_file_it_is_another_format(self, root, split):
        """Nothing would be labelled; a folder of label maps has classes.txt and images/ too."""
        (root / "labels" / "train" / "a.txt").unlink()
        with pytest.raises(ValueError, match=r"no photograph has a text file of outlines; .*a.txt"):
            self.dataset(root, split)


@pytest.mark.parametrize(("name", "dataset"), [("coco_instances", CocoInstances), ("cvat", Cvat)])
def test_files_that_datumaro_wrote(name, dataset):
    """Two polygons and a mask, exported by datumaro 1.13.12 (CVAT's own library)."""
    root = Path(__file__).parent / "datumaro" / name
    data = dataset(root, "train")
    assert (data.classes, len(data)) == (CLASSES, 1)
    assert data[0].labels.tolist() == SCENE
    assert dataset(root, "val")[0].labels.tolist() == EMPTY
