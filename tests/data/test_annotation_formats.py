"""What each annotation format has of its own: other layouts, other shapes, and what is refused."""

import base64
import json
import re
import zlib

import numpy as np
import pytest

from scaseg.data.datasets.coco import CocoInstances
from scaseg.data.datasets.cvat import Cvat
from scaseg.data.datasets.labelme import LabelMe
from scaseg.data.datasets.recognition import recognize
from scaseg.data.datasets.supervisely import Supervisely
from scaseg.data.datasets.yolo import Yolo
from scaseg.data.prepare import IncompleteError, prepare
from scaseg.data.splits import duplicate_groups
from scaseg.data.validation.check import check_data
from tests.data import annotations as made
from tests.data.annotations import CAR, HEIGHT, SCENE, TREE, WIDTH, flat
from tests.data.replicas import photograph, text

COVERED = {(row, column) for row in range(HEIGHT) for column in range(WIDTH) if SCENE[row][column]}


def pixels(labels, value=None):
    """The (row, column) of each pixel that is this value, or anything but background."""
    found = np.argwhere(labels == value) if value else np.argwhere(labels)
    return {tuple(place) for place in found.tolist()}


def one_coco(root, annotations, *, name="a.jpg", where="annotations/instances_all.json"):
    photograph(root / "images" / "a.jpg", HEIGHT, WIDTH)
    made.write_json(root / where, made.coco_document(name, annotations))
    return CocoInstances(root)


def test_coco_compressed_run_lengths_and_several_polygons(tmp_path):
    """41, 1, 5, 1: the last two as the difference to those two before them."""
    corner = {"size": [HEIGHT, WIDTH], "counts": "Y1150"}
    car = {"category_id": 3, "segmentation": [flat(CAR), flat(TREE)]}
    data = one_coco(tmp_path, [car, {"category_id": 3, "segmentation": corner}])
    assert pixels(data[0].labels) == COVERED


@pytest.mark.parametrize("crowd", [0, 1])
def test_coco_the_smaller_lies_on_top_whether_a_crowd_or_not(tmp_path, crowd):
    """Datumaro, and so CVAT, exports every painted mask as a crowd."""
    pixel = {"size": [HEIGHT, WIDTH], "counts": [7, 1, 40]}  # row 1 of column 1
    objects = [
        {"category_id": 90, "segmentation": pixel, "iscrowd": crowd},
        {"category_id": 3, "segmentation": [flat(CAR)]},
    ]
    labels = one_coco(tmp_path, objects)[0].labels
    assert (labels[1, 1], labels[1, 2]) == (2, 1)


@pytest.mark.parametrize("name", ["a.jpg", "images/a.jpg", "/home/u/images/a.jpg", "..\\a.jpg"])
@pytest.mark.parametrize("where", ["result.json", "annotations/instances_default.json"])
def test_coco_of_other_tools(tmp_path, name, where):
    """Label Studio's and CVAT's: one file, no split, photographs in images/."""
    data = one_coco(tmp_path, [{"category_id": 3, "segmentation": [flat(CAR)]}], where=where)
    assert CocoInstances.splits(tmp_path) == ()
    assert data.names == ["a"]


def test_coco_of_roboflow(tmp_path):
    """A category that only stands above the others is no class."""
    for split in ("train", "valid"):
        photograph(tmp_path / split / "a.jpg", HEIGHT, WIDTH)
        document = made.coco_document("a.jpg", [{"category_id": 1, "segmentation": [flat(CAR)]}])
        document["categories"] = [
            {"id": 0, "name": "things", "supercategory": "none"},
            {"id": 1, "name": "car", "supercategory": "things"},
        ]
        made.write_json(tmp_path / split / "_annotations.coco.json", document)
    assert CocoInstances.recognize(tmp_path) == "train/_annotations.coco.json of COCO"
    data = CocoInstances(tmp_path, "val")
    assert (data.classes, data.names) == (("background", "car"), ["valid/a"])


@pytest.mark.parametrize(
    ("segmentation", "said"),
    [
        ([], "no outline, a box alone"),
        (None, "no outline, a box alone"),
        ([[1, 1, 2, 2]], "a polygon of less than 3 points"),
        ([[1, 1, 2, 2, 3]], "not a list of points"),
        (["abc"], "not a list of points"),
        (
            {"size": [2, 2], "counts": [4]},
            r"run lengths of size \[2, 2\]; its photograph is \[6, 8",
        ),
        ({"size": [6, 8], "counts": [4]}, "run lengths of 4 pixels"),
        ({"size": [6, 8]}, "run lengths of 0 pixels"),
        ({"size": [6, 8], "counts": "z"}, "damaged run lengths"),
        ({"size": [6, 8], "counts": {"a": 1}}, "run lengths that are no numbers"),
    ],
)
def test_coco_shapes_that_are_refused(tmp_path, segmentation, said):
    data = one_coco(tmp_path, [{"category_id": 3, "segmentation": segmentation}])
    with pytest.raises(ValueError, match=rf"instances_all.json: annotations\[0\]: {said}"):
        data[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"annotations": [{"image_id": 1, "category_id": 3}]}, r"\[0\]: image_id 1; no image"),
        ({"annotations": [{"image_id": "x"}]}, r"annotations\[0\].image_id: 'x'; give a number"),
        ({"annotations": [{"image_id": 4.5}]}, r"annotations\[0\].image_id: 4.5; give a whole"),
        ({"annotations": [{"image_id": float("inf")}]}, r"image_id: inf; give a whole number"),
        ({"images": [{"id": 1}]}, r"images\[0\].height: nothing; give a number"),
        ({"images": "x"}, r"images: 'x'; give a list"),
        ({"categories": [3]}, r"categories\[0\]: 3; give a mapping"),
    ],
)
def test_coco_files_that_are_refused(tmp_path, change, said):
    path = tmp_path / "annotations" / "train.json"
    made.write_json(path, made.coco_document("a.jpg") | change)
    with pytest.raises(ValueError, match=rf"train.json: .*{said}"):
        CocoInstances(tmp_path)


def test_coco_with_unclear_splits(tmp_path):
    document = made.coco_document("a.jpg")
    for name in ("train_a", "train_b"):
        made.write_json(tmp_path / f"{name}.json", document)
    with pytest.raises(ValueError, match=r"train_b.json: train_a.json has .* of the same split"):
        CocoInstances(tmp_path)
    (tmp_path / "train_b.json").rename(tmp_path / "more.json")
    with pytest.raises(ValueError, match=r"more.json: its name says no split, but others do"):
        CocoInstances(tmp_path)


def one_labelme(root, *shapes, **more):
    photograph(root / "a.jpg", HEIGHT, WIDTH)
    made.write_json(root / "a.json", made.labelme_document(list(shapes), **more))
    return LabelMe(root)


def test_labelme_shapes(tmp_path):
    shape = made.labelme_shape
    circle = one_labelme(tmp_path, shape("car", [[3, 3], [4.2, 3]], "circle"))[0].labels
    assert pixels(circle) == {(2, 2), (2, 3), (3, 2), (3, 3)}
    turned = one_labelme(tmp_path, shape("car", CAR, "oriented_rectangle"))[0].labels
    assert len(pixels(turned)) == 12
    point = one_labelme(tmp_path, shape("car", [[0, 0]], "point"))[0].labels
    assert pixels(point) == {
        (row, column)
        for row in range(HEIGHT)
        for column in range(WIDTH)
        if (row + 0.5) ** 2 + (column + 0.5) ** 2 <= 25
    }
    line = one_labelme(tmp_path, shape("car", [[-20, -3], [20, -3]], "linestrip"))[0].labels
    assert pixels(line) == {(row, column) for row in (0, 1) for column in range(WIDTH)}
    mask = base64.b64encode(made.png_bytes([[255, 0], [255, 255]])).decode()
    drawn = one_labelme(tmp_path, shape("car", [[6, 4], [7, 5]], "mask", mask=mask))[0].labels
    assert pixels(drawn) == {(4, 6), (5, 6), (5, 7)}


def test_labelme_names_that_mean_something(tmp_path):
    """What is to be ignored is unlabelled, and a background may be drawn."""
    shapes = [made.labelme_shape(name, CAR) for name in ("_background_", "car")]
    data = one_labelme(tmp_path, *shapes, made.labelme_shape("__ignore__", TREE))
    assert data.classes == ("_background_", "car")
    assert data[0].labels[2].tolist() == [0, 1, 255, 255, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["../images/a.jpg", "C:\\photos\\a.jpg", "gone.jpg", ""])
def test_labelme_photographs_in_another_folder(tmp_path, name):
    """gone.jpg: renamed together with its JSON file."""
    photograph(tmp_path / "images" / "a.jpg", HEIGHT, WIDTH)
    document = made.labelme_document([made.labelme_shape("car", CAR)], name, imageHeight=None)
    made.write_json(tmp_path / "labels" / "a.json", document)
    data = LabelMe(tmp_path)
    assert data.names == ["a"]
    assert len(pixels(data[0].labels)) == 12  # the size is the photograph's


def test_labelme_photographs_inside_the_file(tmp_path):
    """They are written as they are; those on disk without a JSON file are left out with a note."""
    photograph(tmp_path / "b.jpg", HEIGHT, WIDTH)
    data = base64.b64encode((tmp_path / "b.jpg").read_bytes()).decode()
    shapes = [made.labelme_shape("car", CAR)]
    document = made.labelme_document(shapes, "gone.JPG", imageData=data, imageHeight=None)
    made.write_json(tmp_path / "in" / "a.json", document)
    made.write_json(tmp_path / "b.json", made.labelme_document(shapes, "b.jpg"))
    photograph(tmp_path / "c.jpg", HEIGHT, WIDTH)
    labelme, ours = LabelMe(tmp_path), tmp_path.with_name(f"{tmp_path.name}_ours")
    assert labelme.names == ["b", "in/a"]
    assert np.array_equal(labelme[1].image, labelme[0].image)
    assert check_data(LabelMe, tmp_path).pixels == (72, 24)
    assert duplicate_groups(labelme)[0] == duplicate_groups(labelme.subset([1, 0]))[0]
    result = prepare(LabelMe, tmp_path, ours)
    assert result.notes == ("photographs left out, without a JSON file: 1",)
    assert (ours / "images" / "in" / "a.jpg").read_bytes() == (tmp_path / "b.jpg").read_bytes()
    document["imageData"] = "%%%"
    made.write_json(tmp_path / "in" / "a.json", document)
    with pytest.raises(ValueError, match=r"a.json: imageData: not valid base64"):
        LabelMe(tmp_path)[1]


def test_photographs_in_no_split_are_left_out_with_a_note(tmp_path):
    """Beside train/ and val/: they were neither, and pooling all would mix the splits."""
    made.labelme(tmp_path / "set")
    photograph(tmp_path / "set" / "more" / "b.jpg", HEIGHT, WIDTH)
    made.write_json(tmp_path / "set" / "more" / "b.json", made.labelme_document([], "b.jpg"))
    result = prepare(LabelMe, tmp_path / "set", tmp_path / "ours")
    assert result.splits == {"train": 1, "val": 1}
    assert result.notes == ("photographs left out, in none of train, val: 1",)


def test_labelme_what_is_refused(tmp_path):
    for shape, said in (
        (made.labelme_shape("car", CAR[:2]), "a polygon of 2 points; 3 are needed"),
        (made.labelme_shape("car", CAR, "cube"), "a shape of type 'cube'; polygon, rectangle"),
        (made.labelme_shape("car", CAR[:2], "mask", mask="!"), "not valid base64"),
        (made.labelme_shape("car", CAR[:2], "mask", mask="aGk="), "not an image"),
        (made.labelme_shape("car", "x"), "not a list of points"),
        ({"label": "car"}, "not a list of points"),
        ({"points": CAR}, "label: nothing; give a text"),
    ):
        data = one_labelme(tmp_path, shape)
        with pytest.raises(ValueError, match=rf"a.json: shapes\[0\].{{1,2}}{said}"):
            data[0]
    (tmp_path / "b.json").write_text('{"shapes": [')
    with pytest.raises(IncompleteError) as refused:
        prepare(LabelMe, tmp_path, tmp_path.with_name(f"{tmp_path.name}_ours"))
    assert any("b.json: not valid JSON" in str(one) for one in refused.value.problems)


def one_cvat(root, shapes, **more):
    photograph(root / "a.jpg", HEIGHT, WIDTH)
    image = f'<image id="0" name="a.jpg" width="{WIDTH}" height="{HEIGHT}">\n{shapes}\n</image>'
    text(root / "annotations.xml", made.cvat_xml(image, **more))
    return Cvat(root)


def test_cvat_shapes_and_labels(tmp_path):
    """Ellipses; a mask that begins inside; labels of points are no classes."""
    ellipse = '<ellipse label="car" cx="3" cy="3" rx="1.2" ry="1.2" z_order="0"/>'
    data = one_cvat(tmp_path, ellipse, labels=("car", "tree</name><type>points</type><name>x"))
    assert pixels(data[0].labels) == {(2, 2), (2, 3), (3, 2), (3, 3)}
    mask = '<mask label="car" rle="1, 2, 1" left="0" top="1" width="2" height="2"/>'
    assert pixels(one_cvat(tmp_path, mask)[0].labels) == {(1, 1), (2, 0)}


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ('<polygon label="car" points="1,1;2,2"/>', "a polygon of 2 points"),
        ('<polygon label="car" points="1,1;2,x"/>', "'1,1,2,x'; give numbers"),
        ('<polygon label="car" points="1,1;2"/>', "not a list of points"),
        ('<polygon points="1,1;2,2;3,3"/>', "<polygon> has no label"),
        ('<box label="car" xtl="a"/>', "xtl='a'; give a number"),
        ('<mask label="car" rle="1" left="0" top="0" width="9" height="1"/>', "a mask of 1 x 9"),
        ('<blob label="car"/>', "<blob>; polygon, mask, box"),
        ('<box label="boat" xtl="0" ytl="0" xbr="1" ybr="1"/>', "'boat' is none of the classes"),
    ],
)
def test_cvat_shapes_that_are_refused(tmp_path, shape, said):
    with pytest.raises(ValueError, match=rf"annotations.xml: line 6: {said}"):
        one_cvat(tmp_path, shape)[0]


def test_cvat_files_of_datumaro(tmp_path):
    """One for each split, beside images/."""
    made.cvat(tmp_path)
    content = (tmp_path / "annotations.xml").read_text()
    for split, subset, other in (("train", "Train", "Validation"), ("val", "Validation", "Train")):
        (tmp_path / "images" / subset / "a.jpg").rename(tmp_path / "images" / f"{split}_a.jpg")
        images = re.sub(rf'<image [^>]* subset="{other}".*?</image>', "", content, flags=re.DOTALL)
        images = images.replace(f' subset="{subset}"', "").replace("a.jpg", f"{split}_a.jpg")
        (tmp_path / f"{split}.xml").write_text(images)
    (tmp_path / "annotations.xml").unlink()
    assert [one.name for one in recognize(tmp_path)] == ["cvat"]
    assert Cvat.splits(tmp_path) == ("train", "val")
    train = Cvat(tmp_path, "train")
    assert (train.names, train[0].labels.tolist()) == (["train_a"], SCENE)
    assert Cvat(tmp_path, "val").names == ["val_a"]


def test_cvat_for_video_is_refused(tmp_path):
    text(tmp_path / "annotations.xml", made.cvat_xml('<track id="0" label="car"></track>'))
    with pytest.raises(ValueError, match=r"CVAT for video; export as CVAT for images 1\.1"):
        Cvat(tmp_path)


def one_supervisely(root, *figures):
    made.supervisely(root)
    made.write_json(root / "train/ann/a.jpg.json", made.supervisely_document(list(figures)))
    return Supervisely(root, "train")


def test_supervisely_holes(tmp_path):
    """The outline of a hole is part of the hole."""
    figure = made.supervisely_figure
    square, hole = [[0, 0], [4, 0], [4, 4], [0, 4]], [[1, 1], [3, 1], [3, 3], [1, 3]]
    labels = one_supervisely(tmp_path, figure("car", "polygon", square, [hole]))[0].labels
    assert pixels(labels) == {
        (row, column) for row in range(5) for column in range(5) if {row, column} & {0, 4}
    }


def test_supervisely_bombs_and_damage(tmp_path):
    good = made.bitmap([[1]], 0, 0)
    bomb = base64.b64encode(zlib.compress(b"\0" * (1 << 27))).decode()
    cut = base64.b64encode(zlib.compress(b"\0" * 1000)[:-6]).decode()
    for bitmap, said in (
        ({"data": bomb}, "more bytes than it has pixels for"),
        ({"data": cut}, "a bitmap that is cut"),
        ({"data": "!"}, "a damaged bitmap"),
        ({"data": made.bitmap([[1] * 100] * 100, 0, 0)["data"]}, "100 x 100 pixels; at most 48"),
        ({"origin": [1]}, "bitmap: origin: not a point"),
        ({"origin": ["a", None]}, "bitmap: origin: not a point"),
    ):
        figure = made.supervisely_figure("car", "bitmap", bitmap=good | bitmap)
        with pytest.raises(ValueError, match=rf"a.jpg.json: objects\[0\].*{said}"):
            one_supervisely(tmp_path, figure)[0]
    with pytest.raises(ValueError, match=r"objects\[0\]: a cuboid; polygon"):
        one_supervisely(tmp_path, made.supervisely_figure("car", "cuboid"))[0]


def test_yolo_of_roboflow_and_lists(tmp_path):
    """../train/images lies in the dataset; a list names photographs, perhaps of another machine."""
    photograph(tmp_path / "train" / "images" / "a.jpg", HEIGHT, WIDTH)
    text(tmp_path / "train" / "labels" / "a.txt", made.yolo_line(0, CAR))
    text(tmp_path / "data.yaml", "train: ../train/images\nval: val.txt\nnames: [car]\nnc: 1\n")
    text(tmp_path / "val.txt", "/root/set/train/images/a.jpg\n")
    assert Yolo.recognize(tmp_path) == "train/labels/a.txt of YOLO"
    for split in ("train", "val"):
        data = Yolo(tmp_path, split)
        assert data.names == ["train/images/a"]
        assert len(pixels(data[0].labels)) == 12


@pytest.mark.parametrize("form", ["images", "images/train", "train/images"])
def test_yolo_without_data_yaml(tmp_path, form):
    """Label Studio's export: classes.txt; or names of one's own."""
    photograph(tmp_path / "set" / form / "a.jpg", HEIGHT, WIDTH)
    labels = tmp_path / "set" / form.replace("images", "labels") / "a.txt"
    text(labels, made.yolo_line(1, CAR))
    with pytest.raises(ValueError, match=r"classes.txt: nothing; give the names .*--classes-file"):
        Yolo(tmp_path / "set")
    text(tmp_path / "names.txt", "tree\ncar\n")
    named = Yolo.configured(classes_file=str(tmp_path / "names.txt"))(tmp_path / "set")
    assert len(pixels(named[0].labels, 2)) == 12
    text(tmp_path / "set" / "classes.txt", "tree\ncar\n")
    assert Yolo(tmp_path / "set").classes == ("background", "tree", "car")
    assert Yolo.splits(tmp_path / "set") == (() if form == "images" else ("train",))
    [found] = recognize(tmp_path / "set")
    assert found.name == "yolo"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 0.5 0.5 0.2 0.2", "a box, no outline; export the dataset for segmentation"),
        ("0 0.1 0.1 0.2 0.2 0.3", "6 numbers; give a class, and x and y of 3 corners or more"),
        ("0 10 10 20 20 30 30", "a corner outside the photograph; x and y are shares, 0 to 1"),
        ("0 nan 0 0.2 0.2 0.3 0.3", "a corner outside the photograph"),
        ("7 0.1 0.1 0.2 0.2 0.3 0.3", "class 7; 2 are named"),
        ("-1 0.1 0.1 0.2 0.2 0.3 0.3", "give a class"),
        ("car 0.1 0.1 0.2 0.2 0.3 0.3", "'car 0.1 .*'; give numbers alone"),
    ],
)
def test_yolo_lines_that_are_refused(tmp_path, line, said):
    made.yolo(tmp_path)
    text(tmp_path / "labels" / "train" / "a.txt", f"{made.yolo_line(0, CAR)}\n{line}\n")
    with pytest.raises(ValueError, match=rf"a.txt: line 2: .*{said}"):
        Yolo(tmp_path, "train")[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("names: [car]\n", "has no split 'train'"),
        ("train: images/train\n", "data.yaml: names: nothing; give the names"),
        ("train: a\nnames: {1: car, b: c}\n", "data.yaml: names: {1: 'car', 'b': 'c'}; give the"),
        ("train: images/train\nnames: {1: car}\n", "data.yaml: names: {1: 'car'}; give the names"),
        ("[1]", "data.yaml: no mapping"),
        ("a: [", "data.yaml: line 1: invalid YAML"),
    ],
)
def test_yolo_descriptions_that_are_refused(tmp_path, content, said):
    made.yolo(tmp_path)
    text(tmp_path / "data.yaml", content)
    with pytest.raises(ValueError, match=said):
        Yolo(tmp_path, "train")


def test_more_classes_than_a_label_map_holds(tmp_path):
    document = made.coco_document("a.jpg")
    document["categories"] = [{"id": number, "name": f"c{number}"} for number in range(1203)]
    text(tmp_path / "lvis_train.json", json.dumps(document))
    with pytest.raises(ValueError, match="1204 classes; 255 are the most"):
        CocoInstances(tmp_path)
