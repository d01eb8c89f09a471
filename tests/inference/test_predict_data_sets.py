"""scaseg predict on data sets: the photographs alone, and a line that says so."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.inference.command import predict, refused, written
from tests.inference.models import picture

LAYOUTS = [("images", "labels"), ("img_dir", "ann_dir"), ("JPEGImages", "SegmentationClass")]
LAYOUTS += [("leftImg8bit", "gtFine"), ("images", "annotations")]


@pytest.mark.parametrize(("images", "labels"), LAYOUTS)
def test_of_a_data_set_the_photographs_alone(photos, model, tmp_path, capsys, images, labels):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    photos.rename(data / images)
    (data / labels).mkdir()
    Image.fromarray(picture(9, 9)).save(data / labels / "one.png")
    for place in (data, data / labels):
        assert "belongs to the dataset" in refused(capsys, data, model=model, out=place)
    predict(data, model=model, out=out)
    assert written(out) == ["a/b/three.png", "a/two.png", "one.png"]
    assert capsys.readouterr().err == (
        f"{data} is a dataset: the images in {images}/ are predicted, the label maps in "
        f"{labels}/ are not (1 file)\n"
    )
    predict(data, "--quiet", model=model, out=tmp_path / "quiet")
    predict(data / labels, model=model, out=tmp_path / "labels")
    predict(str(data / "*" / "*"), model=model, out=tmp_path / "both")
    assert capsys.readouterr().err == ""
    assert written(tmp_path / "labels") == ["one.png"]
    assert f"{labels}/one.png" in written(tmp_path / "both")


def test_of_data_sets_below_a_folder_the_photographs_alone(photos, model, tmp_path, capsys):
    data, out = tmp_path / "VOCdevkit" / "VOC2012", tmp_path / "out"
    for name in ("JPEGImages", "SegmentationClass", "SegmentationObject"):
        shutil.copytree(photos, data / name)
    for name in ("train", "train_labels", "val", "val_labels"):
        shutil.copytree(photos / "a" / "b", tmp_path / "VOCdevkit" / "CamVid" / name)
    predict(tmp_path / "VOCdevkit", model=model, out=out)
    assert written(out) == [
        *("CamVid/train/three.png", "CamVid/val/three.png", "VOC2012/JPEGImages/a/b/three.png"),
        *("VOC2012/JPEGImages/a/two.png", "VOC2012/JPEGImages/one.png"),
    ]
    camvid, voc = capsys.readouterr().err.splitlines()
    assert "train/, val/ are predicted, the label maps in train_labels/, val_labels/" in camvid
    assert "maps in SegmentationClass/, SegmentationObject/ are not" in voc


def test_results_beside_the_photographs_are_not_counted(photos, model, capsys):
    """In the folder of a dataset: a second run finds the first one's."""
    photos.rename(photos.with_name("images"))
    shutil.copytree(photos.with_name("images"), photos / "images")
    shutil.copytree(photos / "images" / "a" / "b", photos / "labels")
    for _ in range(2):
        predict(photos, "--overwrite", model=model, out=photos / "out")
        assert capsys.readouterr().err.endswith("the label maps in labels/ are not (1 file)\n")


@pytest.mark.parametrize(
    ("images", "others", "said"),
    [
        (
            "images_png",
            ["masks_png"],
            "in images_png/ are predicted, the label maps in masks_png/ are",
        ),
        ("images", ["labels", "instances"], "in labels/ are not, nor is anything in instances/"),
        ("images", ["v2.0"], "the label maps in v2.0/ are not"),
    ],
)
def test_of_scenes_the_photographs_alone(photos, model, tmp_path, capsys, images, others, said):
    """LoveDA; Mapillary Vistas 1.2 and 2.0: one line, however many scenes."""
    data, out = tmp_path / "data", tmp_path / "out"
    for scene in ("Train/Rural", "Train/Urban", "Val/Urban"):
        for name in (images, *others):
            shutil.copytree(photos / "a" / "b", data / scene / name)
    predict(data, model=model, out=out)
    assert [Path(name).parts[:3] for name in written(out)] == [
        (*scene, images) for scene in (("Train", "Rural"), ("Train", "Urban"), ("Val", "Urban"))
    ]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{data}/Train/Rural and 2 more folders are datasets: the images in ")
    assert said in line
    assert line.endswith(f" ({3 * len(others)} files)")


def test_label_maps_beside_the_photographs_are_no_photographs(photos, model, tmp_path, capsys):
    out = tmp_path / "out"
    for name in ("one", "a/two", "a/b/three"):
        Image.fromarray(picture(9, 9)).save(photos / f"{name}_mask.png")
    for argument in (photos / "one.jpg", f"{photos}/*.jpg"):
        said = refused(capsys, argument, "--overwrite", model=model, out=photos)
        assert "is a dataset of photographs and label maps; give another folder" in said
    predict(photos, model=model, out=out)
    assert written(out) == ["a/b/three.png", "a/two.png", "one.png"]
    assert (
        f"{photos} and 2 more folders are datasets: the images NAME.jpg are predicted, the label "
        "maps NAME_mask.png are not (3 files)\n"
    ) in capsys.readouterr().err
    predict(photos / "one_mask.png", model=model, out=tmp_path / "named")  # as it is asked for
    assert written(tmp_path / "named") == ["one_mask.png"]
