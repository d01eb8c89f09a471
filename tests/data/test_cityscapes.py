import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from scaseg.data.datasets.cityscapes import CLASSES, LABELS, Cityscapes
from scaseg.data.prepare import prepare
from tests.data import replicas
from tests.data.base_dataset import PairedDatasetTests

IDS = [[0, 7, 33], [9, 26, 31]]  # unlabelled, road, bicycle; parking, car, train
TRAIN_IDS = [[255, 0, 18], [255, 13, 16]]
PLACES = {"train": "aachen/aachen_000000_000019", "val": "ulm/ulm_000001_000019"}


def cityscapes(root, form="labelIds"):
    for split, name in {**PLACES, "test": "bonn/bonn_000002_000019"}.items():
        replicas.photograph(root / "leftImg8bit" / split / f"{name}_leftImg8bit.png")
        start = root / "gtFine" / split / f"{name}_gtFine"
        replicas.png(start.with_name(f"{start.name}_instanceIds.png"), [[26000] * 3] * 2, np.uint16)
        values = {"labelIds": IDS, "labelTrainIds": TRAIN_IDS}[form]
        replicas.png(start.with_name(f"{start.name}_{form}.png"), values)
        replicas.photograph(start.with_name(f"{start.name}_color.png"))
    return root


class TestLabelIds(PairedDatasetTests):
    dataset, classes, labels = Cityscapes, CLASSES, TRAIN_IDS
    splits = {split: [name] for split, name in PLACES.items()}
    form = "labelIds"

    def replica(self, root):
        return cityscapes(root, self.form)


class TestTrainIds(TestLabelIds):
    form = "labelTrainIds"


def test_the_classes_are_the_benchmarks():
    assert (len(CLASSES), CLASSES[0], CLASSES[18]) == (19, "road", "bicycle")
    assert (len(LABELS), LABELS[7], LABELS[33]) == (34, "road", "bicycle")


def polygons(path, objects, size=(12, 8)):
    labels = {"imgWidth": size[0], "imgHeight": size[1]}
    labels["objects"] = [{"label": name, "polygon": corners} for name, corners in objects]
    replicas.text(path, json.dumps(labels))


def test_polygons_are_drawn_in_their_order(tmp_path):
    """As json2labelImg.py draws them: later ones on top, a licence plate not at all."""
    replicas.photograph(tmp_path / "leftImg8bit/train/ulm/ulm_0_leftImg8bit.png", 8, 12)
    path = tmp_path / "gtFine/train/ulm/ulm_0_gtFine_polygons.json"
    car = [(1, 1), (8, 1), (8, 6), (1, 6)]
    plate = [(2, 4), (4, 4), (4, 5), (2, 5)]
    objects = [("road", [(0, 4), (11, 4), (11, 7), (0, 7)]), ("cargroup", car)]
    objects += [("license plate", plate), ("sky", [(0, 0), (11, 0), (6, 3)]), ("static", plate)]
    polygons(path, objects)
    expected = Image.new("L", (12, 8), 255)
    for label, (_, corners) in zip((0, 13, None, 10, 255), objects, strict=True):
        if label is not None:
            ImageDraw.Draw(expected).polygon(corners, fill=label)
    [sample] = Cityscapes(tmp_path, "train")
    assert sample.labels.tolist() == np.asarray(expected).tolist()
    assert {0, 10, 13, 255} == set(np.unique(sample.labels).tolist())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("torn {", "not valid JSON"),
        ("[]", r"\[\]; give a mapping"),
        ('{"imgWidth": 12, "imgHeight": 8, "objects": [{"label": "car"}]}', "not in the form"),
        ('{"imgWidth": -1, "imgHeight": 8, "objects": []}', "not in the form"),
        (
            '{"imgWidth": 12, "imgHeight": 8, "objects": [{"label": "car", "polygon": '
            "[[NaN, 0], [1e30, 1]]}]}",
            "not in the form",
        ),
        ('{"imgWidth": 99999999, "imgHeight": 8, "objects": []}', "99999999 x 8 pixels; at most"),
        (
            '{"imgWidth": 12, "imgHeight": 8, "objects": [{"label": "cat", "polygon": []}]}',
            "names 'cat'; Cityscapes has no such label",
        ),
    ],
)
def test_damaged_polygons_are_one_line(tmp_path, content, said):
    replicas.photograph(tmp_path / "leftImg8bit/train/ulm/ulm_0_leftImg8bit.png", 8, 12)
    replicas.text(tmp_path / "gtFine/train/ulm/ulm_0_gtFine_polygons.json", content)
    with pytest.raises(ValueError, match=f"ulm_0_gtFine_polygons.json: {said}"):
        Cityscapes(tmp_path, "train")[0]


def test_the_form_that_covers_most_is_taken(tmp_path):
    """A conversion to train ids that was interrupted leaves some photographs without."""
    root = cityscapes(tmp_path)
    replicas.photograph(root / "leftImg8bit/train/aachen/aachen_1_leftImg8bit.png")
    replicas.png(root / "gtFine/train/aachen/aachen_1_gtFine_labelIds.png", IDS)
    replicas.png(root / "gtFine/train/aachen/aachen_1_gtFine_labelTrainIds.png", [[9] * 3] * 2)
    assert [sample.labels.tolist() for sample in Cityscapes(root, "train")] == [TRAIN_IDS] * 2


def test_test_is_left_out_with_a_word_and_the_other_files_are_no_strays(tmp_path):
    from scaseg.data.validation.check import check_data

    root = cityscapes(tmp_path / "city")
    written = prepare(Cityscapes, root, tmp_path / "ours")
    assert written.notes == ("test: 1 photographs left out, their labels are not public",)
    assert written.splits == {"train": 1, "val": 1}
    assert not [
        one for one in check_data(Cityscapes, root).warnings if "has no photograph" in one.problem
    ]
