"""What formats refuse in one line, and forms that are read though nobody writes them often."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from scaseg.data.datasets.coco import CocoInstances
from scaseg.data.datasets.cvat import Cvat
from scaseg.data.datasets.folder import FolderDataset
from scaseg.data.datasets.shards import ShardDataset
from scaseg.data.datasets.supervisely import Supervisely
from scaseg.data.datasets.yolo import Yolo
from tests.data import annotations as made
from tests.data.replicas import photograph, png, text


def folder(root):
    for name in "ab":
        photograph(root / "images" / f"{name}.jpg")
        png(root / "labels" / f"{name}.png", [[0, 1, 255]] * 2)
    text(root / "classes.txt", "x\ny\n")
    return root


def coco_twice(root):
    path = root / "annotations" / "instances_train2017.json"
    document = json.loads(path.read_text())
    document["images"].append(document["images"][0] | {"id": 43})
    made.write_json(path, document)


def cvat_xml(root, change):
    path = root / "annotations.xml"
    path.write_text(change(path.read_text()))


def jpeg_labels(root):
    (root / "labels" / "a.png").unlink()
    Image.new("L", (3, 2)).save(root / "labels" / "a.JPG")


def short_polygon(root):
    path = root / "train" / "ann" / "a.jpg.json"
    document = json.loads(path.read_text())
    document["objects"][0]["points"]["exterior"] = [[1, 1], [2, 2]]
    made.write_json(path, document)


REFUSED = {
    "COCO, a name twice": (
        *(made.coco, coco_twice, CocoInstances),
        r"images\[1\]: the id 43 or 'a.jpg' is there twice; each has its own",
    ),
    "COCO, two files of a split": (
        made.coco,
        lambda root: shutil.copy(
            root / "annotations" / "instances_train2017.json",
            root / "annotations" / "instances_train2014.json",
        ),
        *(CocoInstances, "instances_train2014.json has annotations of the same split; move one"),
    ),
    "COCO, nothing": (
        *(folder, lambda root: None, CocoInstances),
        "has no annotations of COCO; annotations/instances_train2017.json or the like should",
    ),
    "CVAT, a name twice": (
        made.cvat,
        lambda root: cvat_xml(root, lambda xml: xml.replace("Validation", "Train")),
        *(Cvat, r"line \d+: 'Train/a.jpg' is there twice; each image has its own"),
    ),
    "CVAT, no label": (
        made.cvat,
        lambda root: cvat_xml(root, lambda xml: xml.replace("label>", "other>")),
        *(Cvat, "annotations.xml: names no label; export as CVAT for images 1.1"),
    ),
    "CVAT, nothing": (
        *(folder, lambda root: None, Cvat),
        "annotations.xml: no such file; export as CVAT for images 1.1",
    ),
    "Supervisely, a line": (
        *(made.supervisely, short_polygon, Supervisely),
        r"objects\[0\]: a polygon of 2 points; draw it, or take it out",
    ),
    "YOLO, no split": (
        made.yolo,
        lambda root: text(root / "data.yaml", "names: [car, tree]\n"),
        *(Yolo, "has no split 'train'; there are none"),
    ),
    "YOLO, an endless description": (
        made.yolo,
        lambda root: text(root / "data.yaml", "names: [car, tree]\n" + "#" * (1 << 20)),
        *(Yolo, "data.yaml: more than 1048576 bytes; give the dataset's own file"),
    ),
    "folder, JPEG label maps": (folder, jpeg_labels, FolderDataset, "a.JPG: a JPEG label map; its"),
    "folder, no names": (
        folder,
        lambda root: text(root / "classes.txt", "\n\n"),
        *(FolderDataset, "classes.txt: names no class; give one name a line"),
    ),
    "shards, none": (folder, lambda root: None, ShardDataset, r"holds no shards \(.tar, .parquet"),
    "shards, an empty split": (
        folder,
        lambda root: text(root / "shards.json", '{"splits": {"train": []}}'),
        *(ShardDataset, "has no sample; write some"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_in_one_line(name, tmp_path):
    write, spoil, dataset, said = REFUSED[name]
    spoil(write(tmp_path))
    with pytest.raises(ValueError, match=said) as refused:
        [sample.labels for sample in dataset(tmp_path)]
    assert "\n" not in str(refused.value)


def test_a_supervisely_dataset_without_a_project_around_it(tmp_path):
    made.supervisely(tmp_path / "project")
    for name in ("img", "ann"):
        shutil.move(tmp_path / "project" / "train" / name, tmp_path / name)
    shutil.move(tmp_path / "project" / "meta.json", tmp_path / "meta.json")
    shutil.rmtree(tmp_path / "project")
    data = Supervisely(tmp_path)
    assert (Supervisely.splits(tmp_path), data.names) == ((), ["a"])
    assert data[0].labels.tolist() == made.SCENE


def test_counts_of_an_index_that_do_not_fit_the_classes_are_not_used(tmp_path):
    from scaseg.cli import main

    main(
        [
            "data",
            "prepare",
            "folder",
            str(folder(tmp_path / "a")),
            str(tmp_path / "b"),
            "--shards=1",
        ]
    )
    data = ShardDataset(tmp_path / "b")
    assert data.pixels == tuple(np.array([4, 4]))
    assert ShardDataset(tmp_path / "b", classes=("x", "y", "z")).pixels is None
